//! Sends spans to a collector, in a task of its own: a batch at a time, again while the collector is away, never for
//! ever. *Source:* OTLP 1.x over HTTP; a batch is tried again after the answers that it names, and no others.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::batch::encoded;
use crate::collector::{Collector, Take, Told};
use crate::metrics::TraceMetrics;
use crate::settings::TraceSettings;
use crate::span::{Ended, Traces};

/// Spans that wait to be sent, and those sent at once. A queue of half as many drops spans of a gateway whenever a
/// collector takes a second; twice as many take up to ten megabytes where a collector is away.
const QUEUE: usize = 2_048;
const BATCH: usize = 512;
/// How long a batch is gathered. Half of it doubles the requests of a process with little to say; twice of it, and who
/// looks at a trace misses its end.
const GATHER: Duration = Duration::from_secs(1);
/// Tries of a batch. Half of them do not outlast a collector that starts again; with twice as many, spans are a minute
/// old, and newer ones are dropped for them.
const TRIES: u32 = 5;
/// Pauses between them: the first, then twice as long each, up to the last.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Time for the rest at the end of the process, of which an operator waits for the whole.
const LAST_WITHIN: Duration = Duration::from_secs(3);

/// Which process sends spans.
#[derive(Clone, Debug)]
pub struct Source {
    /// What it is, such as `tidegate-gateway`.
    pub service: &'static str,
    /// Which of them it is.
    pub instance: String,
}

