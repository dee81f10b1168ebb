//! Prometheus metrics of the controller; docs/metrics.md lists every name.
//!
//! The service counts where each result is known once. Base units (seconds, RU); counters end in `_total`. Series per
//! group are bounded: the first [`MAX_GROUP_SERIES`] groups that are charged have their own, the rest share the label
//! `_other`, which is no valid group name.

mod alarms;
mod charges;
mod gauges;
mod providers;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::exponential_buckets;
use prometheus_client::registry::Registry;
use tidegate_core::units::{MICRO, Rate, Ru};
use tidegate_core::waited::Waited;
use tidegate_listener::{Process, Surface, Tally, TlsMetrics};
use tidegate_traces::{Seconds, TraceId, TraceMetrics};

use crate::limits::MAX_GROUP_SERIES;

pub use charges::Charges;

use alarms::AlarmMetrics;
use charges::GroupCounters;
use gauges::GroupGauges;
use providers::ProviderMetrics;

/// Label of the groups without series of their own.
const OTHER: &str = "_other";

/// Outcomes of a grant entry.
const STATUSES: [&str; 5] = ["leased", "unlimited", "unknown_group", "recovering", "refused"];

type FloatGauge = Gauge<f64, AtomicU64>;

/// One label: the group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct GroupLabel {
    group: String,
}

/// One label: the version of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BuildLabel {
    version: &'static str,
}

/// One label: the outcome of a grant entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StatusLabel {
    status: &'static str,
}

/// One label: the reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    reason: &'static str,
}

/// One label: the action taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ActionLabel {
    action: &'static str,
}

/// Two labels: the listener, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TurnedAwayLabel {
    surface: &'static str,
    reason: &'static str,
}

/// Two labels: the listener, and the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabel {
    surface: &'static str,
    outcome: &'static str,
}

