//! Prometheus metrics of the gateway; docs/metrics.md lists every name.
//!
//! The controller shows what groups used. This page shows what only the gateway knows: its sessions, how long
//! statements waited and took, and what it could not do.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::exponential_buckets;
use prometheus_client::registry::Registry;
use tidegate_client::{Ru, RuParts};
use tidegate_listener::{Process, Surface, Tally, TlsMetrics};
use tidegate_traces::{Seconds, TraceId, TraceMetrics};

use crate::govern::Unowned;

type Amount = Counter<f64, AtomicU64>;

/// How a statement ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// The version of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// What a charge is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Resource {
    resource: &'static str,
}

/// What was done about a runaway.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Conviction {
    action: &'static str,
}

/// Why a connection to the page, or a request of it, was ended before it was served.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    succeeded: Counter,
    failed: Counter,
    throttled: Counter,
    estimated: Counter,
    cpu: Amount,
    read: Amount,
    write: Amount,
    network: Amount,
    unowned: Counter,
    assigned: Counter,
    waited: Seconds,
    took: Seconds,
    convictions: Family<Conviction, Counter>,
    /// Connections that there was no place for.
    pub(crate) turned_away: Counter,
    /// Connections to a database that failed.
    pub(crate) upstream_failures: Counter,
    sessions: Gauge,
    connected: Gauge,
    /// Spans of traces.
    pub(crate) traces: TraceMetrics,
    /// Of the certificates of all listeners.
    pub(crate) tls: TlsMetrics,
    page_requests: Family<Outcome, Counter>,
    page_turned_away: Family<Reason, Counter>,
    process: Process,
}

/// Figures that are read when the page is requested.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Sessions open.
    pub(crate) sessions: usize,
    /// Whether a controller is there.
    pub(crate) connected: bool,
}

impl Metrics {
    /// All at zero, for a gateway with so many places; times have exemplars where traces are recorded.
    pub(crate) fn new(max_sessions: usize, traced: bool) -> Self {
        let statements = Family::<Outcome, Counter>::default();
        let charged = Family::<Resource, Amount>::default();
        let ended = |outcome| statements.get_or_create(&Outcome { outcome }).clone();
        let used = |resource| charged.get_or_create(&Resource { resource }).clone();
        let seconds = || Seconds::new(exponential_buckets(0.000_1, 4.0, 10), traced);
        let mut metrics = Self {
            succeeded: ended("ok"),
            failed: ended("failed"),
            throttled: ended("throttled"),
            cpu: used("cpu"),
            read: used("read"),
            write: used("write"),
            network: used("network"),
            estimated: Counter::default(),
            unowned: Counter::default(),
            assigned: Counter::default(),
            waited: seconds(),
            took: seconds(),
            convictions: Family::default(),
            turned_away: Counter::default(),
            upstream_failures: Counter::default(),
            sessions: Gauge::default(),
            connected: Gauge::default(),
            traces: TraceMetrics::default(),
            tls: TlsMetrics::default(),
            page_requests: Family::default(),
            page_turned_away: Family::default(),
            process: Process::default(),
            registry: Registry::with_prefix("tidegate_gateway"),
        };
        metrics.register(max_sessions, statements, charged);
        metrics
    }

