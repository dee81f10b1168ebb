//! Chaos with real processes: a controller and nodes under load are killed, stopped, cut off and restarted by a seed
//! while definitions change; then the nodes' own logs are judged against the controller's ledger and the bound.
//!
//! Nothing is judged by how long it takes: only what was admitted, charged, acknowledged and found.

pub mod cap;
pub mod cluster;
pub mod console;
pub mod definitions;
pub mod fault;
pub mod judge;
pub mod links;
pub mod outcome;
pub mod paced;
pub mod progress;
pub mod run;
pub mod scene;
pub mod tally;
pub mod things;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::units::Span;

use super::load::{Kind, Work};

/// Nodes of a run.
pub const NODES: usize = 4;
/// Nodes that keep no journal.
pub const WITHOUT_JOURNAL: [usize; 1] = [NODES - 1];
/// Lease length of every group, as text and in microseconds.
pub const GROUP_TTL: &str = "800ms";
/// The same in microseconds.
pub const TTL_US: u64 = 800_000;
/// How long a lease may last at the controller: with 0.1 % drift and the margin of 50 ms.
pub const LEASE_US: u64 = TTL_US + TTL_US / 1_000 + 1 + 50_000;
/// Renewal period of every group: the default for that lease length.
pub const GROUP_RENEW: &str = "160ms";
/// The group whose rate is altered during the run.
pub const MOVING: &str = "moving";
/// Between these it moves, in RU/s; it begins at the second.
pub const MOVING_RATES: (i64, i64) = (50, 400);

/// A group under load, or above such groups.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// Its name.
    pub name: &'static str,
    /// Its rate in RU/s, where it is fixed.
    pub rate: i64,
    /// Depth of its bucket in RU.
    pub burst: i64,
    /// How it is made, beyond name, rate, burst and lease length.
    pub settings: &'static [&'static str],
    /// Groups whose load counts: itself, or its children.
    pub counts: &'static [&'static str],
    /// The operations of its nodes.
    pub kind: Kind,
    /// How it paces them, if it does.
    pub pace: Option<Pace>,
}

/// How a group paces operations: none saves up tokens for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At its rate.
    Even,
    /// At its rate divided by the factor when cold, and at its rate after this time of full use.
    WarmUp(Span, u32),
}

/// The groups. The buckets hold less than the rate gives in one lease length, so that a lease too many shows as an
/// excess over the bound. `left` may borrow what `tree` has left, so its own cap is that of `tree`.
pub const LOADED: [Loaded; 8] = [
    Loaded { name: "load", rate: 1_000, burst: 200, counts: &["load"], ..BUCKET },
    Loaded { name: "dear", rate: 300, burst: 60, counts: &["dear"], kind: Kind::Wrong, ..BUCKET },
    Loaded { name: MOVING, rate: MOVING_RATES.1, burst: 80, counts: &[MOVING], ..BUCKET },
    Loaded { name: "tree", rate: 600, burst: 120, counts: &["left", "right"], ..BUCKET },
    Loaded {
        name: "left",
        rate: 200,
        burst: 120,
        settings: &["--parent", "tree", "--burstable", "unlimited"],
        ..BUCKET
    },
    Loaded {
        name: "right",
        rate: 300,
        burst: 60,
        settings: &["--parent", "tree"],
        counts: &["right"],
        ..BUCKET
    },
    Loaded {
        name: "paced",
        rate: 400,
        burst: 3,
        settings: &["--policy", "paced"],
        counts: &["paced"],
        kind: Kind::Steady,
        pace: Some(Pace::Even),
    },
    Loaded {
        name: "cold",
        rate: 400,
        burst: 3,
        settings: &["--policy", "warm_up(2s, 4)"],
        counts: &["cold"],
        kind: Kind::Steady,
        pace: Some(Pace::WarmUp(Span::secs(2), 4)),
    },
];

/// A group with a token bucket, and no load.
const BUCKET: Loaded =
    Loaded { name: "", rate: 0, burst: 0, settings: &[], counts: &[], kind: Kind::Mixed, pace: None };

/// The groups that nodes charge.
pub fn charged() -> impl Iterator<Item = &'static Loaded> {
    LOADED.iter().filter(|loaded| loaded.name != "tree")
}

/// What each node does.
pub fn works() -> Vec<Work> {
    let work = |loaded: &Loaded| Work {
        group: loaded.name.to_owned(),
        burst: loaded.burst.unsigned_abs(),
        kind: loaded.kind,
    };
    charged().map(work).collect()
}

/// How a run goes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where all files are kept.
    pub folder: PathBuf,
    /// The `load-node` binary; `tidegate` stands beside it.
    pub load_node: PathBuf,
    /// The seed of all faults.
    pub seed: u64,
    /// Three controllers with their state in etcd, instead of one.
    pub cluster: bool,
    /// With a cluster: answers to nodes wait for beats.
    pub strict: bool,
    /// The run ends with this many `kill -9`; with a cluster, with so many faults.
    pub kills: u64,
    /// Or after this time.
    pub limit: Duration,
    /// Whether progress is printed on the standard error.
    pub progress: bool,
}