/// All metrics.
#[derive(Default)]
pub struct Metrics {
    registry: Registry,
    series: Mutex<BTreeSet<String>>,
    /// Renew messages answered.
    pub renewals: Counter,
    /// Entries that were not considered, because their turn came too late for their nodes.
    pub shed: Counter,
    grants: Family<StatusLabel, Counter>,
    /// The counters of `grants`, looked up once.
    statuses: Vec<(&'static str, Counter)>,
    /// Entries and reports that were refused, by reason.
    pub refused: Family<ReasonLabel, Counter>,
    /// Orders to lower that were sent.
    pub lowers: Counter,
    /// Orders to lower that a slow node could not take.
    pub lowers_dropped: Counter,
    /// Leases that ended without a goodbye.
    pub expired: Counter,
    counters: GroupCounters,
    gauges: GroupGauges,
    build: Family<BuildLabel, Gauge>,
    process: Process,
    overflow: Counter,
    /// Nodes connected.
    pub clients: Gauge,
    /// Watch streams open.
    pub watchers: Gauge,
    /// Watch streams dropped because they read too slowly.
    pub watchers_dropped: Counter,
    /// Groups defined.
    pub groups: Gauge,
    /// Bindings defined.
    pub bindings: Gauge,
    /// Whether the controller recovers from an unclean stop.
    pub recovering: Gauge,
    /// 1 while the controller is silent towards nodes, since there may be another controller.
    pub silent: Gauge,
    /// Reports that were counted apart.
    pub apart: Counter,
    /// Leadership epoch.
    pub epoch: Gauge,
    /// 1 unless this is a standby.
    pub leads: Gauge,
    /// Times that a node had seen a controller that the store does not know.
    pub set_back: Counter,
    /// Controllers on copies of the store that ran at the same time.
    pub twins: Counter,
    commit_seconds: Option<Seconds>,
    /// Commits that failed.
    pub commit_failures: Counter,
    /// Definition changes made.
    pub changes: Counter,
    turned_away: Family<TurnedAwayLabel, Counter>,
    requests: Family<RequestLabel, Counter>,
    /// TLS of the listeners.
    pub(crate) tls: TlsMetrics,
    /// Spans of traces.
    pub(crate) traces: TraceMetrics,
    /// Alarms and webhooks.
    pub(crate) alarms: AlarmMetrics,
    /// Providers of identity.
    pub(crate) providers: ProviderMetrics,
    convictions: Family<ActionLabel, Counter>,
    /// Statements on the watch list.
    pub watches: Gauge,
    /// Watches that made room for others.
    pub watches_evicted: Counter,
    /// Records of runaways that made room for others.
    pub runaways_evicted: Counter,
    /// Rows of statement statistics.
    pub statements: Gauge,
    /// Rows of statement statistics that made room for others.
    pub statements_evicted: Counter,
}

/// A group's state in the grant engine.
#[derive(Clone, Debug)]
pub struct GroupSample {
    /// Its name.
    pub name: String,
    /// RU/s leased.
    pub committed: Rate,
    /// RU in the pool.
    pub pool: Ru,
    /// RU/s wanted.
    pub demand: Rate,
    /// Limit in RU/s; `None` is no limit.
    pub limit: Option<Rate>,
    /// RU/s that its nodes together may use now, if its rate warms up.
    pub warm: Option<Rate>,
    /// Waits that ended within the last minute.
    pub waits: Option<Waited>,
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Self {
        let mut metrics = Self { registry: Registry::with_prefix("tidegate"), ..Self::default() };
        let counter = |status| (status, metrics.grants.get_or_create(&StatusLabel { status }).clone());
        metrics.statuses = STATUSES.map(counter).into();
        // Beside a sync of the disk, what exemplars take is nothing.
        let seconds = Seconds::new(exponential_buckets(0.0005, 2.0, 14), true);
        metrics.commit_seconds = Some(seconds.clone());
        let registry = &mut metrics.registry;
        registry.register("renewals", "Renew messages answered", metrics.renewals.clone());
        let help =
            "Entries of Renew messages not considered, because their turn came too late for their nodes";
        registry.register("renewals_shed", help, metrics.shed.clone());
        registry.register("grants", "Grant entries sent, by status", metrics.grants.clone());
        registry.register("refused", "Entries and reports not accepted, by reason", metrics.refused.clone());
        registry.register("lowers", "Lower orders pushed to nodes", metrics.lowers.clone());
        registry.register(
            "lowers_dropped",
            "Lower orders a slow node could not take",
            metrics.lowers_dropped.clone(),
        );
        registry.register("leases_expired", "Leases that ended without a goodbye", metrics.expired.clone());
        metrics.counters.register(registry);
        registry.register(
            "group_series_overflow",
            "Charges counted under group _other",
            metrics.overflow.clone(),
        );
        metrics.gauges.register(registry);
        registry.register("build_info", "1, with the version of the controller", metrics.build.clone());
        metrics.build.get_or_create(&BuildLabel { version: env!("CARGO_PKG_VERSION") }).set(1);
        metrics.register_controller(&seconds);
        metrics.register_statements();
        metrics
    }

    fn register_controller(&mut self, commit_seconds: &Seconds) {
        let registry = &mut self.registry;
        registry.register("clients", "Nodes connected", self.clients.clone());
        registry.register("watchers", "Watch streams open", self.watchers.clone());
        registry.register(
            "watchers_dropped",
            "Watch streams ended for reading slowly",
            self.watchers_dropped.clone(),
        );
        registry.register("groups", "Groups defined", self.groups.clone());
        registry.register("bindings", "Bindings defined", self.bindings.clone());
        registry.register("recovering", "1 while recovering from an unclean stop", self.recovering.clone());
        registry.register(
            "silent",
            "1 while nothing is granted because another controller may be",
            self.silent.clone(),
        );
        registry.register("epoch", "Leadership epoch", self.epoch.clone());
        registry.register("leads", "1 for the controller that leads, 0 for a standby", self.leads.clone());
        registry.register(
            "set_back",
            "Times nodes had seen a controller that the store does not know: it is a copy or was set back",
            self.set_back.clone(),
        );
        registry.register(
            "twins",
            "Controllers that nodes showed to run on copies of the store at the same time as this one",
            self.twins.clone(),
        );
        commit_seconds.register(registry, "store_commit_seconds", "Time of a store commit");
        registry.register("store_commit_failures", "Store commits that failed", self.commit_failures.clone());
        registry.register("changes", "Definition changes made", self.changes.clone());
        registry.register(
            "turned_away",
            "Connections and requests that were closed or refused before they were served, by listener and reason",
            self.turned_away.clone(),
        );
        self.tls.register(registry);
        self.providers.register(registry);
        self.alarms.register(registry);
        self.traces.register(registry);
        registry.register(
            "requests",
            "Requests, by listener and how they were answered",
            self.requests.clone(),
        );
    }

