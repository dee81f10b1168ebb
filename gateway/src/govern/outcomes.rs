//! Takes what is learnt of statements: their costs, for estimates; their counts and convictions, for the controller.

use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{Group, GroupName, Ru};
use tidegate_cost_model::{Estimator, Template};
use tidegate_proto::v1;
use tidegate_traces::{Context, TraceId, Traces};
use tokio::sync::mpsc;

use super::known::SqlText;
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
    /// Where spans go, if they are recorded.
    pub(super) traces: Option<Traces>,
}

impl Outcomes {
    /// What a statement of a group will probably cost.
    pub(super) fn estimate(&self, group: &GroupName, template: &Template) -> Ru {
        self.estimator.estimate(group, template.fingerprint(), template.kind())
    }

    /// The caller that a text names, where traces are recorded.
    pub(super) fn caller(&self, text: SqlText<'_>) -> Option<Context> {
        match text {
            SqlText::Whole(text) => self.traces.as_ref()?.caller_in(text),
            SqlText::Before(_, caller) => caller,
            SqlText::Unseen => None,
        }
    }

    /// Learns what a statement of a group cost.
    pub(super) fn learn(&self, group: &GroupName, template: &Template, cost: Ru) {
        self.estimator.observe(group, template.fingerprint(), template.kind(), cost);
    }

    /// Counts a statement that ended, of this trace if that is recorded.
    pub(super) fn record(&self, record: &Record<'_>, trace: Option<TraceId>) {
        match &record.outcome {
            Outcome::Throttled => self.metrics.throttled(record.waited, trace),
            Outcome::Ran { charged, elapsed, failed, estimated, .. } => {
                self.metrics.ran(charged, (record.waited, *elapsed), *failed, *estimated, trace);
            }
        }
        self.statements.record(record);
    }

    /// Counts one that was not admitted.
    pub(super) fn count_throttled(
        &self,
        group: &Group,
        template: &Arc<Template>,
        waited: Duration,
        trace: Option<TraceId>,
    ) {
        let (group, outcome) = (group.name(), Outcome::Throttled);
        self.record(&Record { group, template, outcome, waited }, trace);
    }

    /// Has a conviction recorded; does not wait.
    pub(super) fn convict(&self, conviction: v1::ConvictRequest) {
        if self.convictions.try_send(conviction).is_err() {
            tracing::warn!("too many runaways at once; one is not recorded");
        }
    }
}
