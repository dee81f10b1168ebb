//! Traces: what an operation waited for and cost, as spans in the trace of whoever called.
//!
//! [`Context`] is the place in a trace that a caller names, in a header or in a comment of SQL. [`Traces::begin`] says
//! whether a span is recorded, and [`Open::end`] puts it into a queue, which never waits: what does not fit is dropped
//! and counted. A task of its own sends the queue to a collector, by OTLP over HTTP in protobuf.

mod batch;
mod collector;
mod context;
mod export;
mod message;
mod metrics;
mod settings;
mod span;

pub use context::{Context, SpanId, TraceId};
pub use export::{Exporter, Source};
pub use metrics::{Seconds, TraceMetrics};
pub use settings::{Share, TraceError, TraceSettings, Written};
pub use span::{Kind, Open, Span, Traces, Value};

/// The header that names the caller's place in a trace, and the key of a comment in SQL.
pub const TRACEPARENT: &str = "traceparent";
