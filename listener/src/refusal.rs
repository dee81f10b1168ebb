//! Answers to callers that are not served, each in the caller's protocol.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;
use tidegate_tls::ONLY_TLS;
use tokio::net::TcpStream;
use tonic::{Code, Status};

use super::Surface;

/// An empty SETTINGS frame, with which every HTTP/2 server begins.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// HTTP/2's code for a peer that asks too much.
const ENHANCE_YOUR_CALM: u8 = 11;
/// HTTP/2's code for a peer that should speak under TLS.
const INADEQUATE_SECURITY: u8 = 12;

/// Answers that there are too many connections.
pub(super) fn full(surface: Surface, stream: &TcpStream) {
    let message = "too many connections; close some, or try again later";
    let bytes = match surface {
        Surface::Rest => plain(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message),
        Surface::Grpc => goaway(ENHANCE_YOUR_CALM, message),
    };
    // A peer that does not take it at once gets no answer.
    let _ = stream.try_write(&bytes);
}

/// The answer of the gRPC listener to a caller that speaks HTTP/1.
pub(super) fn not_grpc(other: Option<String>) -> Vec<u8> {
    plain(StatusCode::MISDIRECTED_REQUEST, "misdirected", &misdirected(other))
}

/// The answer to a caller that speaks TLS: the caller cannot read it, but a person who inspects the bytes can.
pub(super) fn no_tls() -> Vec<u8> {
    plain(
        StatusCode::BAD_REQUEST,
        "invalid",
        "this listener does not speak TLS; use http://, or give it a certificate",
    )
}

/// The answer to a caller that speaks without TLS to a listener under TLS, in the protocol that it began with.
pub(super) fn only_tls(is_http2: bool) -> Vec<u8> {
    if is_http2 {
        goaway(INADEQUATE_SECURITY, ONLY_TLS)
    } else {
        plain(StatusCode::BAD_REQUEST, "invalid", ONLY_TLS)
    }
}

fn misdirected(other: Option<String>) -> String {
    match other {
        Some(other) => {
            format!("this is the gRPC listener of a tidegate controller; REST is at {other}")
        }
        None => "this listener serves gRPC, over HTTP/2".to_owned(),
    }
}

/// The answer as an HTTP/1 message.
fn plain(status: StatusCode, code: &str, message: &str) -> Vec<u8> {
    let body = json!({"error": {"code": code, "message": message}}).to_string();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The answer as an HTTP/2 connection that ends before its first stream.
fn goaway(code: u8, message: &str) -> Vec<u8> {
    let length = u8::try_from(8 + message.len()).unwrap_or(u8::MAX);
    let text = message.bytes().take(usize::from(length - 8));
    let head = [0, 0, length, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, code];
    SETTINGS.into_iter().chain(head).chain(text).collect()
}

/// A REST answer.
pub(super) fn rest(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    let body = json!({"error": {"code": code, "message": message}}).to_string();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A gRPC answer.
pub(super) fn grpc(code: Code, message: &str) -> Response<Body> {
    Status::new(code, message).into_http::<Body>()
}

/// The answer of the REST listener to a gRPC caller.
pub(super) fn not_rest(other: Option<String>) -> Response<Body> {
    let message = match other {
        Some(other) => {
            format!("this is the REST listener of a tidegate controller; gRPC is at {other}")
        }
        None => "this listener serves HTTP, and no gRPC".to_owned(),
    };
    grpc(Code::Unimplemented, &message)
}

/// The answer of the gRPC listener to a caller without gRPC.
pub(super) fn no_message(other: Option<String>) -> Response<Body> {
    rest(StatusCode::MISDIRECTED_REQUEST, "misdirected", &misdirected(other))
}