    fn register_statements(&mut self) {
        let registry = &mut self.registry;
        registry.register("convictions", "Runaways convicted, by action", self.convictions.clone());
        registry.register("statement_watches", "Statements watched", self.watches.clone());
        registry.register(
            "statement_watches_evicted",
            "Watches that made room for others",
            self.watches_evicted.clone(),
        );
        registry.register(
            "runaways_evicted",
            "Records of runaways that made room for others",
            self.runaways_evicted.clone(),
        );
        registry.register(
            "reports_apart",
            "Reports of more than any process can have used, counted apart",
            self.apart.clone(),
        );
        registry.register("statements", "Rows of statement statistics", self.statements.clone());
        registry.register(
            "statements_evicted",
            "Rows of statement statistics that made room for others, here and at gateways",
            self.statements_evicted.clone(),
        );
    }

    /// Counts a conviction.
    pub fn convicted(&self, action: &'static str) {
        self.convictions.get_or_create(&ActionLabel { action }).inc();
    }

    /// Counts a grant entry.
    pub fn granted(&self, status: &'static str) {
        if let Some((_, counter)) = self.statuses.iter().find(|(known, _)| *known == status) {
            counter.inc();
        }
    }

    /// Counts an entry or report that was refused.
    pub fn refuse(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// The counters for the charges of a group. Finding them costs more than counting, so callers keep them.
    pub fn charges(&self, group: &str) -> Charges {
        let own = {
            let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
            series.contains(group) || (series.len() < MAX_GROUP_SERIES && series.insert(group.to_owned()))
        };
        let overflow = (!own).then(|| self.overflow.clone());
        let group = if own { group } else { OTHER }.to_owned();
        self.counters.of(&GroupLabel { group }, overflow)
    }

    /// Counts the time of a commit, of this trace if that is recorded.
    pub fn committed(&self, seconds: f64, trace: Option<TraceId>) {
        if let Some(times) = &self.commit_seconds {
            times.observe(seconds, trace);
        }
    }

    /// The page in Prometheus' text format, with these groups' states.
    pub fn page(&self, groups: &[GroupSample]) -> Result<String, fmt::Error> {
        // Until the page is made: another one has other groups, or clears these.
        let _shown = self.gauges.show(groups);
        let mut page = String::new();
        encode_registry(&mut page, &self.registry)?;
        self.process.write(&mut page)?;
        encode_eof(&mut page)?;
        Ok(page)
    }
}

/// Micro-units as units, for display.
#[expect(clippy::cast_precision_loss, reason = "a metric is an approximation; nothing is computed from it")]
pub(crate) fn units(micro: i64) -> f64 {
    micro as f64 / MICRO as f64
}

impl Tally for Metrics {
    fn turned_away(&self, surface: Surface, reason: &'static str) {
        self.turned_away.get_or_create(&TurnedAwayLabel { surface: surface.name(), reason }).inc();
    }

    fn requested(&self, surface: Surface, outcome: &'static str) {
        self.requests.get_or_create(&RequestLabel { surface: surface.name(), outcome }).inc();
    }
}

#[cfg(test)]
mod page_tests;

#[cfg(test)]
mod tests {
    use tidegate_core::units::{RuTotal, Span};
    use tidegate_core::usage::{Parts, Total};

