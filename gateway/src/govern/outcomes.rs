//! Takes what is learnt of statements: their costs, for estimates; their counts and convictions, for the controller.

use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{Group, GroupName, Ru};
use tidegate_cost_model::{Estimator, Template};
use tidegate_proto::v1;
use tokio::sync::mpsc;

use super::statements::{Outcome, Record, Statements};
use crate::metrics::Metrics;

/// Where outcomes go.
pub(super) struct Outcomes {
    /// The gateway's.
    pub(super) name: String,
    pub(super) estimator: Estimator,
    pub(super) statements: Arc<Statements>,
    pub(super) convictions: mpsc::Sender<v1::ConvictRequest>,
    pub(super) metrics: Arc<Metrics>,
}

impl Outcomes {
    /// What a statement of a group will probably cost.
    pub(super) fn estimate(&self, group: &GroupName, template: &Template) -> Ru {
        self.estimator.estimate(group, template.fingerprint(), template.kind())
    }

    /// Learns what a statement of a group cost.
    pub(super) fn learn(&self, group: &GroupName, template: &Template, cost: Ru) {
        self.estimator.observe(group, template.fingerprint(), template.kind(), cost);
    }

    /// Counts a statement that ended.
    pub(super) fn record(&self, record: &Record<'_>) {
        match &record.outcome {
            Outcome::Throttled => self.metrics.throttled(record.waited),
            Outcome::Ran { charged, elapsed, failed, estimated, .. } => {
                self.metrics.ran(charged, record.waited, *elapsed, *failed, *estimated);
            }
        }
        self.statements.record(record);
    }

    /// Counts one that was not admitted.
    pub(super) fn count_throttled(&self, group: &Group, template: &Arc<Template>, waited: Duration) {
        let (group, outcome) = (group.name(), Outcome::Throttled);
        self.record(&Record { group, template, outcome, waited });
    }

    /// Has a conviction recorded; does not wait.
    pub(super) fn convict(&self, conviction: v1::ConvictRequest) {
        if self.convictions.try_send(conviction).is_err() {
            tracing::warn!("too many runaways at once; one is not recorded");
        }
    }
}
