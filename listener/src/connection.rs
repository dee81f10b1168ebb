//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::uri::Authority;
use axum::http::{Extensions, Request, Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tidegate_tls::Certificate;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch as flag};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::Code;
use tonic::transport::server::TcpConnectInfo;
use tower::ServiceExt as _;
use tower::util::Either;

use super::bodies::{Held, boxed};
use super::{Door, Surface, opening, refusal};

/// Time for a peer to send anything, and then to send the head of a first request. Half of it is short for a path that
/// loses packets; with twice of it, a slow sender holds a connection for longer.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Time from the head of a request to the head of its answer. Half of it is short for a disk that hangs; with twice of
/// it, a sender that never ends a request holds its place for minutes.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Time without a request, or with a part of one's head, after which a connection ends. Half of it would end those of
/// scrapers that come every minute; with twice of it, the places of a burst stay taken for minutes.
const IDLE: Duration = Duration::from_secs(90);
/// Time between HTTP/2 pings.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Time to answer a ping: as long as a peer may take to read what was sent before it. With half of it, a thousand nodes
/// that connect at once to a busy controller are cut off, and connect again.
const PONG_WITHIN: Duration = Duration::from_secs(30);
/// Requests and streams of one connection at a time. A node has two streams and a gateway three; an operator's tools
/// have a few. Half of it would be short for a proxy that shares a connection among nodes; twice of it doubles what one
/// connection can make the controller hold.
const MOST_STREAMS: u32 = 128;
/// Bytes of a request's head. Half of it is less than some proxies add in cookies.
pub(super) const MOST_HEAD: u32 = 16 << 10;
/// Bytes that HTTP/1 reads ahead; at least the size of a head.
const READ_AHEAD: usize = 32 << 10;
/// Bytes of one stream, and of all streams of a connection, that a peer may send before they are read. Half of it slows
/// a large body down at a distance; twice of it is held for peers that send unrequested bytes.
const WINDOWS: (u32, u32) = (128 << 10, 256 << 10);
/// Bytes of answers that wait in a stream for its peer. With half of it, a message has more parts; twice of it is held
/// for each stream that is not read.
const SEND_AHEAD: usize = 16 << 10;

/// Bytes of one frame that a peer may send: the least that HTTP/2 allows, since more is only held at once.
const MOST_FRAME: u32 = 16 << 10;
/// Requests that a peer may take back before they are looked at; beyond, its connection ends. Half of it would end those
/// of clients that give up on a burst; twice of it is twice the work for nothing. *Source:* CVE-2023-44487.
const MOST_TAKEN_BACK: usize = 20;
/// Streams that a peer may break the protocol on; beyond, its connection ends. Half of it is as good; h2's own default
/// of a thousand lets each peer have that many errors written for it.
const MOST_BROKEN: usize = 100;

/// The shared state of a connection's handlers.
#[derive(Debug)]
pub struct Connection {
    /// Number of requests without a complete answer.
    open: flag::Sender<usize>,
    cut: Notify,
}

impl Connection {
    fn new() -> Self {
        Self { open: flag::Sender::new(0), cut: Notify::new() }
    }

    /// Ends the connection, because a peer does not read one of its streams: everything that waits for it is held until
    /// then.
    pub fn cut(&self) {
        self.cut.notify_one();
    }

    /// Waits until no request was open for a while; returns the reason to close.
    fn idle(&self, surface: Surface) -> impl Future<Output = &'static str> + use<> {
        // Subscribes at once: a request may be answered before the future is polled.
        idle(self.open.subscribe(), surface)
    }
}

async fn idle(mut open: flag::Receiver<usize>, surface: Surface) -> &'static str {
    // A gRPC node may connect before it has anything to ask; for HTTP/1 this is the only way to distinguish a slow head
    // from none.
    if surface == Surface::Rest && timeout(HEAD_WITHIN, open.changed()).await.is_err() {
        return "slow_head";
    }
    loop {
        // No error is possible: `self` holds the sender.
        let _ = open.wait_for(|open| *open == 0).await;
        tokio::select! {
            () = sleep(IDLE) => return "idle",
            _ = open.changed() => {}
        }
    }
}

/// An open request.
struct Busy(Arc<Connection>);

impl Busy {
    fn new(connection: &Arc<Connection>) -> Self {
        connection.open.send_modify(|open| *open = open.saturating_add(1));
        Self(Arc::clone(connection))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open = open.saturating_sub(1));
    }
}

