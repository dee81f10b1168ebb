//! What can happen: one event, drawn from an input.

use axum::body::{Body, Bytes};
use axum::http::Request;
use http_body_util::BodyExt as _;
use prost::Message as _;
use tidegate_proto::v1;
use tower::ServiceExt as _;
use v1::client_message::Kind as Ask;

use super::draw;
use super::lab::{Lab, STREAMS};
use super::stream::{Phase, Stream};
use crate::input::Input;

/// Calls of the admin API that read and need no argument.
const READS: [&str; 8] = [
    "ListGroups",
    "ListBindings",
    "GetCostTables",
    "Usage",
    "ListClients",
    "ListLeases",
    "Status",
    "AuditLog",
];
/// Those that need one, or change something.
const OTHERS: [&str; 9] = [
    "CreateGroup",
    "AlterGroup",
    "DeleteGroup",
    "GetGroup",
    "Bind",
    "Unbind",
    "Resolve",
    "PutCostTable",
    "UsageHistory",
];

/// Draws one event and lets it happen.
pub(super) async fn next(lab: &mut Lab, input: &mut Input<'_>) {
    let choice = input.byte();
    let slot = usize::from(choice >> 6) % STREAMS;
    match choice & 0x3f {
        0..=3 => {
            open(lab, slot).await;
            say(lab, slot, Ask::Hello(draw::hello(lab, input))).await;
        }
        4 => open(lab, slot).await,
        5 => say(lab, slot, Ask::Hello(draw::hello(lab, input))).await,
        6..=33 => {
            if let Some(renew) = draw::renew(lab, slot, input) {
                say(lab, slot, Ask::Renew(renew)).await;
            }
        }
        34..=35 => {
            if let Some(goodbye) = draw::goodbye(lab, slot, input) {
                say(lab, slot, Ask::Goodbye(goodbye)).await;
            }
        }
        36..=39 => {
            let message = input.piece().to_vec();
            lab.say(slot, &message).await;
        }
        40..=41 => broken_frame(lab, slot, input).await,
        42 => hang_up(lab, slot).await,
        43..=50 => {
            let micros = input.between(0, 8_000_000);
            lab.pass(micros);
        }
        51..=52 => lab.flush(),
        53 => lab.crash(),
        54 => lab.restart().await,
        55..=59 => draw::change(lab, input),
        60 => lab.audit(),
        _ => call(lab, input).await,
    }
}

async fn open(lab: &mut Lab, slot: usize) {
    let stream = Stream::open(&lab.grpc).await;
    if let Some(place) = lab.streams.get_mut(slot) {
        *place = Some(stream);
    }
}

async fn say(lab: &mut Lab, slot: usize, ask: Ask) {
    lab.say(slot, &v1::ClientMessage { kind: Some(ask) }.encode_to_vec()).await;
}

/// A frame that says it is compressed, is longer than allowed, or longer than what follows.
async fn broken_frame(lab: &mut Lab, slot: usize, input: &mut Input<'_>) {
    let Some(mut stream) = lab.streams.get_mut(slot).and_then(Option::take) else { return };
    let rest = input.piece();
    let (flag, length) = match input.below(4) {
        0 => (1, rest.len()),
        1 => (usize::from(input.byte().max(1)), rest.len()),
        2 => (0, rest.len() + 1 + input.below(256)),
        _ => (0, 4 * 1024 * 1024 + 1 + input.below(256)),
    };
    let mut frame = vec![u8::try_from(flag).unwrap_or(1)];
    frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(rest);
    stream.send(frame).await;
    stream.hang_up();
    let code = stream.until_the_end().await;
    // A frame that is cut right after its length is taken for no frame by the protocol library.
    assert!(code != tonic::Code::Ok || rest.is_empty(), "a broken frame is no good end");
}

/// The node goes away without a word; a stream that was welcomed ends well.
async fn hang_up(lab: &mut Lab, slot: usize) {
    let Some(mut stream) = lab.streams.get_mut(slot).and_then(Option::take) else { return };
    stream.hang_up();
    let phase = stream.phase.clone();
    let code = stream.until_the_end().await;
    let welcomed = matches!(phase, Phase::Open { replaced: false, .. });
    assert_eq!(code == tonic::Code::Ok, welcomed, "hanging up in {phase:?} ended with {code}");
}

/// A call of the admin API with any bytes as its message.
async fn call(lab: &mut Lab, input: &mut Input<'_>) {
    let name = if input.flag() { input.pick(&READS) } else { input.pick(&OTHERS) }.unwrap_or("Status");
    let message = input.piece();
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(message);
    let (code, text) = unary(lab, name, frame).await;
    let server_fault = [tonic::Code::Unknown, tonic::Code::Unavailable, tonic::Code::DataLoss];
    assert!(
        !server_fault.contains(&code) && !text.contains("internal%20error"),
        "{name} ended with {code} {text}"
    );
    lab.prune();
    // Reading the history brings what is counted to disk first.
    if name == "UsageHistory" {
        lab.flush();
    }
}

/// The status of a call, and its message.
async fn unary(lab: &Lab, name: &str, frame: Vec<u8>) -> (tonic::Code, String) {
    let request = Request::post(format!("/tidegate.v1.Admin/{name}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::from(Bytes::from(frame)))
        .expect("a request");
    let response = lab.grpc.clone().oneshot(request).await.expect("a router never fails");
    let headers = response.headers().clone();
    let body = response.into_body().collect().await.expect("a body");
    let trailers = body.trailers().unwrap_or(&headers);
    let text = |name| trailers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status").and_then(|status| status.parse().ok()).expect("a status");
    (tonic::Code::from_i32(code), text("grpc-message").unwrap_or_default().to_owned())
}

impl Lab {
    /// Every page that an operator can read is there.
    pub(super) async fn look(&self) {
        for name in READS {
            let (code, text) = unary(self, name, vec![0; 5]).await;
            assert_eq!(code, tonic::Code::Ok, "{name}: {text}");
        }
        let page = self.service.metrics_page().expect("metrics");
        assert!(page.ends_with("# EOF\n"), "{page}");
    }
}
