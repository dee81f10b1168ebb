//! What the death of the controller that leads did to nodes: when another one granted again, as a node of the demo's own
//! saw it, and how long no operation of any node was admitted, by their logs.

use std::time::Duration;

use serde::Serialize;
use tidegate_client::{Client, Ru};
use tidegate_core::units::Span;
use tidegate_proto::v1;

use super::child::WITHIN;
use super::controllers::Controllers;
use super::evidence::Evidence;
use crate::admin::Admin;
use crate::clock::monotonic_us;
use crate::error::CliError;

/// The node that looks out for grants.
const NAME: &str = "witness";
/// Its group.
const GROUP: &str = "witness";
/// It asks for next to nothing and gives that back, so that it has a lease to renew.
const ASKED: Ru = Ru(1);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Takeover {
    pub(crate) killed: String,
    pub(crate) leads: String,
    /// On the machine's clock.
    #[serde(skip)]
    pub(crate) killed_at_us: u64,
    /// From the kill until the first grant of the next controller.
    pub(crate) granted_after_us: u64,
    /// The longest time between two admissions in any group, of all nodes together, from the kill on.
    pub(crate) longest_without_admission_us: u64,
    /// The same before the kill.
    pub(crate) longest_before_us: u64,
}

/// A node that looks out for grants.
pub(crate) struct Witness(Client);

impl Witness {
    /// Connects it, to a group of its own: one without a limit, whose leases are as long as those of the others, since the
    /// longest one counts for all of them after a takeover.
    pub(crate) async fn new(admin: &Admin, endpoint: &str, ttl: Span) -> Result<Self, CliError> {
        let group = v1::Group {
            name: GROUP.to_owned(),
            ru_per_sec: "unlimited".to_owned(),
            ttl_us: ttl.0,
            ..v1::Group::default()
        };
        let request = v1::CreateGroupRequest { group: Some(group), if_not_exists: false };
        admin.calls().create_group(request).await.map_err(admin.failed())?;
        Ok(Self(Client::builder(crate::endpoints::all(endpoint), NAME).connect().await?))
    }

    /// Kills the controller that leads, waits for grants of the next one, and starts the killed one again. Returns what
    /// happened, and the one that leads.
    pub(crate) async fn watch(
        &self,
        controllers: &mut Controllers,
        leader: &Admin,
    ) -> Result<(Takeover, Admin), CliError> {
        self.granted(0).await?;
        let before = self.0.link().epoch;
        let killed_at_us = monotonic_us();
        controllers.kill(leader.endpoint()).await?;
        self.granted(before).await?;
        let granted_after_us = monotonic_us().saturating_sub(killed_at_us);
        let admin = controllers.leader().await?;
        controllers.restart().await?;
        let takeover = Takeover {
            killed: controllers.name_of(leader.endpoint()),
            leads: controllers.name_of(admin.endpoint()),
            killed_at_us,
            granted_after_us,
            longest_without_admission_us: 0,
            longest_before_us: 0,
        };
        Ok((takeover, admin))
    }

    /// Waits for a grant under a leadership after this one.
    async fn granted(&self, epoch: u64) -> Result<(), CliError> {
        let group = self.0.group(GROUP).await?;
        let seen = async {
            let mut grants = None;
            loop {
                if let Ok(permit) = group.try_acquire(ASKED) {
                    permit.cancel();
                }
                if self.0.link().epoch > epoch {
                    let granted = self.0.counts().grants;
                    if granted > *grants.get_or_insert(granted) {
                        return;
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let late = || CliError::Unavailable(format!("no controller granted anything within {WITHIN:?}"));
        tokio::time::timeout(WITHIN, seen).await.map_err(|_| late())
    }

    /// Ends it.
    pub(crate) async fn end(self) {
        // All that it took it has given back.
        let _ = self.0.shutdown().await;
    }
}

impl Takeover {
    /// With the times in which nothing was admitted.
    pub(crate) fn with(mut self, evidence: &Evidence) -> Self {
        let mut admitted = evidence.admitted().to_vec();
        admitted.sort_unstable();
        let from = admitted.partition_point(|at| *at <= self.killed_at_us);
        let longest = |times: &[u64]| {
            let gaps = times.windows(2).filter_map(|pair| pair.last()?.checked_sub(*pair.first()?));
            gaps.max().unwrap_or_default()
        };
        // The last one before the kill begins the first gap after it.
        let (before, after) = (
            admitted.get(..from).unwrap_or_default(),
            admitted.get(from.saturating_sub(1)..).unwrap_or_default(),
        );
        (self.longest_before_us, self.longest_without_admission_us) = (longest(before), longest(after));
        self
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        format!(
            "\nTakeover: {} led and was killed with SIGKILL; {} granted {} ms later. From then on nodes were never \
             without an admission for longer than {} ms ({} ms before)",
            self.killed,
            self.leads,
            self.granted_after_us / 1_000,
            self.longest_without_admission_us / 1_000,
            self.longest_before_us / 1_000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_that_the_kill_fell_into_counts_for_it() {
        let mut evidence = Evidence::default();
        evidence
            .add("A 10 shop 1 0\nA 30 shop 1 0\nA 90 shop 1 0\nS 95 shop 0 1 00000000000000ff:1\n")
            .unwrap();
        evidence.add("A 100 batch 1 0\n").unwrap();
        let takeover = Takeover {
            killed: "c1".to_owned(),
            leads: "c2".to_owned(),
            killed_at_us: 40,
            granted_after_us: 7,
            longest_without_admission_us: 0,
            longest_before_us: 0,
        };
        let judged = takeover.with(&evidence);
        assert_eq!((judged.longest_before_us, judged.longest_without_admission_us), (20, 60));
    }
}
