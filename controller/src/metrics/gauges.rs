//! What groups with leases do at the moment.

use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tidegate_core::units::Span;

use super::{FloatGauge, GroupLabel, GroupSample, units};
use crate::limits::MAX_GROUP_SERIES;

/// Percentiles of waits, with their labels. Each is a series a group; between the usual wait and the longest that most
/// see, people look at no other.
const PERCENTILES: [(u64, &str); 2] = [(50, "0.5"), (99, "0.99")];

/// Two labels: the group, and the part of its waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabel {
    group: String,
    quantile: &'static str,
}

/// The gauges of all groups.
#[derive(Default)]
pub(super) struct GroupGauges {
    committed: Family<GroupLabel, FloatGauge>,
    pool: Family<GroupLabel, FloatGauge>,
    demand: Family<GroupLabel, FloatGauge>,
    limit: Family<GroupLabel, FloatGauge>,
    warm: Family<GroupLabel, FloatGauge>,
    wait: Family<WaitLabel, FloatGauge>,
    /// Held while a page shows what they have.
    page: Mutex<()>,
}

impl GroupGauges {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("group_committed_ru_per_second", "RU/s leased out", self.committed.clone());
        registry.register("group_pool_ru", "RU accrued and not given out", self.pool.clone());
        registry.register("group_demand_ru_per_second", "RU/s asked for", self.demand.clone());
        registry.register(
            "group_limit_ru_per_second",
            "Most RU/s of the group: its own limit or a lower one above it; absent where there is none",
            self.limit.clone(),
        );
        registry.register(
            "group_warm_up_ru_per_second",
            "Most RU/s of the group now, where its rate warms up; absent where it does not",
            self.warm.clone(),
        );
        registry.register(
            "group_wait_seconds",
            "Wait for admission that this part of the waits that ended in the last minute did not exceed",
            self.wait.clone(),
        );
    }

    /// Shows these groups, and no others, until what it returns is dropped.
    pub(super) fn show(&self, groups: &[GroupSample]) -> MutexGuard<'_, ()> {
        let page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let all = [&self.committed, &self.pool, &self.demand, &self.limit, &self.warm];
        all.iter().for_each(|family| family.clear());
        self.wait.clear();
        for sample in groups.iter().take(MAX_GROUP_SERIES) {
            let label = GroupLabel { group: sample.name.clone() };
            self.committed.get_or_create(&label).set(units(sample.committed.0));
            self.pool.get_or_create(&label).set(units(sample.pool.0));
            self.demand.get_or_create(&label).set(units(sample.demand.0));
            if let Some(limit) = sample.limit {
                self.limit.get_or_create(&label).set(units(limit.0));
            }
            if let Some(warm) = sample.warm {
                self.warm.get_or_create(&label).set(units(warm.0));
            }
            for (percent, quantile) in PERCENTILES {
                if let Some(Span(us)) = sample.waits.as_ref().and_then(|waits| waits.within(percent)) {
                    let label = WaitLabel { group: sample.name.clone(), quantile };
                    self.wait.get_or_create(&label).set(units(us.cast_signed()));
                }
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tidegate_core::units::{Rate, Ru};

    use super::super::Metrics;
    use super::*;

    /// As two servers that scrape the controller may ask at the same moment.
    #[test]
    fn pages_that_are_made_at_once_have_all_groups_each() {
        let metrics = Metrics::new();
        let sample = |number: usize| GroupSample {
            name: format!("g{number}"),
            committed: Rate::whole(7),
            pool: Ru::ZERO,
            demand: Rate::ZERO,
            limit: None,
            warm: None,
            waits: None,
        };
        let samples: Vec<GroupSample> = (0..20).map(sample).collect();
        let scrapes = || {
            for _ in 0..100 {
                let page = metrics.page(&samples).unwrap();
                let groups = page.matches("tidegate_group_committed_ru_per_second{group=").count();
                assert_eq!(groups, samples.len());
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(scrapes))));
    }
}
