//! The leader of three is killed again and again under load: what the nodes admitted meanwhile, and how much of what they
//! were charged the others know. The three are controllers of ours with their state in etcd, or servers of PD.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_proto::v1::{CreateGroupRequest, Group, UsageRequest};

use super::pd::Pd;
use super::{Admitted, GROUP, NODES, RATE, Setting};
use crate::process::child::Process;
use crate::process::cluster::Cluster;
use crate::process::controllers::Controllers;
use crate::process::error::{ClusterError, PATIENCE, refused};
use crate::process::load::{Kind, Work};
use crate::process::log::machine_micros;

/// Servers.
pub(super) const THREE: usize = 3;
/// Before the first kill: until all shares are found.
const BEFORE: Duration = Duration::from_secs(30);
/// How long the one that was killed is away.
const AWAY: Duration = Duration::from_secs(5);

/// When the leader is killed.
#[derive(Clone, Copy, Debug)]
pub struct Kills {
    /// How often.
    pub count: u64,
    /// From one to the next.
    pub every: Duration,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// What was admitted.
    pub admitted: Admitted,
    /// The most by which a window since the first kill exceeded `rate * window`: a new group of PD begins with a gift.
    pub since_kill: Ru,
    /// The sum of what was admitted, which is what the nodes were charged.
    pub charged: Ru,
    /// What the servers say that was charged.
    pub known: Ru,
    /// The longest time without an admission of any node.
    pub still: Span,
}

/// Three of a kind, of which one leads.
pub(super) trait Three {
    /// Makes the group under load.
    async fn create(&mut self) -> Result<(), ClusterError>;
    /// The command of a node that logs what it does there.
    fn node(&self, index: usize, log: &Path) -> Command;
    /// Kills the one that leads, and returns it.
    async fn kill(&mut self) -> Result<usize, ClusterError>;
    /// Starts one that was killed.
    fn start(&mut self, index: usize) -> Result<(), ClusterError>;
    /// Ends nodes so that they have reported what they can.
    async fn end(&mut self, nodes: Vec<Process>) -> Result<(), ClusterError>;
    /// What the group was charged.
    async fn known(&mut self) -> Result<Ru, ClusterError>;
}

/// Kills leaders among controllers of ours.
///
/// # Errors
/// A process does not do what it should.
pub async fn of_ours(setting: &Setting, kills: Kills) -> Result<Outcome, ClusterError> {
    let mut controllers = Controllers::new(&setting.folder, &setting.load_node, THREE)?;
    (0..THREE).try_for_each(|index| controllers.start(index))?;
    run(&mut Ours { setting: setting.clone(), controllers }, setting, kills).await
}

/// Kills leaders among servers of PD. `server` and `node` are built of PD's sources by `tests/pd/build`.
///
/// # Errors
/// A process does not do what it should.
pub async fn of_pd(
    setting: &Setting,
    server: PathBuf,
    node: PathBuf,
    kills: Kills,
) -> Result<Outcome, ClusterError> {
    run(&mut Pd::start(&setting.folder, server, node)?, setting, kills).await
}

async fn run(three: &mut impl Three, setting: &Setting, kills: Kills) -> Result<Outcome, ClusterError> {
    three.create().await?;
    let begun = Time(machine_micros());
    let log = |index| setting.folder.join(format!("{}.log", Cluster::node_name(index)));
    let node =
        |index| Process::start(three.node(index, &log(index)), &Cluster::node_name(index), &setting.folder);
    let nodes = (0..NODES).map(node).collect::<Result<Vec<_>, _>>()?;
    tokio::time::sleep(BEFORE).await;
    let first = Time(machine_micros());
    for _ in 0..kills.count {
        let killed = three.kill().await?;
        tokio::time::sleep(AWAY).await;
        three.start(killed)?;
        tokio::time::sleep(kills.every.saturating_sub(AWAY)).await;
    }
    three.end(nodes).await?;
    let known = three.known().await?;
    let mut admitted = Vec::new();
    for index in 0..NODES {
        admitted.extend(super::admissions(&log(index))?);
    }
    admitted.sort_unstable();
    let pauses = admitted.iter().zip(admitted.iter().skip(1)).map(|((at, _), (next, _))| next.since(*at));
    let still = pauses.max().unwrap_or(Span(0));
    let charged = admitted.iter().map(|(_, cost)| *cost).sum();
    let later = admitted.iter().filter(|(at, _)| *at >= first).copied().collect();
    let judged = |from, admitted| Admitted::new(from, Rate::whole(RATE), Ru::whole(RATE), admitted);
    let since_kill = judged(first, later).worst;
    Ok(Outcome { admitted: judged(begun, admitted), since_kill, charged, known, still })
}

struct Ours {
    setting: Setting,
    controllers: Controllers,
}

impl Three for Ours {
    async fn create(&mut self) -> Result<(), ClusterError> {
        let (leader, _) = self.controllers.successor(None).await?;
        let group = Group { name: GROUP.to_owned(), ..super::definition() };
        let request = CreateGroupRequest { group: Some(group), if_not_exists: false };
        let created = self.controllers.admin(leader).await?.create_group(request).await;
        created.map(drop).map_err(|status| refused("create a group", status))
    }

    /// It logs in the folder, under its name.
    fn node(&self, index: usize, _log: &Path) -> Command {
        let work = Work { group: GROUP.to_owned(), burst: 0, kind: Kind::Steady };
        let mut command = Command::new(&self.setting.load_node);
        command.arg(self.controllers.endpoints().join(",")).arg(Cluster::node_name(index));
        command.arg(&self.setting.folder).arg(work.to_string());
        command
    }

    async fn kill(&mut self) -> Result<usize, ClusterError> {
        let (leader, _) = self.controllers.successor(None).await?;
        self.controllers.kill(leader);
        Ok(leader)
    }

    fn start(&mut self, index: usize) -> Result<(), ClusterError> {
        self.controllers.start(index)
    }

    async fn end(&mut self, nodes: Vec<Process>) -> Result<(), ClusterError> {
        nodes.iter().for_each(Process::terminate);
        for mut node in nodes {
            let status = node.end_within(PATIENCE).await?;
            if !status.success() {
                return Err(node.unexpected(status));
            }
        }
        Ok(())
    }

    async fn known(&mut self) -> Result<Ru, ClusterError> {
        let (leader, _) = self.controllers.successor(None).await?;
        let request = UsageRequest { group: GROUP.to_owned(), per_client: false };
        let usage = self.controllers.admin(leader).await?.usage(request).await;
        let rows = usage.map_err(|status| refused("say what was used", status))?.into_inner().rows;
        let micro = rows.iter().filter_map(|row| row.total.as_ref()).map(|total| total.flat_micro_ru).sum();
        Ok(Ru(micro))
    }
}