    fn register(
        &mut self,
        max_sessions: usize,
        statements: Family<Outcome, Counter>,
        charged: Family<Resource, Amount>,
    ) {
        let registry = &mut self.registry;
        let build = Family::<Build, Gauge>::default();
        build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "1, with the version of the gateway", build);
        let places: Gauge = Gauge::default();
        places.set(i64::try_from(max_sessions).unwrap_or(i64::MAX));
        registry.register("statements", "Statements that ended, by outcome", statements);
        registry.register("statements_estimated", "Statements without counters", self.estimated.clone());
        registry.register("ru_charged", "RU charged, by resource", charged);
        registry.register(
            "written_for_others_bytes",
            "Bytes written that the session's own work does not explain",
            self.unowned.clone(),
        );
        registry.register(
            "written_by_others_bytes",
            "Of these, bytes charged to sessions whose work others wrote out",
            self.assigned.clone(),
        );
        self.waited.register(registry, "wait_seconds", "Time that statements waited for admission");
        self.took.register(registry, "statement_seconds", "Time that statements took once admitted");
        registry.register("convictions", "Runaways convicted here, by action", self.convictions.clone());
        registry.register("sessions", "Connections of clients", self.sessions.clone());
        registry.register("sessions_max", "Places for them", places);
        registry.register("turned_away", "Connections without a place", self.turned_away.clone());
        registry.register(
            "upstream_failures",
            "Connections to a database that failed",
            self.upstream_failures.clone(),
        );
        registry.register("controller_connected", "1 while a controller is there", self.connected.clone());
        registry.register(
            "page_requests",
            "Requests of this page's listener, by outcome",
            self.page_requests.clone(),
        );
        // A metric without a series would be described and missing.
        for outcome in ["ok", "refused", "failed"] {
            drop(self.page_requests.get_or_create(&Outcome { outcome }));
        }
        registry.register(
            "page_turned_away",
            "Connections to this page's listener, or requests, that it ended before they were served",
            self.page_turned_away.clone(),
        );
        self.traces.register(registry);
        self.tls.register(registry);
    }

    /// Counts a statement that was not admitted, of this trace if that is recorded.
    pub(crate) fn throttled(&self, waited: Duration, trace: Option<TraceId>) {
        self.throttled.inc();
        self.waited.observe(waited.as_secs_f64(), trace);
    }

    /// Counts a statement that ran.
    pub(crate) fn ran(
        &self,
        charged: &RuParts,
        (waited, took): (Duration, Duration),
        failed: bool,
        estimated: bool,
        trace: Option<TraceId>,
    ) {
        if failed { &self.failed } else { &self.succeeded }.inc();
        if estimated {
            self.estimated.inc();
        }
        let parts = [
            (&self.cpu, charged.cpu),
            (&self.read, charged.read),
            (&self.write, charged.write),
            (&self.network, charged.network),
        ];
        for (sum, part) in parts {
            if part.is_positive() {
                sum.inc_by(units(part));
            }
        }
        self.waited.observe(waited.as_secs_f64(), trace);
        self.took.observe(took.as_secs_f64(), trace);
    }

    /// The account of bytes that sessions of one server write for others, counted here.
    pub(crate) fn unowned(&self) -> Unowned {
        Unowned::counted_by(self.unowned.clone(), self.assigned.clone())
    }

    /// Counts a conviction.
    pub(crate) fn convicted(&self, action: &'static str) {
        self.convictions.get_or_create(&Conviction { action }).inc();
    }

    /// The page in Prometheus' text format.
    pub(crate) fn page(&self, sample: Sample) -> Result<String, fmt::Error> {
        self.sessions.set(i64::try_from(sample.sessions).unwrap_or(i64::MAX));
        self.connected.set(i64::from(sample.connected));
        let mut page = String::new();
        encode_registry(&mut page, &self.registry)?;
        self.process.write(&mut page)?;
        encode_eof(&mut page)?;
        Ok(page)
    }
}

/// RU for display.
#[expect(clippy::cast_precision_loss, reason = "a metric is an approximation; nothing is computed from it")]
pub(crate) fn units(amount: Ru) -> f64 {
    amount.0 as f64 / 1_000_000.0
}

/// Of the listener that the page itself has.
impl Tally for Metrics {
    fn turned_away(&self, _: Surface, reason: &'static str) {
        self.page_turned_away.get_or_create(&Reason { reason }).inc();
    }

