//! The node processes of the demo: each start has its own log and final counters, each node its database and journal.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::child::Child;
use super::evidence::Evidence;
use super::ledger::{Account, Charges};
use super::{journal, worker};
use crate::error::CliError;
use crate::node::FinalCounters;

/// The demo's directory and the controller to use.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) dir: PathBuf,
    pub(crate) endpoint: String,
}

/// Nodes that run, and what those that ended left behind.
#[derive(Debug)]
pub(crate) struct Nodes {
    site: Site,
    running: Vec<Node>,
    starts: u32,
    logs: Vec<PathBuf>,
    /// The log of one's own statements, which is among them.
    own_log: Option<PathBuf>,
    left: Leavings,
}

/// A running node.
#[derive(Debug)]
struct Node {
    name: String,
    final_counters: PathBuf,
    child: Child,
}

/// What nodes left behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leavings {
    pub(crate) charges: Charges,
    pub(crate) finals: Vec<FinalCounters>,
}

impl Site {
    /// Database of a node.
    pub(crate) fn database(&self, node: &str) -> PathBuf {
        self.dir.join(format!("{node}.db"))
    }

    /// Workload of a node.
    pub(crate) fn workload(&self, node: &str) -> PathBuf {
        self.dir.join(format!("{node}.workload"))
    }

    fn journals(&self) -> PathBuf {
        self.dir.join("journals")
    }
}

impl Nodes {
    /// No nodes yet.
    pub(crate) fn new(site: Site) -> Result<Self, CliError> {
        let journals = site.journals();
        std::fs::create_dir_all(&journals).map_err(CliError::file("make", &journals))?;
        Ok(Self {
            site,
            running: Vec::new(),
            starts: 0,
            logs: Vec::new(),
            own_log: None,
            left: Leavings::default(),
        })
    }

    /// How many times nodes were started.
    pub(crate) fn starts(&self) -> u32 {
        self.starts
    }

    /// Starts node `name` on its workload and waits until it has begun.
    pub(crate) async fn start(&mut self, name: &str) -> Result<(), CliError> {
        let workload = self.site.workload(name);
        let mut node = self.spawn(name, name, vec!["--workload".into(), workload.into()])?;
        node.child.expect(worker::READY).await?;
        self.running.push(node);
        Ok(())
    }

    /// Starts a node that runs the statements in `sql` on the database of node `on`; its output is the caller's to
    /// read.
    pub(crate) fn start_own(
        &mut self,
        sql: &Path,
        on: &str,
        tenant: &str,
        user: &str,
    ) -> Result<OwnSql, CliError> {
        let mut arguments: Vec<OsString> = vec!["--until-stdin-ends".into(), "--sql".into(), sql.into()];
        arguments.extend(["--tenant".into(), tenant.into(), "--user".into(), user.into()]);
        let own = self.spawn("own-sql", on, arguments).map(OwnSql);
        self.own_log = self.logs.last().cloned();
        own
    }

    fn spawn(&mut self, name: &str, database: &str, more: Vec<OsString>) -> Result<Node, CliError> {
        self.starts = self.starts.saturating_add(1);
        let of_start = |kind: &str| self.site.dir.join(format!("{name}.{}.{kind}", self.starts));
        let (log, final_counters) = (of_start("admissions"), of_start("final"));
        let mut arguments: Vec<OsString> =
            vec!["node".into(), "--endpoint".into(), (&self.site.endpoint).into()];
        let mut option = |flag: &str, value: OsString| arguments.extend([flag.into(), value]);
        option("--identity", name.into());
        option("--db", self.site.database(database).into());
        option("--journal", self.site.journals().into());
        option("--admission-log", (&log).into());
        option("--final-counters", (&final_counters).into());
        arguments.extend(more);
        let child = Child::start(name, &of_start("stderr"), arguments)?;
        self.logs.push(log);
        Ok(Node { name: name.to_owned(), final_counters, child })
    }

    /// Kills node `name` as `kill -9` does, and keeps what its journal says.
    pub(crate) async fn kill(&mut self, name: &str) -> Result<(), CliError> {
        let Some(index) = self.running.iter().position(|node| node.name == name) else {
            return Ok(());
        };
        self.running.remove(index).child.kill().await?;
        let scratch = self.site.dir.join(format!("{name}.{}.killed", self.starts));
        let charges = journal::charges(&self.site.journals(), name, &scratch).await?;
        self.left.charges.extend(charges);
        Ok(())
    }

    /// Takes a node back whose statements have been run.
    pub(crate) fn give_back(&mut self, own: OwnSql) {
        self.running.push(own.0);
    }

    /// Ends all nodes gracefully and returns what they and the killed ones left.
    pub(crate) async fn stop(&mut self) -> Result<Leavings, CliError> {
        let nodes = std::mem::take(&mut self.running);
        let stops = nodes.into_iter().map(|node| {
            let (name, path) = (node.name, node.final_counters);
            // Side by side: each waits for its operations in flight and for the controller's disk.
            (name, path, tokio::spawn(node.child.stop()))
        });
        let mut done = Ok(());
        for (name, path, stop) in stops.collect::<Vec<_>>() {
            let stopped = stop
                .await
                .unwrap_or_else(|error| Err(CliError::Process { what: name, reason: error.to_string() }));
            // A node for one's own statements fails when one of them does, and leaves its counters all the same.
            if !path.exists() {
                done = done.and(stopped);
            }
            if done.is_ok() {
                self.take(FinalCounters::read(&path)?)?;
            }
        }
        done.map(|()| std::mem::take(&mut self.left))
    }

    fn take(&mut self, last: FinalCounters) -> Result<(), CliError> {
        if !last.log_failure.is_empty() {
            return Err(CliError::Process {
                what: format!("{}: its admission log is not complete", last.client),
                reason: last.log_failure,
            });
        }
        for (group, counters) in &last.groups {
            let account =
                Account { group: group.clone(), client: last.client.clone(), incarnation: last.incarnation };
            self.left.charges.insert(account, counters.charged_micro_ru.0);
        }
        self.left.finals.push(last);
        Ok(())
    }

    /// The log of one's own statements alone; empty when there were none.
    pub(crate) fn own_evidence(&self) -> Result<Evidence, CliError> {
        let mut evidence = Evidence::default();
        self.own_log.iter().try_for_each(|log| evidence.read(log))?;
        Ok(evidence)
    }

    /// The logs of all starts.
    pub(crate) fn evidence(&self) -> Result<Evidence, CliError> {
        let mut evidence = Evidence::default();
        self.logs.iter().try_for_each(|log| evidence.read(log))?;
        Ok(evidence)
    }
}

/// A node that runs one's own statements.
#[derive(Debug)]
pub(crate) struct OwnSql(Node);

impl OwnSql {
    /// The next line of its output; `None` when it is done.
    pub(crate) async fn line(&mut self) -> Result<Option<String>, CliError> {
        self.0.child.line().await
    }

    /// Asks it to run no further statement and to interrupt the one that runs.
    pub(crate) fn end(&mut self) {
        self.0.child.end();
    }
}
