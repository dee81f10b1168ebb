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

#[cfg(test)]
mod tests {
    use crate::context::{SpanId, TraceId};
    use crate::span;

    use super::*;

    #[test]
    fn a_span_is_sent_with_all_that_is_known_of_it() {
        let text = |key: &str, text: &str| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(Any::Text(text.to_owned())) }),
        };
        let sent = |ended: Ended| {
            let source = Source { service: "gateway", instance: "gw-1".to_owned() };
            let request = ExportRequest::decode(encoded(&source, &[ended])).unwrap();
            let [resource] = <[_; 1]>::try_from(request.resource_spans).unwrap();
            let version = env!("CARGO_PKG_VERSION");
            let of_process = [
                text("service.name", "gateway"),
                text("service.namespace", "tidegate"),
                text("service.instance.id", "gw-1"),
                text("service.version", version),
            ];
            assert_eq!(resource.resource.unwrap().attributes, of_process);
            let [scope] = <[_; 1]>::try_from(resource.scope_spans).unwrap();
            assert_eq!(scope.scope, Some(Scope { name: "tidegate".to_owned(), version: version.to_owned() }));
            <[_; 1]>::try_from(scope.spans).unwrap().into_iter().next().unwrap()
        };
        let ended = |parent, is_remote, span| Ended {
            trace: TraceId([1; 16]),
            id: SpanId([2; 8]),
            parent,
            is_remote,
            span,
            began: 5,
            ended: 7,
        };
        let of_caller = span::Span::new("SELECT", Kind::Server).with("db", "shop").failed("refused", "no RU");
        let attributes = of_caller.attributes.iter().map(|(key, value)| attribute(key, value)).collect();
        let expected = Span {
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            parent_span_id: vec![3; 8],
            name: "SELECT".to_owned(),
            kind: 2,
            start_time_unix_nano: 5_000,
            end_time_unix_nano: 7_000,
            attributes,
            status: Some(Status { message: "no RU".to_owned(), code: 2 }),
            // Sampled; whether the parent is remote is known, and it is.
            flags: 0x301,
        };
        assert!(expected.attributes.contains(&text("db", "shop")));
        assert_eq!(sent(ended(Some(SpanId([3; 8])), true, of_caller)), expected);
        for (kind, number) in [(Kind::Internal, 1), (Kind::Client, 3)] {
            let own = sent(ended(None, false, span::Span::new("own", kind)));
            let of_none = Vec::<u8>::new();
            assert_eq!((own.kind, own.parent_span_id, own.flags), (number, of_none, 0x101));
            assert_eq!(own.status, None);
        }
    }
}
