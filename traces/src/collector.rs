//! One request to a collector, and what its answer means.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use prost::Message as _;
use tidegate_tls::{ClientFiles, outgoing};
use tokio::time::timeout;

use crate::message::ExportResponse;
use crate::settings::{TraceSettings, headers};

/// Time for one try, from connecting to the head of the answer, and then for its body. Half of the first is short for
/// a collector that is far away; twice of it only waits for one that hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const BODY_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read: it has a number and a sentence.
const MOST_BYTES: usize = 64 << 10;

/// What a collector says of a batch.
#[derive(Debug)]
pub(crate) enum Told {
    /// It takes it, but for so many spans.
    Taken { rejected: u64 },
    /// It does not, and would not if it came again.
    Refused(String),
    /// It may later; when it says when, after that.
    Away(String, Option<Duration>),
}

/// Where batches go.
pub(crate) trait Take {
    fn take(&mut self, bytes: Bytes) -> impl Future<Output = Told> + Send;

    /// How logs call it.
    fn name(&self) -> String;
}

/// A collector behind an address.
pub(crate) struct Collector(TraceSettings);

impl Collector {
    pub(crate) fn new(settings: TraceSettings) -> Self {
        Self(settings)
    }

    async fn post(&self, bytes: Bytes) -> Result<outgoing::Answer, Told> {
        let mut request = Request::post("/").header(header::CONTENT_TYPE, "application/x-protobuf");
        if let Some(file) = self.0.headers_file.clone() {
            // A secret that was changed counts from the next try on.
            let read = tokio::task::spawn_blocking(move || headers(&file)).await;
            let read = read.map_err(|error| Told::Away(error.to_string(), None))?;
            let read = read.map_err(|error| Told::Away(error.to_string(), None))?;
            for (name, value) in &read {
                request = request.header(name, value);
            }
        }
        let files = ClientFiles { authorities: self.0.authorities.clone(), identity: None };
        let setting = ("trace_ca", ANSWER_WITHIN);
        let sent = outgoing::send(self.0.endpoint.uri(), files, setting, request, bytes);
        match timeout(ANSWER_WITHIN, sent).await {
            Ok(answer) => answer.map_err(|reason| Told::Away(reason, None)),
            Err(_) => Err(Told::Away(format!("no answer within {ANSWER_WITHIN:?}"), None)),
        }
    }
}

impl Take for Collector {
    async fn take(&mut self, bytes: Bytes) -> Told {
        let outgoing::Answer { response, connection: _speaking } = match self.post(bytes).await {
            Ok(answer) => answer,
            Err(told) => return told,
        };
        if let Some(told) = judged(&response) {
            return told;
        }
        // The head of the answer says that they are taken; a body without an end does not take that back.
        let body = Limited::new(response.into_body(), MOST_BYTES).collect();
        let body = timeout(BODY_WITHIN, body).await.ok().and_then(Result::ok);
        let said = body.and_then(|body| ExportResponse::decode(body.to_bytes()).ok());
        let rejected = said.and_then(|said| said.partial_success).map_or(0, |part| part.rejected_spans);
        Told::Taken { rejected: u64::try_from(rejected).unwrap_or(0) }
    }

    fn name(&self) -> String {
        self.0.endpoint.to_string()
    }
}

