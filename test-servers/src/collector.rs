//! A collector of OpenTelemetry: it takes spans over HTTP, reads them by the definitions of the project itself, and
//! answers as a test says.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

/// Longer than an export takes, also on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// How it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It takes all.
    Takes,
    /// It takes all but so many.
    Rejects(i64),
    /// With this status and header lines, each with its end.
    Status(u16, &'static str),
    /// With a status of success, and a body that is no message.
    Garbles,
    /// Not at all, until the other side ends the connection.
    Hangs,
    /// It ends the connection.
    Leaves,
}

/// A span that it took.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The process that sent it: `service.name`.
    pub service: String,
    /// Its name.
    pub name: String,
    /// Its trace, in hexadecimal.
    pub trace: String,
    /// Its own identity.
    pub span: String,
    /// Its parent; empty at the root.
    pub parent: String,
    /// 1 is internal, 2 a server's, 3 a client's.
    pub kind: i32,
    /// When it began, in nanoseconds since 1970.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
    /// Attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// One that runs in this process.
#[derive(Debug)]
pub struct Collector {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    manner: Manner,
    /// The head of each request, however it was answered.
    heads: Vec<String>,
    taken: Vec<Exported>,
}

impl Collector {
    /// Starts it.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(manner: Manner) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = State { manner, heads: Vec::new(), taken: Vec::new() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let of = Arc::downgrade(&shared);
        // It ends with the first connection after its collector.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(shared) = of.upgrade() else { return };
                thread::spawn(move || drop(shared.serve(stream)));
            }
        });
        Ok(Self { address, shared })
    }

    /// Its address, as settings have it.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers so from here on.
    pub fn be(&self, manner: Manner) {
        self.shared.state().manner = manner;
    }

    /// The head of each request so far, however it was answered.
    pub fn heads(&self) -> Vec<String> {
        self.shared.state().heads.clone()
    }

    /// The spans that it took so far.
    pub fn taken(&self) -> Vec<Exported> {
        self.shared.state().taken.clone()
    }

    /// Waits until there were so many requests.
    ///
    /// # Panics
    /// There never are.
    pub fn asked(&self, times: usize) {
        drop(self.shared.wait("requests", |state| state.heads.len() >= times));
    }

    /// Waits for spans of which this is true, and returns all.
    ///
    /// # Panics
    /// They never come.
    pub fn until(&self, what: &str, check: impl Fn(&[Exported]) -> bool) -> Vec<Exported> {
        self.shared.wait(what, |state| check(&state.taken)).taken.clone()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, what: &str, check: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_timeout_while(self.state(), PATIENCE, |state| !check(state));
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "never: {what}: {:#?}", state.taken);
        state
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let from = head.len();
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
            let line = head.get(from..).unwrap_or_default().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let request = ExportTraceServiceRequest::decode(body.as_slice()).map_err(io::Error::other)?;
        let mut state = self.state();
        let manner = state.manner.clone();
        state.heads.push(head);
        let answer = match &manner {
            Manner::Takes | Manner::Garbles | Manner::Rejects(_) => {
                state.taken.extend(exported(request));
                "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n".to_owned()
            }
            Manner::Status(status, lines) => format!("HTTP/1.1 {status} As said\r\n{lines}"),
            Manner::Hangs | Manner::Leaves => String::new(),
        };
        self.changed.notify_all();
        drop(state);
        let body = match manner {
            Manner::Rejects(rejected_spans) => {
                let part = ExportTracePartialSuccess { rejected_spans, error_message: "said".to_owned() };
                ExportTraceServiceResponse { partial_success: Some(part) }.encode_to_vec()
            }
            Manner::Garbles => vec![0xff; 100],
            Manner::Hangs => return reader.read(&mut [0]).map(drop),
            Manner::Leaves => return Ok(()),
            Manner::Takes | Manner::Status(..) => Vec::new(),
        };
        let mut stream = reader.into_inner();
        stream.write_all(format!("{answer}content-length: {}\r\n\r\n", body.len()).as_bytes())?;
        stream.write_all(&body)
    }
}

/// The spans of a request.
fn exported(request: ExportTraceServiceRequest) -> Vec<Exported> {
    let mut all = Vec::new();
    for process in request.resource_spans {
        let resource = process.resource.map(|resource| texts(resource.attributes)).unwrap_or_default();
        let service = resource.get("service.name").cloned().unwrap_or_default();
        let spans = process.scope_spans.into_iter().flat_map(|scope| scope.spans);
        all.extend(spans.map(|span| one(service.clone(), span)));
    }
    all
}

fn one(service: String, span: Span) -> Exported {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Exported {
        service,
        name: span.name,
        trace: hex(&span.trace_id),
        span: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: span.kind,
        began: span.start_time_unix_nano,
        ended: span.end_time_unix_nano,
        attributes: texts(span.attributes),
        error: span.status.filter(|status| status.code == 2).map(|status| status.message),
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |pair: KeyValue| {
        let value = match pair.value.and_then(|value| value.value) {
            Some(Value::StringValue(text)) => text,
            Some(Value::BoolValue(flag)) => flag.to_string(),
            Some(Value::IntValue(count)) => count.to_string(),
            Some(Value::DoubleValue(measure)) => measure.to_string(),
            other => format!("{other:?}"),
        };
        (pair.key, value)
    };
    attributes.into_iter().map(text).collect()
}