/// Who is at the other end of a connection.
struct Peer {
    local: Option<SocketAddr>,
    address: SocketAddr,
    greeting: Extensions,
}

impl Peer {
    fn of(
        door: &Door,
        local: Option<SocketAddr>,
        address: SocketAddr,
        shown: Option<&Certificate>,
    ) -> Arc<Self> {
        let greeting = door.greeting.as_ref().map(|greet| greet(shown, address)).unwrap_or_default();
        Arc::new(Self { local, address, greeting })
    }
}

/// Serves a connection to its end.
pub(super) async fn serve(
    door: &Arc<Door>,
    stream: TcpStream,
    peer: SocketAddr,
    mut stopped: flag::Receiver<bool>,
) {
    let local = stream.local_addr().ok();
    // Before the handshake, so that no list comes between the two unseen.
    let renewals = door.tls.as_ref().and_then(|tls| tls.renewals());
    let opening = async {
        match door.tls.clone() {
            None => opening::plain(door, stream).await.map(Either::Left),
            Some(tls) => opening::secure(door, &tls, stream).await.map(Either::Right),
        }
    };
    let opened = tokio::select! {
        opened = opening => opened,
        _ = stopped.wait_for(|stopped| *stopped) => return,
    };
    match opened {
        None => {}
        Some(Either::Left(stream)) => {
            let peer = Peer::of(door, local, peer, None);
            converse(door, stream, peer, std::future::pending(), stopped).await;
        }
        Some(Either::Right(stream)) => {
            let peer = Peer::of(door, local, peer, opening::shown(&stream).as_ref());
            let revoked = opening::revoked(door, renewals, &stream);
            converse(door, stream, peer, revoked, stopped).await;
        }
    }
}

/// Speaks HTTP on a connection that began well.
async fn converse(
    door: &Arc<Door>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Arc<Peer>,
    revoked: impl Future<Output = ()>,
    mut stopped: flag::Receiver<bool>,
) {
    let surface = door.surface;
    let turned_away = |reason| door.tally.turned_away(surface, reason);
    let connection = Arc::new(Connection::new());
    let shared = Arc::clone(&connection);
    let handled = Arc::clone(door);
    let service = service_fn(move |request: Request<Incoming>| {
        let (door, connection, peer) = (Arc::clone(&handled), Arc::clone(&shared), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(answer(&door, &connection, request, &peer).await) }
    });
    let builder = builder(surface);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut idle = pin!(connection.idle(surface));
    let mut revoked = pin!(revoked);
    let mut ending: Option<Instant> = None;
    loop {
        tokio::select! {
            _ = serving.as_mut() => return,
            _ = stopped.wait_for(|stopped| *stopped), if ending.is_none() => {
                serving.as_mut().graceful_shutdown();
                ending = Some(Instant::now() + ANSWER_WITHIN);
            }
            reason = idle.as_mut(), if ending.is_none() => {
                turned_away(reason);
                serving.as_mut().graceful_shutdown();
                ending = Some(Instant::now() + KEEPALIVE);
            }
            () = connection.cut.notified() => return turned_away("unread"),
            () = revoked.as_mut() => return turned_away("revoked"),
            () = until(ending), if ending.is_some() => return,
        }
    }
}

async fn until(end: Option<Instant>) {
    if let Some(end) = end {
        let _ = timeout_at(end, std::future::pending::<()>()).await;
    }
}

fn builder(surface: Surface) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    if surface == Surface::Grpc {
        builder = builder.http2_only();
    }
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(READ_AHEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(PONG_WITHIN)
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(MOST_HEAD)
        .max_frame_size(MOST_FRAME)
        .max_pending_accept_reset_streams(MOST_TAKEN_BACK)
        .max_local_error_reset_streams(MOST_BROKEN)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .max_send_buf_size(SEND_AHEAD);
    builder
}

