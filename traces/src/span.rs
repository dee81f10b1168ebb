//! Spans, from the decision whether they are recorded to the queue of those that are sent.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::mpsc::Sender;

use crate::TRACEPARENT;
use crate::context::{Context, Malformed, SpanId, TraceId};
use crate::metrics::TraceMetrics;
use crate::settings::Share;

/// Longest text of an attribute, in bytes: the beginning tells statements apart. With twice of it, a full queue of
/// them takes as much more memory.
const MAX_TEXT: usize = 2_048;

/// Which side of a call a span is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of no call to another process.
    Internal,
    /// Of a call that came in.
    Server,
    /// Of a call that went out.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A count.
    Count(i64),
    /// A measure, such as RU.
    Measure(f64),
    /// Yes or no.
    Flag(bool),
}

/// What happened, without its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) failed: Option<String>,
}

/// A span that ended, in its trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) span: Span,
    pub(crate) trace: TraceId,
    pub(crate) id: SpanId,
    pub(crate) parent: Option<SpanId>,
    /// The parent is of another process.
    pub(crate) is_remote: bool,
    /// In microseconds since 1970.
    pub(crate) began: u64,
    pub(crate) ended: u64,
}

/// Decides which spans are recorded, and takes them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Traces {
    pub(crate) queue: Sender<Ended>,
    pub(crate) share: Share,
    pub(crate) metrics: Arc<TraceMetrics>,
}

/// A span that is recorded and has not ended.
#[derive(Clone, Debug)]
pub struct Open {
    traces: Traces,
    trace: TraceId,
    id: SpanId,
    parent: Option<SpanId>,
    is_remote: bool,
    began: u64,
}

impl Traces {
    /// The caller that the whole text of a statement names, in a comment as sqlcommenter writes it; one that is malformed
    /// is counted, and is nobody.
    pub fn caller_in(&self, text: &[u8]) -> Option<Context> {
        self.heeded(Context::in_sql(text)?)
    }

    /// The caller that the headers of a request name; one that is malformed, or named more than once, is counted, and is
    /// nobody.
    pub fn caller_of(&self, headers: &HeaderMap) -> Option<Context> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let named = Context::parse(values.next()?.as_bytes()).filter(|_| values.next().is_none());
        self.heeded(named.ok_or(Malformed))
    }

    fn heeded(&self, found: Result<Context, Malformed>) -> Option<Context> {
        found.inspect_err(|_| self.metrics.malformed()).ok()
    }

    /// A span that begins now, in microseconds since 1970, if it is recorded: as the caller says, or, where there is
    /// none, the settings' share of all.
    pub fn begin(&self, caller: Option<Context>, began: u64) -> Option<Open> {
        let (trace, parent) = match caller {
            Some(Context { sampled: false, .. }) => return None,
            Some(Context { trace, span, .. }) => (trace, Some(span)),
            None if self.share.takes(rand::random()) => (TraceId(identity()), None),
            None => return None,
        };
        let traces = self.clone();
        Some(Open { traces, trace, id: SpanId(identity()), parent, is_remote: parent.is_some(), began })
    }
}

/// Random bytes that are not all zero.
fn identity<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    while bytes == [0; N] {
        bytes.fill_with(rand::random);
    }
    bytes
}

impl Open {
    /// A part of it, which began then.
    #[must_use]
    pub fn child(&self, began: u64) -> Self {
        let (traces, parent) = (self.traces.clone(), Some(self.id));
        Self { traces, trace: self.trace, id: SpanId(identity()), parent, is_remote: false, began }
    }

    /// When it began, in microseconds since 1970.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// Its trace.
    pub fn trace(&self) -> TraceId {
        self.trace
    }

    /// Ends it `took` microseconds after it began. Never waits: where the queue is full, it is dropped and counted.
    pub fn end(self, span: Span, took: u64) {
        let Self { traces, trace, id, parent, is_remote, began } = self;
        let ended = began.saturating_add(took);
        let ended = Ended { span, trace, id, parent, is_remote, began, ended };
        if traces.queue.try_send(ended).is_err() {
            traces.metrics.dropped(1);
        }
    }
}

