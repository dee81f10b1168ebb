//! Trials: what real processes on real sockets admit of their cap, second by second: at a distance from the controller,
//! while it is away, and while it has a tenth of the time that it needs.
//!
//! A trial is a measurement: how much of a cap is used in real time depends on the machine. The bound over every window
//! does not, and is judged.

pub mod leaders;
pub mod outage;
pub mod overload;
mod pd;
pub mod round_trip;
mod series;
pub mod takeover;
mod times;
pub mod transfer;

use std::path::{Path, PathBuf};

use tidegate_core::bound::Bound;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_proto::v1::{CreateGroupRequest, Group};

pub use self::series::Series;
use super::child::Process;
use super::cluster::Cluster;
use super::error::{ClusterError, io};
use super::load::{Kind, Work};
use super::log::{self, CLOCK_ERROR_US, machine_micros};

/// Nodes of a trial. Each asks again as soon as an operation was admitted, so that far more than the cap is offered.
pub const NODES: usize = 4;
/// The group under load.
pub const GROUP: &str = "load";
/// Its rate in RU/s; its bucket holds one second of it.
pub const RATE: i64 = 1_000;

/// What a trial runs with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where store, logs and outputs are kept.
    pub folder: PathBuf,
    /// The `load-node` binary; `tidegate` stands beside it.
    pub load_node: PathBuf,
}

/// The definition that the trials begin with.
fn definition() -> Group {
    Group { ru_per_sec: RATE.to_string(), ..Group::default() }
}

/// What was admitted.
#[derive(Debug)]
pub struct Admitted {
    /// The admissions by second.
    pub series: Series,
    /// The most by which any window exceeded `rate * window`.
    pub worst: Ru,
    /// What that may be.
    pub allowed: Ru,
}

/// A trial under way.
#[derive(Debug)]
struct Trial {
    cluster: Cluster,
    begun_us: u64,
}

impl Trial {
    /// A controller that runs and knows the group under load; the nodes do not run yet.
    async fn new(setting: &Setting, nodes: usize, group: Group) -> Result<Self, ClusterError> {
        let works = vec![Work { group: GROUP.to_owned(), burst: 0, kind: Kind::Steady }];
        let mut cluster = Cluster::new(&setting.folder, &setting.load_node, nodes, works).await?;
        cluster.start_controller().await?;
        let mut trial = Self { cluster, begun_us: machine_micros() };
        trial.create(Group { name: GROUP.to_owned(), ..group }).await?;
        Ok(trial)
    }

    async fn create(&mut self, group: Group) -> Result<(), ClusterError> {
        let what = format!("create {}", group.name);
        let request = CreateGroupRequest { group: Some(group), if_not_exists: false };
        let created = self.cluster.admin().await?.create_group(request).await;
        created.map(drop).map_err(|status| ClusterError::Refused { what, reason: status.to_string() })
    }

    /// Starts all nodes.
    fn begin(&mut self) -> Result<(), ClusterError> {
        self.begun_us = machine_micros();
        (0..self.cluster.nodes.len()).try_for_each(|node| self.cluster.start_node(node))
    }

    /// Seconds since the nodes were started.
    fn seconds(&self) -> usize {
        usize::try_from((machine_micros() - self.begun_us) / 1_000_000).unwrap_or(usize::MAX)
    }

    /// Ends the nodes and reads what they admitted. `more` may be admitted beside the group's rate.
    fn end(mut self, more: Rate) -> Result<Admitted, ClusterError> {
        self.cluster.nodes.iter_mut().filter_map(Option::take).for_each(Process::kill);
        let mut admitted = Vec::new();
        for node in 0..self.cluster.nodes.len() {
            admitted.extend(admissions(&self.cluster.node_log(node))?);
        }
        Ok(Admitted::new(Time(self.begun_us), Rate::whole(RATE) + more, Ru::whole(RATE), admitted))
    }
}

/// What a node was admitted in the group under load, by its log. The cost of its operations is known before.
fn admissions(log: &Path) -> Result<Vec<(Time, Ru)>, ClusterError> {
    let lives = log::read(log).map_err(io("read a node's log"))?;
    let operations = lives.iter().flat_map(|life| life.operations(GROUP));
    Ok(operations.map(|operation| (Time(operation.admitted_us), Ru(operation.estimate))).collect())
}

impl Admitted {
    /// The outcome of admissions in any order.
    fn new(begun: Time, rate: Rate, burst: Ru, mut admitted: Vec<(Time, Ru)>) -> Self {
        admitted.sort_unstable();
        let mut bound = Bound::new(begun, rate);
        admitted.iter().for_each(|(at, cost)| bound.admit(*at, *cost));
        // The clocks of two processes, and whole microseconds.
        let apart = Span(2 * (CLOCK_ERROR_US + 1));
        let allowed = burst + rate.over(apart);
        Self { series: Series::new(begun, &admitted), worst: bound.worst(), allowed }
    }
}