/// Answers one request.
async fn answer(
    door: &Arc<Door>,
    connection: &Arc<Connection>,
    request: Request<Incoming>,
    peer: &Peer,
) -> Response<Body> {
    let busy = Busy::new(connection);
    let surface = door.surface;
    let response = match refused(door, &request) {
        Some(response) => response,
        None => {
            let tally = Arc::clone(&door.tally);
            let turned_away = move |reason| tally.turned_away(surface, reason);
            let mut request = request.map(|body| boxed(Held::new(body, surface, &door.bodies, turned_away)));
            let extensions = request.extensions_mut();
            extensions.insert(TcpConnectInfo { local_addr: peer.local, remote_addr: Some(peer.address) });
            extensions.insert(ConnectInfo(peer.address));
            extensions.extend(peer.greeting.clone());
            extensions.insert(Arc::clone(connection));
            match timeout(ANSWER_WITHIN, door.router.clone().oneshot(request)).await {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                Err(_) => {
                    door.tally.turned_away(surface, "slow_answer");
                    late(surface)
                }
            }
        }
    };
    door.tally.requested(surface, outcome(surface, &response));
    response.map(|body| Body::new(Answer { body, _busy: busy }))
}

/// The answer to a request that no route serves.
fn refused(door: &Door, request: &Request<Incoming>) -> Option<Response<Body>> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_grpc = kind.is_some_and(|kind| kind.starts_with("application/grpc"));
    match door.surface {
        Surface::Grpc if !is_grpc => Some(refusal::no_message(door.other())),
        Surface::Rest if is_grpc => Some(refusal::not_rest(door.other())),
        Surface::Grpc => None,
        Surface::Rest => {
            // HTTP/2 has it in the place of the host of the URI.
            let named = request.uri().authority().map(Authority::as_str);
            let host = named.or_else(|| request.headers().get(header::HOST)?.to_str().ok());
            let message = door.hosts.refusal(host)?;
            Some(refusal::rest(StatusCode::MISDIRECTED_REQUEST, "misdirected", &message))
        }
    }
}

fn late(surface: Surface) -> Response<Body> {
    let message =
        format!("no answer within {} s; whether it was done shows when you look", ANSWER_WITHIN.as_secs());
    match surface {
        Surface::Grpc => refusal::grpc(Code::DeadlineExceeded, &message),
        Surface::Rest => refusal::rest(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &message),
    }
}

/// The outcome of a request: a call that ends later with an error has begun well.
fn outcome(surface: Surface, response: &Response<Body>) -> &'static str {
    let status = response.status();
    let grpc = response.headers().get("grpc-status").and_then(|code| code.to_str().ok()?.parse::<i32>().ok());
    match (surface, grpc.map(Code::from_i32)) {
        (Surface::Rest, _) | (_, None) if status.is_server_error() => "failed",
        (Surface::Rest, _) | (_, None) if status.is_client_error() => "refused",
        (Surface::Rest, _) | (_, None | Some(Code::Ok)) => "ok",
        (_, Some(Code::Unknown | Code::Internal | Code::Unavailable | Code::DataLoss)) => "failed",
        (_, Some(_)) => "refused",
    }
}

/// An answer's body; its request is open until it ends.
struct Answer {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waited_for_too_long_is_told_so_in_its_protocol_and_it_is_a_failure() {
        let grpc = late(Surface::Grpc);
        assert_eq!(grpc.headers()["grpc-status"], "4");
        assert!(
            grpc.headers()["grpc-message"].to_str().unwrap().starts_with("no%20answer%20within%2060%20s")
        );
        assert_eq!(late(Surface::Rest).status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(outcome(Surface::Rest, &late(Surface::Rest)), "failed");
    }

    #[test]
    fn an_answer_counts_by_its_status_and_a_call_by_the_code_that_it_ends_with() {
        let answered = |surface, status, code: Option<i32>| {
            let mut response = Response::builder().status(status);
            if let Some(code) = code {
                response = response.header("grpc-status", code);
            }
            outcome(surface, &response.body(Body::empty()).unwrap())
        };
        for (status, expected) in
            [(200, "ok"), (304, "ok"), (404, "refused"), (429, "refused"), (500, "failed")]
        {
            assert_eq!(answered(Surface::Rest, status, None), expected, "{status}");
            // Only what is no gRPC is answered so; a call that goes on has no code yet.
            assert_eq!(answered(Surface::Grpc, status, None), expected, "{status}");
        }
        for code in 0..=16 {
            let expected = match code {
                0 => "ok",
                2 | 13..=15 => "failed",
                _ => "refused",
            };
            assert_eq!(answered(Surface::Grpc, 200, Some(code)), expected, "{code}");
        }
    }
}
