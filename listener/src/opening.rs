//! How a connection begins: its first bytes, and the handshake of TLS.
//!
//! Both have [`HEAD_WITHIN`] together, so that a silent peer gives its place back. Bytes of another protocol than the
//! listener's are answered in that one. In: a socket. Out: a connection whose first bytes are still to be read.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_tls::{Certificate, Server};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch as flag;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::server::TlsStream;

use super::connection::{HEAD_WITHIN, MOST_HEAD};
use super::{Door, Surface, refusal};

/// Interval at which the first bytes of a connection are checked.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Bytes that distinguish the protocols.
const TELLING: usize = 3;
/// The first bytes of HTTP/2.
const HTTP2: [u8; TELLING] = *b"PRI";

/// Begins without TLS; `None` when the peer is not served.
pub(super) async fn plain(door: &Door, stream: TcpStream) -> Option<TcpStream> {
    let word = match timeout(HEAD_WITHIN, first_bytes(&stream)).await {
        Err(_) => return turned_away(door, "silent"),
        Ok(None) => return None,
        Ok(Some(first)) if is_hello(first) => Some(refusal::no_tls()),
        Ok(Some(first)) if door.surface == Surface::Grpc && first != HTTP2 => {
            Some(refusal::not_grpc(door.other()))
        }
        Ok(Some(_)) => None,
    };
    if let Some(word) = word {
        turned_away::<()>(door, "wrong_protocol");
        answer(stream, &word).await;
        return None;
    }
    let _ = stream.set_nodelay(true);
    Some(stream)
}

/// Begins under TLS; `None` when the peer is not served.
pub(super) async fn secure(
    door: &Door,
    tls: &Server,
    stream: TcpStream,
) -> Option<Begun<TlsStream<TcpStream>>> {
    let end = Instant::now() + HEAD_WITHIN;
    match timeout_at(end, first_bytes(&stream)).await {
        Err(_) => return turned_away(door, "silent"),
        Ok(None) => return None,
        Ok(Some(first)) if !is_hello(first) => {
            turned_away::<()>(door, "wrong_protocol");
            answer(stream, &refusal::only_tls(first == HTTP2)).await;
            return None;
        }
        Ok(Some(_)) => {}
    }
    let _ = stream.set_nodelay(true);
    // A handshake is large, and a connection should not hold the room for it.
    let handshake = Box::pin(tls.acceptor().accept(stream).into_fallible());
    let mut stream = match timeout_at(end, handshake).await {
        Err(_) => return turned_away(door, "slow_handshake"),
        Ok(Err((error, stream))) => {
            failed(door, stream.peer_addr().ok(), &error);
            // The peer reads why.
            linger(stream).await;
            return None;
        }
        Ok(Ok(stream)) => stream,
    };
    let mut first = [0; TELLING];
    match timeout_at(end, stream.read_exact(&mut first)).await {
        Err(_) => return turned_away(door, "silent"),
        Ok(Err(_)) => return None,
        Ok(Ok(_)) if door.surface == Surface::Grpc && first != HTTP2 => {
            turned_away::<()>(door, "wrong_protocol");
            let word = refusal::not_grpc(door.other());
            let said = async {
                stream.write_all(&word).await?;
                stream.shutdown().await
            };
            let _ = timeout(HEAD_WITHIN, said).await;
            linger(stream.into_inner().0).await;
            return None;
        }
        Ok(Ok(_)) => {}
    }
    Some(Begun { first, given: 0, stream })
}

/// Counts a handshake that failed, against the peer's address too.
fn failed(door: &Door, peer: Option<SocketAddr>, error: &io::Error) {
    turned_away::<()>(door, "handshake");
    let Some(peer) = peer else { return };
    door.failures.failed(peer.ip());
    if let Some(left_out) = door.failures.say() {
        tracing::info!(surface = door.surface.name(), %peer, %error, left_out, "a handshake failed");
    }
}

/// The certificate that the peer showed, which the handshake has verified.
pub(super) fn shown(begun: &Begun<TlsStream<TcpStream>>) -> Option<Certificate> {
    let shown = begun.stream.get_ref().1.peer_certificates()?.first()?;
    // The handshake has read it, too.
    Certificate::of(shown).ok()
}

/// Waits until the certificate that the peer showed is revoked, by lists renewed since `renewals` was taken.
pub(super) fn revoked(
    door: &Door,
    renewals: Option<flag::Receiver<u64>>,
    begun: &Begun<TlsStream<TcpStream>>,
) -> impl Future<Output = ()> + use<> {
    let shown = begun.stream.get_ref().1.peer_certificates().filter(|_| renewals.is_some());
    // Kept for as long as the connection, where it can be of use.
    let chain: Option<Vec<_>> = shown.map(|chain| chain.iter().map(|one| one.clone().into_owned()).collect());
    let tls = door.tls.clone();
    async move {
        match (tls, renewals, chain) {
            (Some(tls), Some(renewals), Some(chain)) => tls.revoked(renewals, &chain).await,
            _ => std::future::pending().await,
        }
    }
}

fn turned_away<T>(door: &Door, reason: &'static str) -> Option<T> {
    door.tally.turned_away(door.surface, reason);
    None
}

/// Whether a handshake of TLS begins so.
fn is_hello(first: [u8; TELLING]) -> bool {
    matches!(first, [0x16, 3, _])
}

/// The first bytes, which stay unread; `None` when the peer is gone.
async fn first_bytes(stream: &TcpStream) -> Option<[u8; TELLING]> {
    let mut first = [0; TELLING];
    loop {
        match stream.peek(&mut first).await.ok()? {
            0 => return None,
            TELLING => return Some(first),
            // The socket is readable already, so that only a pause can wait for more bytes.
            _ => sleep(LOOK_AGAIN).await,
        }
    }
}

async fn answer(mut stream: TcpStream, word: &[u8]) {
    let _ = timeout(HEAD_WITHIN, stream.write_all(word)).await;
    linger(stream).await;
}

/// Lets the peer read the answer: closing a socket with unread bytes would discard it.
async fn linger(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    let mut rest = [0; 1_024];
    let read = async {
        // Reads no more than a head of the misdirected bytes.
        for _ in 0..MOST_HEAD / 1_024 {
            if stream.readable().await.is_err() || matches!(stream.try_read(&mut rest), Ok(0)) {
                return;
            }
        }
    };
    let _ = timeout(Duration::from_secs(1), read).await;
}

/// A connection whose first bytes were read, and are given to who reads it next.
pub(super) struct Begun<S> {
    first: [u8; TELLING],
    given: usize,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.first.get(self.given..).unwrap_or_default();
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let take = left.len().min(buffer.remaining());
        buffer.put_slice(left.get(..take).unwrap_or_default());
        self.given += take;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Its place among the connections is taken until then.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_refused_and_stays_is_let_go_after_a_second() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (refused, _) = listener.accept().await.unwrap();
        let began = Instant::now();
        timeout(HEAD_WITHIN, linger(refused)).await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 1);
        drop(peer);
    }
}
