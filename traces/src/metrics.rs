//! What became of spans, and times with exemplars, for the page of metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::context::TraceId;

/// All that may become of a span.
const OUTCOMES: [&str; 4] = ["exported", "dropped", "failed", "refused"];

/// One label: what became of a span.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// One label: the trace of an exemplar.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TraceLabel {
    trace_id: String,
}

/// Times, where traces are recorded with an exemplar in each bucket: the last time in it that has a trace.
#[derive(Clone, Debug)]
pub struct Seconds(Kept);

/// What keeps them: exemplars take a lock more.
#[derive(Clone, Debug)]
enum Kept {
    Plain(Histogram),
    Traced(HistogramWithExemplars<TraceLabel>),
}

impl Seconds {
    /// None yet; with exemplars where traces are recorded.
    pub fn new(buckets: impl Iterator<Item = f64>, traced: bool) -> Self {
        Self(if traced {
            Kept::Traced(HistogramWithExemplars::new(buckets))
        } else {
            Kept::Plain(Histogram::new(buckets))
        })
    }

    /// Puts them on a page.
    pub fn register(&self, registry: &mut Registry, name: &'static str, help: &'static str) {
        match &self.0 {
            Kept::Plain(histogram) => registry.register(name, help, histogram.clone()),
            Kept::Traced(histogram) => registry.register(name, help, histogram.clone()),
        }
    }

    /// Counts one, of this trace if that is recorded.
    pub fn observe(&self, seconds: f64, trace: Option<TraceId>) {
        match &self.0 {
            Kept::Plain(histogram) => histogram.observe(seconds),
            Kept::Traced(histogram) => {
                let label = trace.map(|trace| TraceLabel { trace_id: trace.to_string() });
                histogram.observe(seconds, label, None);
            }
        }
    }
}

/// Spans, by what became of them, and callers that are not named as they have to be.
#[derive(Clone, Debug)]
pub struct TraceMetrics {
    spans: Family<Outcome, Counter>,
    malformed: Counter,
}

impl Default for TraceMetrics {
    fn default() -> Self {
        let spans = Family::default();
        // A metric without a series would be described and missing.
        OUTCOMES.iter().for_each(|outcome| drop(spans.get_or_create(&Outcome { outcome })));
        Self { spans, malformed: Counter::default() }
    }
}

impl TraceMetrics {
    /// Puts them on a page.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("trace_spans", "Spans of traces, by what became of them", self.spans.clone());
        let help = "Contexts of callers that are malformed, and were ignored";
        registry.register("trace_contexts_malformed", help, self.malformed.clone());
    }

    pub(crate) fn malformed(&self) {
        self.malformed.inc();
    }

    pub(crate) fn exported(&self, spans: u64) {
        self.add("exported", spans);
    }

    /// The queue was full, or the process stopped.
    pub(crate) fn dropped(&self, spans: u64) {
        self.add("dropped", spans);
    }

    /// Given up after several tries.
    pub(crate) fn failed(&self, spans: u64) {
        self.add("failed", spans);
    }

    /// The collector does not take them.
    pub(crate) fn refused(&self, spans: u64) {
        self.add("refused", spans);
    }

    fn add(&self, outcome: &'static str, spans: u64) {
        self.spans.get_or_create(&Outcome { outcome }).inc_by(spans);
    }

    #[cfg(test)]
    pub(crate) fn counted(&self, outcome: &'static str) -> u64 {
        self.spans.get_or_create(&Outcome { outcome }).get()
    }

    #[cfg(test)]
    pub(crate) fn malformed_so_far(&self) -> u64 {
        self.malformed.get()
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_time_of_a_trace_is_the_exemplar_of_its_bucket() {
        let page = |traced| {
            let (mut registry, times) = (Registry::default(), Seconds::new([1.0, 2.0].into_iter(), traced));
            times.register(&mut registry, "times", "Times");
            times.observe(0.5, Some(TraceId([0xab; 16])));
            times.observe(1.5, None);
            let mut page = String::new();
            encode(&mut page, &registry).unwrap();
            page
        };
        let exemplar = format!(" # {{trace_id=\"{}\"}} 0.5", "ab".repeat(16));
        let traced = page(true);
        assert!(traced.contains(&format!("times_bucket{{le=\"1.0\"}} 1{exemplar}\n")), "{traced}");
        assert_eq!(page(false), traced.replace(&exemplar, ""));
    }
}
