//! A client's connection, plain or under TLS, whose errors say what to do.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arc_swap::ArcSwapOption;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::client::HTTP2;
use crate::explain::{ONLY_TLS, explain};

/// How an alert of TLS begins, in the answer of a server that was spoken to without.
const ALERT: [u8; 2] = [0x15, 3];

/// A connection to `host`.
#[derive(Debug)]
pub struct Stream {
    inner: Inner,
    host: String,
    /// Nothing came yet.
    is_new: bool,
    refused: Refused,
}

/// Why a server ended a connection, for the caller of a request on it: layers between say only that it is closed.
pub(crate) type Refused = Arc<ArcSwapOption<String>>;

/// Plain, or under TLS.
type Inner = Either<TcpStream, Box<TlsStream<TcpStream>>>;

impl Stream {
    pub(crate) fn plain(tcp: TcpStream, host: String, refused: Refused) -> Self {
        Self { inner: Either::Left(tcp), host, is_new: true, refused }
    }

    pub(crate) fn secure(tls: TlsStream<TcpStream>, host: String, refused: Refused) -> Self {
        Self { inner: Either::Right(Box::new(tls)), host, is_new: true, refused }
    }

    /// In TLS 1.3 a server refuses a client's certificate when the client holds the handshake for done.
    fn explained(&self, error: io::Error) -> io::Error {
        let is_secure = matches!(self.inner, Either::Right(_));
        // They have agreed on a protocol by then.
        match explain(&error, &self.host, HTTP2).filter(|_| is_secure && self.is_new) {
            Some(said) => self.refuse(error.kind(), said),
            None => error,
        }
    }

    fn refuse(&self, kind: io::ErrorKind, said: String) -> io::Error {
        self.refused.store(Some(Arc::new(said.clone())));
        io::Error::new(kind, said)
    }
}

/// Whether this answer to a client without TLS is that of a server with it: an alert, or what a listener of ours says,
/// which the layers above may lose.
fn wants_tls(answer: &[u8]) -> bool {
    let said = ONLY_TLS.as_bytes();
    answer.starts_with(&ALERT) || answer.windows(said.len()).any(|part| part == said)
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.inner).poll_read(cx, buffer));
        if let Err(error) = read {
            return Poll::Ready(Err(self.explained(error)));
        }
        if std::mem::take(&mut self.is_new) {
            let came = buffer.filled().get(before..).unwrap_or_default();
            if matches!(self.inner, Either::Left(_)) && wants_tls(came) {
                let said = format!("{} speaks TLS on this port; write https://", self.host);
                return Poll::Ready(Err(self.refuse(io::ErrorKind::Other, said)));
            }
            self.refused.store(None);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
