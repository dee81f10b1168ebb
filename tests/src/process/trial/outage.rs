//! A controller that is killed under load and comes back seconds later, with a group that has a fallback and another whose
//! leases are long.

use std::time::Duration;

use tidegate_core::units::{Rate, Ru};
use tidegate_proto::v1::Group;

use super::{Admitted, NODES, Setting, Trial};
use crate::process::error::ClusterError;

/// RU/s of each node without a lease.
pub const FALLBACK: i64 = 100;
/// Before the kill; long enough that all leases are at their share.
const BEFORE: Duration = Duration::from_secs(10);
/// The controller is away for so long.
const AWAY: Duration = Duration::from_secs(5);
/// After its return: longer than recovery was when it waited for the longest lease of all groups.
const AFTER: Duration = Duration::from_secs(35);
/// Lease length of the other group, in microseconds.
const LONG_TTL_US: u64 = 30_000_000;

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// What was admitted.
    pub admitted: Admitted,
    /// Seconds from the beginning at which the controller died, and at which it was back.
    pub died: usize,
    /// The same of its return.
    pub back: usize,
    /// The worst second from the kill on.
    pub least: Ru,
    /// Seconds from its return until nine tenths of the rate are used.
    pub recovered: Option<usize>,
}

/// Lets the load run over an outage.
///
/// # Errors
/// A process does not do what it should.
pub async fn run(setting: &Setting) -> Result<Outcome, ClusterError> {
    let mut trial =
        Trial::new(setting, NODES, Group { fallback: FALLBACK.to_string(), ..super::definition() }).await?;
    let long = Group {
        name: "long".to_owned(),
        ru_per_sec: "1000".to_owned(),
        ttl_us: LONG_TTL_US,
        ..Group::default()
    };
    trial.create(long).await?;
    trial.begin()?;
    tokio::time::sleep(BEFORE).await;
    let died = trial.seconds();
    trial.cluster.kill_controller();
    tokio::time::sleep(AWAY).await;
    trial.cluster.start_controller().await?;
    let back = trial.seconds();
    tokio::time::sleep(AFTER).await;
    let nodes = i64::try_from(NODES).unwrap_or(i64::MAX);
    let admitted = trial.end(Rate::whole(FALLBACK * nodes))?;
    let series = &admitted.series;
    let least = series.least(died, series.len());
    let recovered = (back..series.len())
        .find(|second| series.least(*second, second + 1) >= Ru::whole(super::RATE * 9 / 10));
    let recovered = recovered.map(|second| second - back);
    Ok(Outcome { died, back, least, recovered, admitted })
}
