//! Nodes far from their controller: each byte takes half of the round trip each way.

use std::time::Duration;

use tidegate_core::units::{Rate, Ru};
use tidegate_proto::v1::Group;

use super::{Admitted, NODES, RATE, Setting, Trial};
use crate::process::error::ClusterError;

/// Seconds until the first leases are there and their rates have settled, at round trips of up to two seconds.
const SETTLES: usize = 10;

/// How far the nodes are.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// The time to the controller and back.
    pub round_trip: Duration,
    /// Lease length of the group.
    pub lease: Duration,
    /// How long the load runs, the time until it has settled included.
    pub lasts: Duration,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// What was admitted.
    pub admitted: Admitted,
    /// The mean of a second once it has settled.
    pub mean: Ru,
}

impl Outcome {
    /// The share of the rate that was used, in thousandths.
    pub fn used(&self) -> i64 {
        self.mean.0 / (RATE * 1_000)
    }
}

/// Lets the load run at a distance.
///
/// # Errors
/// A process does not do what it should.
pub async fn run(setting: &Setting, distance: Distance) -> Result<Outcome, ClusterError> {
    let ttl_us = u64::try_from(distance.lease.as_micros()).unwrap_or(u64::MAX);
    let mut trial = Trial::new(setting, NODES, Group { ttl_us, ..super::definition() }).await?;
    for link in &trial.cluster.links {
        link.set(|weather| {
            (weather.up.delay, weather.down.delay) = (distance.round_trip / 2, distance.round_trip / 2)
        });
    }
    trial.begin()?;
    tokio::time::sleep(distance.lasts).await;
    let admitted = trial.end(Rate::ZERO)?;
    let mean = admitted.series.mean(SETTLES, admitted.series.len());
    Ok(Outcome { admitted, mean })
}