impl Span {
    /// A span of this name.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self { name: name.into(), kind, attributes: Vec::new(), failed: None }
    }

    /// With an attribute; a long text is cut.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        let mut value = value.into();
        if let Value::Text(text) = &mut value {
            text.truncate(text.floor_char_boundary(MAX_TEXT));
        }
        self.attributes.push((key, value));
        self
    }

    /// That failed, by this class of errors and for this reason.
    #[must_use]
    pub fn failed(self, class: &str, reason: impl Into<String>) -> Self {
        let mut span = self.with("error.type", class);
        span.failed = Some(reason.into());
        span
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default().to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Count(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(measure: f64) -> Self {
        Self::Measure(measure)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{self, Receiver};

    use super::*;

    fn traces(share: &str, room: usize) -> (Traces, Receiver<Ended>) {
        let (queue, ended) = mpsc::channel(room);
        (Traces { queue, share: share.parse().unwrap(), metrics: Arc::default() }, ended)
    }

    fn caller(sampled: bool) -> Option<Context> {
        Some(Context { trace: TraceId([1; 16]), span: SpanId([2; 8]), sampled })
    }

    #[test]
    fn a_caller_decides_and_without_one_the_share_does() {
        let (none, _) = traces("0", 1);
        let (all, _) = traces("1", 1);
        assert!(none.begin(None, 0).is_none() && none.begin(caller(true), 0).is_some());
        assert!(all.begin(None, 0).is_some() && all.begin(caller(false), 0).is_none());
        let (half, _) = traces("0.5", 1);
        let taken = (0..10_000).filter(|_| half.begin(None, 0).is_some()).count();
        // Twenty standard deviations.
        assert!((4_000..6_000).contains(&taken), "{taken}");
    }

    #[test]
    fn a_span_is_below_its_caller_and_its_parts_below_it() {
        let (traces, mut ended) = traces("1", 2);
        traces.begin(None, 5).unwrap().end(Span::new("root", Kind::Server), 9);
        let root = ended.try_recv().unwrap();
        assert_eq!((root.parent, root.is_remote), (None, false));
        let open = traces.begin(caller(true), 5).unwrap();
        open.child(6).end(Span::new("part", Kind::Internal), 1);
        open.end(
            Span::new("whole", Kind::Server).with("text", "ä".repeat(MAX_TEXT)).failed("class", "why"),
            9,
        );
        let (part, whole) = (ended.try_recv().unwrap(), ended.try_recv().unwrap());
        assert_eq!((part.trace, whole.trace), (TraceId([1; 16]), TraceId([1; 16])));
        assert_eq!((part.parent, part.is_remote), (Some(whole.id), false));
        assert_eq!((whole.parent, whole.is_remote), (Some(SpanId([2; 8])), true));
        assert_eq!((part.began, part.ended, whole.began, whole.ended), (6, 7, 5, 14));
        let long = "x".to_owned() + &"ä".repeat(MAX_TEXT);
        let cut = Value::Text("x".to_owned() + &"ä".repeat(MAX_TEXT / 2 - 1));
        assert_eq!(Span::new("a", Kind::Client).with("text", long.as_str()).attributes, [("text", cut)]);
        let text = ("text", Value::Text("ä".repeat(MAX_TEXT / 2)));
        assert_eq!(whole.span.attributes, [text, ("error.type", Value::Text("class".to_owned()))]);
        assert_eq!(whole.span.failed.as_deref(), Some("why"));
    }

    #[test]
    fn a_caller_that_is_malformed_is_nobody_and_counted() {
        let (traces, _) = traces("1", 1);
        let named = format!("select 1 /*traceparent='{}'*/", caller(true).unwrap());
        assert_eq!(traces.caller_in(named.as_bytes()), caller(true));
        assert_eq!((traces.caller_in(b"select 1"), traces.metrics.malformed_so_far()), (None, 0));
        assert_eq!((traces.caller_in(b"/*traceparent='x'*/"), traces.metrics.malformed_so_far()), (None, 1));
        let mut headers = HeaderMap::new();
        assert_eq!((traces.caller_of(&headers), traces.metrics.malformed_so_far()), (None, 1));
        let named = |context: String| context.parse::<http::HeaderValue>().unwrap();
        headers.append(TRACEPARENT, named(caller(true).unwrap().to_string()));
        assert_eq!(traces.caller_of(&headers), caller(true));
        headers.append(TRACEPARENT, named(caller(false).unwrap().to_string()));
        assert_eq!((traces.caller_of(&headers), traces.metrics.malformed_so_far()), (None, 2));
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let (traces, mut ended) = traces("1", 1);
        for name in ["kept", "dropped", "dropped"] {
            traces.begin(None, 0).unwrap().end(Span::new(name, Kind::Internal), 0);
        }
        assert_eq!(ended.try_recv().unwrap().span.name, "kept");
        assert!(ended.try_recv().is_err());
        assert_eq!(traces.metrics.counted("dropped"), 2);
    }
}