/// The task that sends spans; it ends with this.
#[derive(Debug)]
pub struct Exporter {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Traces {
    /// Starts to send spans. Needs a tokio runtime.
    pub fn start(settings: TraceSettings, source: Source, metrics: TraceMetrics) -> (Self, Exporter) {
        let (queue, spans) = mpsc::channel(QUEUE);
        let (metrics, share) = (Arc::new(metrics), settings.share);
        tracing::info!(collector = %settings.endpoint, %share, "traces are sent");
        let task = Task::new(Collector::new(settings), source, Arc::clone(&metrics), spans);
        let (stop, stopped) = oneshot::channel();
        let exporter = Exporter { stop: Some(stop), task: tokio::spawn(task.run(stopped)) };
        (Self { queue, share, metrics }, exporter)
    }
}

impl Exporter {
    /// Sends the rest, within a bounded time.
    pub async fn end(mut self) {
        drop(self.stop.take());
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the export of traces failed");
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task's state.
struct Task<C> {
    collector: C,
    source: Source,
    metrics: Arc<TraceMetrics>,
    queue: Receiver<Ended>,
    batch: Vec<Ended>,
    /// Why the last try failed.
    fault: Option<String>,
}

impl<C: Take> Task<C> {
    fn new(collector: C, source: Source, metrics: Arc<TraceMetrics>, queue: Receiver<Ended>) -> Self {
        Self { collector, source, metrics, queue, batch: Vec::new(), fault: None }
    }

    async fn run(mut self, stopped: oneshot::Receiver<()>) {
        let (tell, stop) = watch::channel(false);
        let over = async {
            // An error means that the sender is gone, which is a stop, too.
            let _ = stopped.await;
            tell.send_replace(true);
            sleep(LAST_WITHIN).await;
        };
        tokio::select! {
            () = self.export_all(stop) => {}
            () = over => {}
        }
        let left = self.batch.len().saturating_add(self.queue.len());
        if left > 0 {
            self.metrics.dropped(count(left));
            tracing::warn!(left, "spans are given up at the stop");
        }
    }

    /// Sends until nobody records any more, and the rest at a stop.
    async fn export_all(&mut self, mut stop: watch::Receiver<bool>) {
        self.export(&mut stop).await;
        self.export_last().await;
    }

    /// Sends until nobody records any more, or until a stop. A try that is under way then is not cut off: it may have
    /// arrived, and the collector would have its spans twice.
    async fn export(&mut self, stop: &mut watch::Receiver<bool>) {
        loop {
            tokio::select! {
                more = self.gather() => if !more { return },
                _ = stop.wait_for(|stops| *stops) => return,
            }
            let bytes = encoded(&self.source, &self.batch);
            let mut tries = 0;
            while let Some(pause) = self.attempt(&bytes, &mut tries).await {
                tokio::select! {
                    () = sleep(pause) => {}
                    _ = stop.wait_for(|stops| *stops) => return,
                }
            }
        }
    }

    /// Sends what waits, each batch once, until one try fails.
    async fn export_last(&mut self) {
        // A batch that could not be sent is in the first.
        loop {
            let room = BATCH.saturating_sub(self.batch.len());
            let more = room.min(self.queue.len());
            if more > 0 {
                self.queue.recv_many(&mut self.batch, more).await;
            }
            let bytes = encoded(&self.source, &self.batch);
            if self.batch.is_empty() || self.attempt(&bytes, &mut 0).await.is_some() {
                return;
            }
        }
    }

    /// Fills the batch: until it is full, or the time to gather is over. False when nobody records any more.
    async fn gather(&mut self) -> bool {
        if self.queue.recv_many(&mut self.batch, BATCH).await == 0 {
            return false;
        }
        let until = Instant::now() + GATHER;
        while self.batch.len() < BATCH {
            let room = BATCH.saturating_sub(self.batch.len());
            match timeout_at(until, self.queue.recv_many(&mut self.batch, room)).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        true
    }

    /// Tries to send the batch. Returns how long to wait for another try; `None` when it is done with.
    async fn attempt(&mut self, bytes: &Bytes, tries: &mut u32) -> Option<Duration> {
        let spans = count(self.batch.len());
        let told = self.collector.take(bytes.clone()).await;
        *tries = tries.saturating_add(1);
        match told {
            Told::Taken { rejected } => {
                let rejected = rejected.min(spans);
                self.metrics.exported(spans.saturating_sub(rejected));
                self.metrics.refused(rejected);
                let reason = (rejected > 0).then(|| format!("it rejected {rejected} of {spans} spans"));
                self.note(reason, "a collector takes not all spans");
            }
            Told::Refused(reason) => {
                self.metrics.refused(spans);
                self.note(Some(reason), "a collector refuses spans, which are given up");
            }
            Told::Away(reason, asked) => {
                self.note(Some(reason), "a collector cannot be reached; spans are sent again, for a while");
                if *tries < TRIES {
                    return Some(pause(*tries, asked));
                }
                self.metrics.failed(spans);
            }
        }
        self.batch.clear();
        None
    }

    /// Logs a fault that is another than before, and its end.
    fn note(&mut self, fault: Option<String>, what: &'static str) {
        let before = mem::replace(&mut self.fault, fault);
        match &self.fault {
            Some(reason) if before != self.fault => {
                tracing::warn!(collector = %self.collector.name(), %reason, "{what}");
            }
            None if before.is_some() => {
                tracing::info!(collector = %self.collector.name(), "a collector takes spans again");
            }
            _ => {}
        }
    }
}

/// How long to wait after so many tries: a random half to all, so that processes do not come back together, and at
/// least as long as the collector asks for, within reason.
fn pause(tries: u32, asked: Option<Duration>) -> Duration {
    let (first, last) = PAUSES;
    let full = first.saturating_mul(1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX)).min(last);
    let part = full.mul_f64(rand::random_range(0.5..=1.0));
    part.max(asked.unwrap_or_default().min(last))
}

fn count(spans: usize) -> u64 {
    u64::try_from(spans).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use prost::Message as _;

    use super::*;
    use crate::message::{Any, ExportRequest};
    use crate::span::{Kind, Span};

    /// Longer than anybody waits.
    const HANGS: Duration = Duration::from_secs(3_600);

    /// A collector that gives these answers, and takes everything afterwards.
    #[derive(Clone, Default)]
    struct Said {
        answers: Arc<Mutex<VecDeque<Told>>>,
        /// When it was told, in seconds, and how much.
        told: Arc<Mutex<Vec<(u64, usize)>>>,
        began: Option<Instant>,
        /// Until it answers.
        takes: Duration,
    }

    impl Take for Said {
        async fn take(&mut self, bytes: Bytes) -> Told {
            let request = ExportRequest::decode(bytes).unwrap();
            let spans = request.resource_spans[0].scope_spans[0].spans.len();
            self.told.lock().unwrap().push((self.began.unwrap().elapsed().as_secs(), spans));
            sleep(self.takes).await;
            self.answers.lock().unwrap().pop_front().unwrap_or(Told::Taken { rejected: 0 })
        }

        fn name(&self) -> String {
            "said".to_owned()
        }
    }

    fn begin(answers: Vec<Told>, takes: Duration) -> (Traces, Said, Exporter) {
        let said = Said {
            answers: Arc::new(Mutex::new(answers.into())),
            began: Some(Instant::now()),
            takes,
            ..Said::default()
        };
        let (queue, spans) = mpsc::channel(QUEUE);
        let metrics = Arc::<TraceMetrics>::default();
        let source = Source { service: "test", instance: "1".to_owned() };
        let task = Task::new(said.clone(), source, Arc::clone(&metrics), spans);
        let (stop, stopped) = oneshot::channel();
        let exporter = Exporter { stop: Some(stop), task: tokio::spawn(task.run(stopped)) };
        (Traces { queue, share: "1".parse().unwrap(), metrics }, said, exporter)
    }

    fn record(traces: &Traces, count: usize) {
        for _ in 0..count {
            traces.begin(None, 0).unwrap().end(Span::new("a", Kind::Internal), 0);
        }
    }

    fn counted(traces: &Traces) -> [u64; 4] {
        ["exported", "dropped", "failed", "refused"].map(|outcome| traces.metrics.counted(outcome))
    }

    fn away() -> Told {
        Told::Away("away".to_owned(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn spans_are_gathered_and_the_rest_is_sent_at_the_end() {
        let (traces, said, exporter) = begin(Vec::new(), Duration::ZERO);
        record(&traces, BATCH + 1);
        sleep(GATHER / 2).await;
        // A full batch does not wait.
        assert_eq!(*said.told.lock().unwrap(), [(0, BATCH)]);
        sleep(GATHER).await;
        record(&traces, 2);
        exporter.end().await;
        assert_eq!(*said.told.lock().unwrap(), [(0, BATCH), (1, 1), (1, 2)]);
        assert_eq!(counted(&traces), [515, 0, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_batch_is_larger_than_a_collector_takes() {
        let (traces, said, exporter) = begin(Vec::new(), Duration::ZERO);
        record(&traces, 1);
        sleep(GATHER / 2).await;
        record(&traces, BATCH + 1);
        sleep(GATHER * 2).await;
        let told: Vec<_> = said.told.lock().unwrap().iter().map(|(_, spans)| *spans).collect();
        assert_eq!(told, [BATCH, 2]);
        exporter.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_exporter_that_is_let_go_sends_nothing_more() {
        let (traces, said, exporter) = begin(Vec::new(), Duration::ZERO);
        record(&traces, 1);
        drop(exporter);
        sleep(GATHER * 2).await;
        assert!(said.told.lock().unwrap().is_empty() && traces.queue.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_lets_a_batch_arrive_that_is_on_its_way_and_sends_it_once() {
        let (traces, said, exporter) = begin(Vec::new(), LAST_WITHIN / 3);
        record(&traces, 3);
        sleep(GATHER + LAST_WITHIN / 6).await;
        record(&traces, 2);
        exporter.end().await;
        let told: Vec<_> = said.told.lock().unwrap().iter().map(|(_, spans)| *spans).collect();
        assert_eq!((told, counted(&traces)), (vec![3, 2], [5, 0, 0, 0]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_sent_again_while_the_collector_is_away_and_given_up_in_time() {
        let answers = (0..TRIES + 1).map(|_| away()).collect();
        let (traces, said, exporter) = begin(answers, Duration::ZERO);
        record(&traces, 3);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(counted(&traces), [0, 0, 3, 0]);
        let told = said.told.lock().unwrap().clone();
        let (first, last) = (told[0].0, told[4].0);
        assert!((7..=15).contains(&(last - first)), "{first} {last}");
        record(&traces, 4);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(counted(&traces), [4, 0, 3, 0]);
        assert_eq!(said.told.lock().unwrap().len(), 7);
        exporter.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_given_up_and_what_is_rejected_counted() {
        let (traces, _, exporter) =
            begin(vec![Told::Refused("no".to_owned()), Told::Taken { rejected: 2 }], Duration::ZERO);
        record(&traces, 3);
        sleep(GATHER * 2).await;
        record(&traces, 5);
        exporter.end().await;
        assert_eq!(counted(&traces), [3, 0, 0, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_drops_and_a_stop_waits_for_a_bounded_time() {
        let (traces, said, exporter) = begin(Vec::new(), HANGS);
        record(&traces, BATCH);
        sleep(GATHER).await;
        record(&traces, QUEUE + 7);
        assert_eq!(counted(&traces), [0, 7, 0, 0]);
        let began = Instant::now();
        exporter.end().await;
        assert_eq!(began.elapsed(), LAST_WITHIN);
        // What is under way may have arrived, and is not sent again.
        assert_eq!(said.told.lock().unwrap().len(), 1);
        assert_eq!(counted(&traces), [0, count(7 + BATCH + QUEUE), 0, 0]);
    }

    #[test]
    fn pauses_double_to_a_bound_and_heed_the_collector_within_it() {
        for (tries, least, most) in [(1, 500, 1_000), (2, 1_000, 2_000), (40, 15_000, 30_000)] {
            let millis = pause(tries, None).as_millis();
            assert!((least..=most).contains(&millis), "{tries}: {millis}");
        }
        assert_eq!(pause(1, Some(Duration::from_secs(9))), Duration::from_secs(9));
        assert_eq!(pause(1, Some(Duration::from_secs(9_999))), PAUSES.1);
        assert!(pause(2, Some(Duration::ZERO)) >= Duration::from_secs(1), "it asks for no shorter one");
    }

    #[test]
    fn a_message_has_what_the_span_has() {
        let (queue, mut ended) = mpsc::channel(1);
        let traces = Traces { queue, share: "1".parse().unwrap(), metrics: Arc::default() };
        let span = Span::new("a", Kind::Client).with("ru", 1.5).failed("class", "why");
        traces.begin(None, 2).unwrap().end(span, 3);
        let source = Source { service: "test", instance: "1".to_owned() };
        let bytes = encoded(&source, &[ended.try_recv().unwrap()]);
        let request = ExportRequest::decode(bytes).unwrap();
        let span = &request.resource_spans[0].scope_spans[0].spans[0];
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano, span.kind), (2_000, 5_000, 3));
        assert_eq!((span.trace_id.len(), span.span_id.len(), span.parent_span_id.len()), (16, 8, 0));
        assert_eq!(span.attributes[0].value.as_ref().unwrap().value, Some(Any::Measure(1.5)));
        assert_eq!(
            span.status.as_ref().map(|status| (status.code, status.message.as_str())),
            Some((2, "why"))
        );
    }
}