    use super::*;

    #[test]
    fn series_per_group_are_bounded() {
        let metrics = Metrics::new();
        let charge = |micro: u128| Total {
            charged: Parts { flat: RuTotal(micro), ..Parts::default() },
            operations: 2,
            throttled: 1,
            waited_us: 250_000,
            ..Total::default()
        };
        for group in 0..MAX_GROUP_SERIES + 5 {
            metrics.charges(&format!("g{group}")).add(&charge(1_000_000));
        }
        metrics.charges("g0").add(&charge(500_000));
        let sample = |name: &str| GroupSample {
            name: name.to_owned(),
            committed: Rate::whole(7),
            pool: Ru::ZERO,
            demand: Rate::ZERO,
            limit: (name == "old").then(|| Rate::whole(9)),
            warm: (name == "old").then(|| Rate::whole(4)),
            waits: (name == "old").then(|| {
                let mut waited = Waited::default();
                (0..100).for_each(|_| waited.count(Span::millis(300), false));
                waited
            }),
        };
        let page = metrics.page(&[sample("old")]).unwrap();
        assert!(page.contains("tidegate_ru_charged_total{group=\"g0\"} 1.5"), "{page}");
        assert!(page.contains("tidegate_group_warm_up_ru_per_second{group=\"old\"} 4.0"), "{page}");
        assert!(page.contains("tidegate_ru_charged_total{group=\"_other\"} 5.0"));
        assert!(page.contains("tidegate_group_series_overflow_total 5"));
        assert!(page.contains("tidegate_operations_total{group=\"g0\"} 4\n"), "{page}");
        assert!(page.contains("tidegate_throttled_total{group=\"g0\"} 2\n"));
        assert!(page.contains("tidegate_wait_seconds_total{group=\"g0\"} 0.5\n"));
        assert!(page.contains("tidegate_group_limit_ru_per_second{group=\"old\"} 9.0"));
        assert!(
            page.contains(&format!("tidegate_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION")))
        );
        assert!(page.contains("\nprocess_cpu_seconds_total ") && page.ends_with("# EOF\n"));
        assert!(page.contains("tidegate_group_committed_ru_per_second{group=\"old\"} 7.0"));
        assert!(
            page.contains("tidegate_group_wait_seconds{group=\"old\",quantile=\"0.99\"} 0.32768\n"),
            "{page}"
        );
        assert!(!metrics.page(&[sample("new")]).unwrap().contains("\"old\""));
    }

    /// Those of a group, a kind, or anything else that has to be there first are on the page with it.
    #[test]
    fn every_documented_metric_without_labels_is_on_the_page() {
        let documented = include_str!("../../docs/metrics.md");
        let (_, of_controllers) = documented.split_once("## Controller").unwrap();
        let (of_controllers, _) = of_controllers.split_once("## Gateway").unwrap();
        let page = Metrics::new().page(&[]).unwrap();
        let named =
            of_controllers.lines().filter_map(|line| line.strip_prefix("| `tidegate_")?.split_once("` | "));
        let mut plain = 0;
        for (name, rest) in named.filter(|(name, _)| !name.contains('{')) {
            let suffix = if rest.starts_with("histogram") { "_count" } else { "" };
            assert!(
                page.contains(&format!("\ntidegate_{name}{suffix} ")),
                "tidegate_{name} is not on the page"
            );
            plain += 1;
        }
        assert!(plain > 20, "{plain}");
    }

    #[test]
    fn every_metric_is_documented() {
        let documented = include_str!("../../docs/metrics.md");
        let page = Metrics::new().page(&[]).unwrap();
        for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let name = line.split(' ').next().unwrap_or_default();
            assert!(documented.contains(&format!("`{name}")), "{name} is not in docs/metrics.md");
        }
    }
}
