//! A connection: plain, over a Unix socket, or under TLS on either side.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::{client, server};

use crate::clock;
use crate::govern::Proof;

/// How long a peer may take for the last words.
pub(crate) const GOODBYE: Duration = Duration::from_millis(100);

/// A connection of either side.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// The gateway is the server of it.
    TlsFromClient(Box<server::TlsStream<TcpStream>>),
    /// The gateway is the client of it.
    TlsToServer(Box<client::TlsStream<TcpStream>>),
}

macro_rules! each {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Tcp($inner) => $call,
            Stream::Unix($inner) => $call,
            Stream::TlsFromClient($inner) => $call,
            Stream::TlsToServer($inner) => $call,
        }
    };
}

impl Stream {
    /// Whether it is under TLS.
    pub(crate) fn is_secure(&self) -> bool {
        matches!(self, Self::TlsFromClient(_) | Self::TlsToServer(_))
    }

    /// Sends all of it: written alone, TLS may keep what its socket had no room for.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await?;
        self.flush().await
    }

    /// Sends this as the last, and says goodbye, by which TLS distinguishes an intended end from a cut connection. A
    /// peer that is gone, or takes too long, needs no goodbye.
    pub(crate) async fn end(&mut self, bytes: &[u8]) {
        let said = async {
            self.send(bytes).await?;
            self.shutdown().await
        };
        drop(clock::within(GOODBYE, said).await);
    }

    /// Distinguishes the server process behind this connection from others, when it is on this machine.
    pub(crate) fn proof(&self) -> Option<Proof> {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::TlsFromClient(tls) => tls.get_ref().0,
            Self::TlsToServer(tls) => tls.get_ref().0,
            // The kernel keeps who listens; zero is a process that this one cannot see.
            Self::Unix(unix) => {
                let pid = unix.peer_cred().ok()?.pid()?;
                return u32::try_from(pid).ok().filter(|pid| *pid > 0).map(Proof::Postmaster);
            }
        };
        tcp.local_addr().ok().map(|address| Proof::Port(address.port()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match each!(self, inner => Pin::new(inner).poll_read(cx, buf)) {
            // Both protocols mark themselves where a message ends, and MySQL's clients leave without TLS's goodbye.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, inner => Pin::new(inner).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => Pin::new(inner).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::tls;
    use crate::upstream::TlsMode;

    #[tokio::test]
    async fn who_leaves_without_the_goodbye_of_tls_has_left_all_the_same() {
        for client_leaves in [true, false] {
            let (client, server) = tls::tests::ends(TlsMode::Require).await;
            let client = Stream::TlsToServer(Box::new(client.unwrap()));
            let server = Stream::TlsFromClient(Box::new(server.unwrap()));
            let (mut leaves, mut stays) = if client_leaves { (client, server) } else { (server, client) };
            // Bytes that are unread when a socket is closed break the connection; TLS has some of its own.
            stays.send(b"a").await.unwrap();
            assert_eq!(leaves.read_u8().await.unwrap(), b'a');
            leaves.send(b"b").await.unwrap();
            drop(leaves);
            let mut rest = Vec::new();
            stays.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"b");
        }
    }

    /// By this a session's server is told from processes of other machines that have the same number.
    #[tokio::test]
    async fn a_connection_s_proof_is_its_own_port_or_the_process_that_listens() {
        let (near, _far) = UnixStream::pair().unwrap();
        let own = Stream::Unix(near);
        assert_eq!(own.proof(), Some(Proof::Postmaster(std::process::id())));
        let (client, server) = tls::tests::ends(TlsMode::Require).await;
        let client = Stream::TlsToServer(Box::new(client.unwrap()));
        let server = Stream::TlsFromClient(Box::new(server.unwrap()));
        let port = |stream: &Stream| match stream.proof() {
            Some(Proof::Port(port)) => port,
            other => panic!("{other:?}"),
        };
        assert_ne!(port(&client), port(&server));
        let Stream::TlsFromClient(tls) = &server else { unreachable!() };
        assert_eq!(port(&client), tls.get_ref().0.peer_addr().unwrap().port());
        assert_eq!([&own, &client, &server].map(Stream::is_secure), [false, true, true]);
    }
}
