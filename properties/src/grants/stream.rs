//! One grant stream as the wire has it: frames of a length and a message, in both directions.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use prost::Message as _;
use tidegate_proto::v1;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tower::ServiceExt as _;

/// An answer takes no time; one that does not come is a defect.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes in front of a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Where a stream is in the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The client has said nothing yet.
    Fresh,
    /// Welcomed.
    Open {
        /// The node that was welcomed.
        name: String,
        incarnation: u64,
        /// A newer stream of the node was welcomed since.
        replaced: bool,
    },
}

/// Something heard.
#[derive(Debug)]
pub(super) enum Heard {
    Message(v1::server_message::Kind),
    /// The stream ended.
    End(Code),
}

/// A stream.
pub(super) struct Stream {
    pub(super) phase: Phase,
    frames: Option<mpsc::Sender<Result<Bytes, Infallible>>>,
    answers: Body,
    unread: Vec<u8>,
}

impl Stream {
    /// Opens a stream; nothing is said yet.
    pub(super) async fn open(grpc: &Router) -> Self {
        let (frames, body) = mpsc::channel(4);
        let request = Request::post("/tidegate.v1.Grants/Session")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Body::from_stream(ReceiverStream::new(body)))
            .expect("a request");
        let response = grpc.clone().oneshot(request).await.expect("a router never fails");
        assert_eq!(response.status(), StatusCode::OK);
        Self { phase: Phase::Fresh, frames: Some(frames), answers: response.into_body(), unread: Vec::new() }
    }

    /// Sends bytes as they are.
    pub(super) async fn send(&self, bytes: Vec<u8>) {
        if let Some(frames) = &self.frames {
            // The controller may have ended the stream already.
            let _ = frames.send(Ok(bytes.into())).await;
        }
    }

    /// Sends a message, right or wrong, in a frame.
    pub(super) async fn send_message(&self, message: &[u8]) {
        let length = u32::try_from(message.len()).expect("a short message");
        let mut frame = vec![0];
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(message);
        self.send(frame).await;
    }

    /// Says that nothing more comes.
    pub(super) fn hang_up(&mut self) {
        self.frames = None;
    }

    /// The next thing heard.
    pub(super) async fn next(&mut self) -> Heard {
        loop {
            if let Some(message) = self.unframed() {
                let message =
                    v1::ServerMessage::decode(message.as_slice()).expect("the controller's own message");
                return Heard::Message(message.kind.expect("a message of some kind"));
            }
            let frame = timeout(PATIENCE, self.answers.frame()).await.expect("an answer");
            match frame.map(|frame| frame.expect("a frame").into_data()) {
                Some(Ok(data)) => self.unread.extend_from_slice(&data),
                Some(Err(trailers)) => {
                    let trailers = trailers.into_trailers().expect("data or trailers");
                    let status = trailers.get("grpc-status").and_then(|status| status.to_str().ok());
                    let code = status.and_then(|status| status.parse::<i32>().ok()).expect("a status");
                    return Heard::End(Code::from_i32(code));
                }
                None => panic_without_status(),
            }
        }
    }

    /// The next whole message of what was read.
    fn unframed(&mut self) -> Option<Vec<u8>> {
        let prefix = self.unread.get(1..PREFIX)?;
        let length = u32::from_be_bytes(prefix.try_into().ok()?);
        let end = PREFIX + usize::try_from(length).ok()?;
        let message = self.unread.get(PREFIX..end)?.to_vec();
        self.unread.drain(..end);
        Some(message)
    }

    /// Listens until the stream ends.
    pub(super) async fn until_the_end(mut self) -> Code {
        loop {
            if let Heard::End(code) = self.next().await {
                return code;
            }
        }
    }
}

#[expect(clippy::panic, reason = "a broken property stops the run")]
fn panic_without_status() -> ! {
    panic!("a stream ended without a status")
}