    fn requested(&self, _: Surface, outcome: &'static str) {
        self.page_requests.get_or_create(&Outcome { outcome }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_counted_by_outcome_and_resource() {
        let metrics = Metrics::new(7, false);
        let charged = RuParts {
            cpu: Ru(1_500_000),
            read: Ru(2_000_000),
            write: Ru(3_500_000),
            network: Ru(250_000),
            ..RuParts::default()
        };
        metrics.ran(&charged, (Duration::ZERO, Duration::from_millis(3)), false, true, None);
        metrics.ran(&charged, (Duration::from_secs(1), Duration::from_millis(3)), true, false, None);
        metrics.throttled(Duration::from_secs(10), None);
        metrics.convicted("kill");
        metrics.turned_away.inc_by(4);
        metrics.upstream_failures.inc_by(5);
        let page = metrics.page(Sample { sessions: 3, connected: true }).unwrap();
        for line in [
            "tidegate_gateway_statements_total{outcome=\"ok\"} 1",
            "tidegate_gateway_statements_total{outcome=\"failed\"} 1",
            "tidegate_gateway_statements_total{outcome=\"throttled\"} 1",
            "tidegate_gateway_statements_estimated_total 1",
            "tidegate_gateway_ru_charged_total{resource=\"cpu\"} 3.0",
            "tidegate_gateway_ru_charged_total{resource=\"read\"} 4.0",
            "tidegate_gateway_ru_charged_total{resource=\"write\"} 7.0",
            "tidegate_gateway_ru_charged_total{resource=\"network\"} 0.5",
            "tidegate_gateway_wait_seconds_count 3",
            "tidegate_gateway_wait_seconds_sum 11.0",
            "tidegate_gateway_statement_seconds_count 2",
            "tidegate_gateway_statement_seconds_sum 0.006",
            "tidegate_gateway_turned_away_total 4",
            "tidegate_gateway_upstream_failures_total 5",
            "tidegate_gateway_convictions_total{action=\"kill\"} 1",
            "tidegate_gateway_sessions 3",
            "tidegate_gateway_sessions_max 7",
            "tidegate_gateway_controller_connected 1",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }

    /// Whether a statement failed says nothing of how it was counted.
    #[test]
    fn statements_without_counters_are_counted_however_they_end() {
        let metrics = Metrics::new(1, false);
        for failed in [false, true, true] {
            metrics.ran(&RuParts::default(), (Duration::ZERO, Duration::ZERO), failed, true, None);
        }
        let page = metrics.page(Sample::default()).unwrap();
        assert!(page.contains("tidegate_gateway_statements_estimated_total 3"), "{page}");
    }

    #[test]
    fn every_metric_is_documented() {
        let documented = include_str!("../../docs/metrics.md");
        let page = Metrics::new(1, true).page(Sample::default()).unwrap();
        for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let name = line.split(' ').next().unwrap_or_default();
            assert!(documented.contains(&format!("`{name}")), "{name} is not in docs/metrics.md");
        }
    }

    #[test]
    fn every_metric_that_is_documented_is_on_the_page() {
        let metrics = Metrics::new(1, true);
        metrics.convicted("kill");
        metrics.requested(Surface::Rest, "ok");
        metrics.turned_away(Surface::Rest, "full");
        metrics.turned_away(Surface::Rest, "full");
        let page = metrics.page(Sample::default()).unwrap();
        let names = include_str!("../../docs/metrics.md").split('`').filter_map(|text| {
            let name = text.strip_prefix("tidegate_gateway_")?.split('{').next()?;
            // Those of certificates come with these.
            let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            (is_name && !name.starts_with("tls_")).then_some(name)
        });
        let mut count = 0;
        for name in names {
            let name = name.strip_suffix("_total").unwrap_or(name);
            assert!(page.contains(&format!("# TYPE tidegate_gateway_{name} ")), "{name}: {page}");
            count += 1;
        }
        assert!(count >= 18, "{count} are documented");
        for line in [
            concat!("tidegate_gateway_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "tidegate_gateway_controller_connected 0",
            "tidegate_gateway_page_requests_total{outcome=\"ok\"} 1",
            "tidegate_gateway_page_requests_total{outcome=\"refused\"} 0",
            "tidegate_gateway_page_requests_total{outcome=\"failed\"} 0",
            "tidegate_gateway_page_turned_away_total{reason=\"full\"} 2",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(page.contains("\nprocess_") && page.ends_with("# EOF\n"), "{page}");
        let connected = Sample { connected: true, ..Sample::default() };
        assert!(metrics.page(connected).unwrap().contains("\ntidegate_gateway_controller_connected 1\n"));
    }
}
