//! Spans as one message of OTLP.

use bytes::Bytes;
use prost::Message as _;

use crate::export::Source;
use crate::message::{
    Any, AnyValue, ExportRequest, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Span, Status,
};
use crate::span::{Ended, Kind, Value};

/// Flags of a span beside that it is recorded: whether its parent is of another process is known, and is so.
const KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;

/// The bytes of these spans.
pub(crate) fn encoded(source: &Source, spans: &[Ended]) -> Bytes {
    let texts = [
        ("service.name", source.service.to_owned()),
        ("service.namespace", "tidegate".to_owned()),
        ("service.instance.id", source.instance.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let attributes = texts.map(|(key, text)| attribute(key, &Value::Text(text))).into();
    let scope = Scope { name: "tidegate".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let spans = spans.iter().map(span).collect();
    let spans = ResourceSpans {
        resource: Some(Resource { attributes }),
        scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
    };
    ExportRequest { resource_spans: vec![spans] }.encode_to_vec().into()
}

fn span(ended: &Ended) -> Span {
    let error = |message: &String| Status { message: message.clone(), code: 2 };
    Span {
        trace_id: ended.trace.0.into(),
        span_id: ended.id.0.into(),
        parent_span_id: ended.parent.map(|parent| parent.0.into()).unwrap_or_default(),
        name: ended.span.name.clone(),
        kind: match ended.span.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
            Kind::Client => 3,
        },
        start_time_unix_nano: ended.began.saturating_mul(1_000),
        end_time_unix_nano: ended.ended.saturating_mul(1_000),
        attributes: ended.span.attributes.iter().map(|(key, value)| attribute(key, value)).collect(),
        status: ended.span.failed.as_ref().map(error),
        flags: 1 | KNOWN | if ended.is_remote { REMOTE } else { 0 },
    }
}

fn attribute(key: &str, value: &Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => Any::Text(text.clone()),
        Value::Count(count) => Any::Count(*count),
        Value::Measure(measure) => Any::Measure(*measure),
        Value::Flag(flag) => Any::Flag(*flag),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}
