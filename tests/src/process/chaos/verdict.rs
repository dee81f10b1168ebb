//! What is judged at the end of a run, of one controller or of a cluster: definitions, ledger, bound, and stops.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::units::{Rate, Span};
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::{UsageRequest, UsageRow};
use tonic::Code;
use tonic::transport::Channel;

use super::cap::Cap;
use super::console::{Console, Reply};
use super::definitions::Definitions;
use super::outcome::{GroupFigures, Leadership, Outcome};
use super::progress::Tail;
use super::tally::Tally;
use super::{GROUP_RENEW, GROUP_TTL, LEASE_US, LOADED, MOVING, charged, judge, paced};
use crate::process::error::{ClusterError, PATIENCE, io, refused};
use crate::process::log::{self, Life};

/// Time between two looks at the logs.
const LOOK: Duration = Duration::from_millis(20);
/// Violations reported; more say nothing new.
const TOLD: usize = 30;

/// A run whose nodes have ended.
pub(super) struct Run {
    pub(super) tally: Tally,
    pub(super) took: Span,
    /// None when what they must be is not known any more.
    pub(super) definitions: Option<Definitions>,
    pub(super) leadership: Option<Leadership>,
    pub(super) violations: Vec<String>,
}

impl Run {
    /// Judges all of it, by the nodes' logs and by what the controller says that has just started.
    pub(super) async fn judged(
        mut self,
        admin: &mut AdminClient<Channel>,
        logs: &[PathBuf],
    ) -> Result<Outcome, ClusterError> {
        if let Some(definitions) = &mut self.definitions {
            let compared = async {
                loop {
                    match definitions.compare().await {
                        // One of a cluster whose beat is late lists nothing.
                        Ok(false) => tokio::time::sleep(LOOK).await,
                        answer => return answer,
                    }
                }
            };
            match tokio::time::timeout(PATIENCE, compared).await.unwrap_or(Ok(false)) {
                Ok(true) => {}
                Ok(false) => self.violations.push("the controller did not list its definitions".to_owned()),
                Err(violation) => self.violations.push(violation),
            }
        }
        let (logs, groups) = compare_ledger(admin, logs, &mut self.violations).await?;
        let fixed = Cap::new(Rate::ZERO, LEASE_US);
        let mut bounds = Vec::new();
        for loaded in LOADED.iter().filter(|loaded| !loaded.counts.is_empty()) {
            if let Some(pace) = loaded.pace {
                bounds.push(paced::bound(loaded, pace, &self.tally.crashes, &logs, &mut self.violations));
                continue;
            }
            // The moving rate is known only while definitions were followed.
            let cap = match &self.definitions {
                Some(definitions) => &definitions.cap,
                None if loaded.name == MOVING => continue,
                None => &fixed,
            };
            bounds.extend(judge::bound(loaded, cap, &logs, &mut self.violations));
        }
        let stops = judge::stops(&self.tally, &logs, &mut self.violations);
        self.violations.truncate(TOLD);
        let definitions = self.definitions.as_ref();
        Ok(Outcome {
            took: self.took,
            incarnations: logs.iter().map(Vec::len).sum(),
            groups,
            bounds,
            stops,
            counts: definitions.map(|d| d.counts).unwrap_or_default(),
            there: definitions.map(Definitions::there).unwrap_or_default(),
            alterations: definitions.map_or(0, |d| d.cap.alterations()),
            tally: self.tally,
            leadership: self.leadership,
            violations: self.violations,
        })
    }
}

/// The logs of all nodes, and what the ledger has of them.
pub(super) async fn compare_ledger(
    admin: &mut AdminClient<Channel>,
    logs: &[PathBuf],
    violations: &mut Vec<String>,
) -> Result<(Vec<Vec<Life>>, Vec<GroupFigures>), ClusterError> {
    let logs = logs.iter().map(|path| log::read(path));
    let logs = logs.collect::<Result<Vec<_>, _>>().map_err(io("read a node's log"))?;
    let mut groups = Vec::new();
    for loaded in charged() {
        let rows = usage(admin, loaded.name).await?;
        groups.push(judge::ledger(loaded, &logs, &rows, violations));
    }
    Ok((logs, groups))
}

/// Makes the groups under load.
pub(super) async fn set_up(console: &Console) -> Result<(), ClusterError> {
    let run = async |args: &[&str]| match console.run(args).await {
        Reply::Done => Ok(()),
        other => Err(refused(&args.join(" "), format!("{other:?}"))),
    };
    run(&["group", "alter", "default", "--ttl", GROUP_TTL, "--renew", GROUP_RENEW]).await?;
    for loaded in LOADED {
        let (rate, burst) = (loaded.rate.to_string(), loaded.burst.to_string());
        let mut args =
            vec!["group", "create", loaded.name, "--rate", &rate, "--burst", &burst, "--ttl", GROUP_TTL];
        args.extend(loaded.settings);
        run(&args).await?;
    }
    Ok(())
}

/// Once the faults are over every node is admitted in every group again.
pub(super) async fn all_go_on(logs: &[PathBuf], violations: &mut Vec<String>) -> Result<(), ClusterError> {
    let mut tails: Vec<Tail> = logs.iter().cloned().map(Tail::new).collect();
    for tail in &mut tails {
        tail.read()?;
    }
    let before: Vec<_> = tails.iter().map(|tail| tail.admitted.clone()).collect();
    let waiting = |tails: &[Tail]| {
        let mut waiting = Vec::new();
        for (node, (tail, before)) in tails.iter().zip(&before).enumerate() {
            let still = |group: &&str| tail.admitted.get(*group) <= before.get(*group);
            waiting.extend(
                charged().map(|l| l.name).filter(still).map(|group| format!("node {node} in {group}")),
            );
        }
        waiting
    };
    let goes_on = async {
        while !waiting(&tails).is_empty() {
            tokio::time::sleep(LOOK).await;
            for tail in &mut tails {
                tail.read()?;
            }
        }
        Ok(())
    };
    match tokio::time::timeout(PATIENCE, goes_on).await {
        Ok(done) => done,
        Err(_) => {
            let waiting = waiting(&tails).join(", ");
            violations.push(format!("progress: nothing admitted within {PATIENCE:?} of calm: {waiting}"));
            Ok(())
        }
    }
}

/// The ledger's totals of a group, by incarnation and in all.
async fn usage(admin: &mut AdminClient<Channel>, group: &str) -> Result<Vec<UsageRow>, ClusterError> {
    let request = UsageRequest { group: group.to_owned(), per_client: true };
    let asked = async {
        loop {
            match admin.usage(request.clone()).await {
                // One of a cluster whose beat is late takes no call.
                Err(status) if status.code() == Code::Unavailable => tokio::time::sleep(LOOK).await,
                reply => return reply,
            }
        }
    };
    let late = |_| refused("tell usage", "it takes no call");
    let reply = tokio::time::timeout(PATIENCE, asked).await.map_err(late)?;
    let reply = reply.map_err(|status| refused("tell usage", status))?.into_inner();
    if reply.truncated {
        return Err(refused("tell all usage", "there are more incarnations than fit an answer"));
    }
    Ok(reply.rows)
}
