//! The counters of one group.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tidegate_core::units::{MICRO, RuTotal};
use tidegate_core::usage::Total;

use super::GroupLabel;

/// The counters of all groups.
#[derive(Default)]
pub(super) struct GroupCounters {
    charged: Family<GroupLabel, Counter<f64, AtomicU64>>,
    operations: Family<GroupLabel, Counter>,
    throttled: Family<GroupLabel, Counter>,
    waited: Family<GroupLabel, Counter<f64, AtomicU64>>,
}

impl GroupCounters {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("ru_charged", "RU charged, by group", self.charged.clone());
        registry.register("operations", "Operations admitted and charged, by group", self.operations.clone());
        registry.register("throttled", "Operations not admitted, by group", self.throttled.clone());
        registry.register(
            "wait_seconds",
            "Time that operations waited for admission, by group",
            self.waited.clone(),
        );
    }

    pub(super) fn of(&self, label: &GroupLabel, overflow: Option<Counter>) -> Charges {
        Charges {
            sum: self.charged.get_or_create(label).clone(),
            operations: self.operations.get_or_create(label).clone(),
            throttled: self.throttled.get_or_create(label).clone(),
            waited: self.waited.get_or_create(label).clone(),
            overflow,
        }
    }
}

/// Counts the charges of one group.
#[derive(Clone, Debug)]
pub struct Charges {
    sum: Counter<f64, AtomicU64>,
    operations: Counter,
    throttled: Counter,
    waited: Counter<f64, AtomicU64>,
    /// The shared counter, for a group without a series of its own.
    overflow: Option<Counter>,
}

impl Charges {
    /// Counts what was reported since the last report.
    pub fn add(&self, more: &Total) {
        self.sum.inc_by(float_total(more.ru()));
        let whole = |count: u128| u64::try_from(count).unwrap_or(u64::MAX);
        self.operations.inc_by(whole(more.operations));
        self.throttled.inc_by(whole(more.throttled));
        self.waited.inc_by(seconds(more.waited_us));
        if let Some(overflow) = &self.overflow {
            overflow.inc();
        }
    }
}

/// A total in RU, for display.
#[expect(clippy::cast_precision_loss, reason = "a metric is an approximation; nothing is computed from it")]
fn float_total(total: RuTotal) -> f64 {
    total.0 as f64 / MICRO as f64
}

/// Microseconds as seconds, for display.
#[expect(clippy::cast_precision_loss, reason = "a metric is an approximation; nothing is computed from it")]
fn seconds(us: u128) -> f64 {
    us as f64 / 1e6
}
