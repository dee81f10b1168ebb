//! Metrics of alarms and of the webhooks that are told of them.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// One label: the kind of alarm.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// One label: the webhook, of which a configuration has a few.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabel {
    webhook: String,
}

/// Two labels: the webhook, and what came of a try.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeliveryLabel {
    webhook: String,
    outcome: &'static str,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlarmMetrics {
    open: Family<KindLabel, Gauge>,
    deliveries: Family<DeliveryLabel, Counter>,
    queued: Family<WebhookLabel, Gauge>,
    dropped: Family<WebhookLabel, Counter>,
}

impl AlarmMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("alarms_open", "Alarms that are open, by kind", self.open.clone());
        let help = "Tries to deliver messages of alarms, by webhook and what came of them";
        registry.register("webhook_deliveries", help, self.deliveries.clone());
        registry.register("webhook_queued", "Messages that wait for a webhook", self.queued.clone());
        let help = "Messages for a webhook that were dropped: they were too many, or too old";
        registry.register("webhook_dropped", help, self.dropped.clone());
    }

    /// Notes how many alarms of a kind are open.
    pub(crate) fn open(&self, kind: &'static str, count: usize) {
        self.open.get_or_create(&KindLabel { kind }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a try.
    pub(crate) fn tried(&self, webhook: &str, outcome: &'static str) {
        self.deliveries.get_or_create(&DeliveryLabel { webhook: webhook.to_owned(), outcome }).inc();
    }

    /// Notes how many messages wait.
    pub(crate) fn queued(&self, webhook: &str, count: usize) {
        let label = WebhookLabel { webhook: webhook.to_owned() };
        self.queued.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts messages that were dropped.
    pub(crate) fn dropped(&self, webhook: &str, count: usize) {
        let label = WebhookLabel { webhook: webhook.to_owned() };
        self.dropped.get_or_create(&label).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }
}