/// What the head of an answer says of a batch; `None` is that it is taken.
fn judged<B>(response: &Response<B>) -> Option<Told> {
    let status = response.status();
    let seconds = || {
        let asked = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
        asked.parse().ok().map(Duration::from_secs)
    };
    let said = format!("it answers {status}");
    match status {
        status if status.is_success() => None,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Some(Told::Away(said, seconds())),
        status if status.is_redirection() => Some(Told::Refused(format!(
            "{said}: write the address that it points to into trace_endpoint (redirects are not followed)"
        ))),
        _ => Some(Told::Refused(said)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use tidegate_test_servers::Manner;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    use super::*;
    use crate::batch::encoded;
    use crate::export::Source;
    use crate::settings::Written;
    use crate::span::{Ended, Kind, Span, Value};
    use crate::{Context, TRACEPARENT};

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn batch(span: Span) -> Bytes {
        let Context { trace, span: id, .. } = Context::parse(PARENT.as_bytes()).unwrap();
        let ended = Ended { span, trace, id, parent: Some(id), is_remote: true, began: 2, ended: 5 };
        encoded(&Source { service: "tidegate-test", instance: "one".to_owned() }, &[ended])
    }

    fn towards(endpoint: String, headers_file: Option<&Path>) -> Collector {
        let headers_file = headers_file.map(Path::to_owned);
        let written = Written { endpoint: Some(endpoint), headers_file, ..Written::default() };
        Collector::new(written.check().unwrap().unwrap())
    }

    /// The other side.
    fn there(manner: Manner) -> tidegate_test_servers::Collector {
        tidegate_test_servers::Collector::start(manner).unwrap()
    }

    #[tokio::test]
    async fn the_definitions_of_opentelemetry_read_what_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headers");
        write(&file, "authorization: Bearer s3cret\n").unwrap();
        set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let there = there(Manner::Takes);
        let span = Span::new("SELECT t", Kind::Client)
            .with("text", "ä")
            .with("count", 7_u64)
            .with("measure", 0.5)
            .with("flag", true)
            .failed("class", "why");
        let told = towards(there.endpoint(), Some(&file)).take(batch(span)).await;
        assert!(matches!(told, Told::Taken { rejected: 0 }), "{told:?}");
        let [span] = there.taken().try_into().unwrap();
        let Context { trace, span: id, .. } = Context::parse(PARENT.as_bytes()).unwrap();
        assert_eq!((span.service.as_str(), span.name.as_str(), span.kind), ("tidegate-test", "SELECT t", 3));
        assert_eq!((span.trace, span.span, span.parent), (trace.to_string(), id.to_string(), id.to_string()));
        assert_eq!((span.began, span.ended, span.error.as_deref()), (2_000, 5_000, Some("why")));
        let attributes: Vec<String> =
            span.attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(attributes, ["count=7", "error.type=class", "flag=true", "measure=0.5", "text=ä"]);
        let [head] = there.heads().try_into().unwrap();
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
        for line in ["content-type: application/x-protobuf\r\n", "authorization: bearer s3cret\r\n"] {
            assert!(head.contains(line), "{head}");
        }
        assert!(!head.contains(TRACEPARENT), "an export is in no trace: {head}");
    }

    #[tokio::test]
    async fn a_changed_secret_counts_from_the_next_try_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headers");
        let put = |text: &str, mode| {
            write(&file, text).unwrap();
            set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        };
        let there = there(Manner::Status(401, ""));
        put("authorization: Bearer one\nx-tenant: shop\nx-tenant: till\n", 0o600);
        let mut collector = towards(there.endpoint(), Some(&file));
        let one = || batch(Span::new("a", Kind::Internal));
        assert!(matches!(collector.take(one()).await, Told::Refused(_)));
        there.be(Manner::Takes);
        put("authorization: Bearer two\n", 0o600);
        assert!(matches!(collector.take(one()).await, Told::Taken { rejected: 0 }));
        put("authorization: Bearer three\n", 0o644);
        assert!(
            matches!(collector.take(one()).await, Told::Away(reason, None) if reason.contains("chmod 600"))
        );
        let heads = there.heads();
        let sent = |name: &str| -> Vec<Vec<&str>> {
            heads
                .iter()
                .map(|head| {
                    let lines = head.lines().filter_map(|line| line.split_once(": "));
                    lines.filter(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
                })
                .collect()
        };
        assert_eq!(sent("authorization"), [["Bearer one"], ["Bearer two"]], "{heads:?}");
        assert_eq!(sent("x-tenant"), [vec!["shop", "till"], vec![]], "{heads:?}");
    }

    #[tokio::test]
    async fn an_answer_says_whether_a_batch_is_sent_again() {
        let one = || batch(Span::new("a", Kind::Internal).with("text", Value::Text("b".to_owned())));
        let there = there(Manner::Takes);
        let mut collector = towards(there.endpoint(), None);
        for (manner, expected) in [
            (Manner::Takes, "Taken { rejected: 0 }"),
            (Manner::Rejects(1), "Taken { rejected: 1 }"),
            (Manner::Rejects(-1), "Taken { rejected: 0 }"),
            (Manner::Garbles, "Taken { rejected: 0 }"),
            (Manner::Status(204, ""), "Taken { rejected: 0 }"),
            (Manner::Status(400, ""), "Refused(\"it answers 400 Bad Request\")"),
            (Manner::Status(401, ""), "Refused(\"it answers 401 Unauthorized\")"),
            (Manner::Status(413, ""), "Refused(\"it answers 413 Payload Too Large\")"),
            (Manner::Status(500, ""), "Refused(\"it answers 500 Internal Server Error\")"),
            (
                Manner::Status(429, "retry-after: 7\r\n"),
                "Away(\"it answers 429 Too Many Requests\", Some(7s))",
            ),
            (
                Manner::Status(503, "retry-after: 2\r\n"),
                "Away(\"it answers 503 Service Unavailable\", Some(2s))",
            ),
            (
                Manner::Status(503, "retry-after: soon\r\n"),
                "Away(\"it answers 503 Service Unavailable\", None)",
            ),
            (Manner::Status(502, "retry-after: 3\r\n"), "Away(\"it answers 502 Bad Gateway\", Some(3s))"),
            (Manner::Status(504, "retry-after: 4\r\n"), "Away(\"it answers 504 Gateway Timeout\", Some(4s))"),
            (Manner::Status(408, ""), "Refused(\"it answers 408 Request Timeout\")"),
            (Manner::Status(502, ""), "Away(\"it answers 502 Bad Gateway\", None)"),
            (Manner::Status(504, ""), "Away(\"it answers 504 Gateway Timeout\", None)"),
        ] {
            there.be(manner.clone());
            assert_eq!(format!("{:?}", collector.take(one()).await), expected, "{manner:?}");
        }
        there.be(Manner::Status(307, "location: http://127.0.0.1:1/\r\n"));
        let told = format!("{:?}", collector.take(one()).await);
        assert!(told.starts_with("Refused(") && told.contains("trace_endpoint"), "{told}");
        there.be(Manner::Leaves);
        assert!(matches!(collector.take(one()).await, Told::Away(_, None)));
        // Nobody listens at the first port.
        let absent = "http://127.0.0.1:1".to_owned();
        assert!(matches!(towards(absent, None).take(one()).await, Told::Away(_, None)));
        let mut missing = towards(there.endpoint(), Some(Path::new("/nowhere/headers")));
        let Told::Away(reason, None) = missing.take(one()).await else { panic!("without its headers") };
        assert!(reason.starts_with("trace_headers_file: "), "{reason}");
    }

    /// The head says that a batch is taken: to send it again would double its spans.
    #[tokio::test(start_paused = true)]
    async fn an_answer_whose_body_does_not_end_or_is_too_long_has_taken_all() {
        for (length, sent) in [(9, 1), (MOST_BYTES + 1, MOST_BYTES + 1)] {
            let there = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let endpoint = format!("http://{}", there.local_addr().unwrap());
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            let answering = tokio::spawn(async move {
                let (mut peer, _) = there.accept().await.unwrap();
                peer.read_u8().await.unwrap();
                peer.write_all(&[head.as_bytes(), &vec![0; sent]].concat()).await.unwrap();
                peer
            });
            let began = Instant::now();
            let told = towards(endpoint, None).take(batch(Span::new("a", Kind::Internal))).await;
            assert!(matches!(told, Told::Taken { rejected: 0 }), "{told:?}");
            assert!(began.elapsed() <= BODY_WITHIN, "{:?}", began.elapsed());
            drop(answering.await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_is_given_up() {
        let there = there(Manner::Hangs);
        let mut collector = towards(there.endpoint(), None);
        let began = Instant::now();
        let told = collector.take(batch(Span::new("a", Kind::Internal))).await;
        assert!(matches!(&told, Told::Away(_, None)) && began.elapsed() == ANSWER_WITHIN, "{told:?}");
    }
}
