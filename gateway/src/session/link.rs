//! A session's two connections, and the bytes that have come in or go out.

use std::io;
use std::task::{Context, Poll};

use tokio::io::AsyncWriteExt as _;

use crate::buffer::{Inbox, Outbox};
use crate::clock;
use crate::govern::Proof;
use crate::stream::{GOODBYE, Stream};

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    client: Stream,
    server: Stream,
    pub(crate) from_client: Inbox,
    pub(crate) to_client: Outbox,
    pub(crate) from_server: Inbox,
    pub(crate) to_server: Outbox,
}

/// What became of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// There is more in the inbox.
    More,
    /// The other side has closed the connection.
    Closed,
}

/// A connection broke.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The client's.
    #[error("the client's connection failed: {0}")]
    Client(#[source] io::Error),
    /// The server's.
    #[error("the server's connection failed: {0}")]
    Server(#[source] io::Error),
}

impl Link {
    /// A link with nothing on its way.
    pub(crate) fn new(client: Stream, server: Stream) -> Self {
        Self {
            client,
            server,
            from_client: Inbox::new(),
            to_client: Outbox::default(),
            from_server: Inbox::new(),
            to_server: Outbox::default(),
        }
    }

    /// What tells the server's process behind the connection from others.
    pub(crate) fn server_proof(&self) -> Option<Proof> {
        self.server.proof()
    }

    /// Reads once from the client.
    pub(crate) fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<Result<Read, LinkError>> {
        self.from_client.poll_read(cx, &mut self.client).map(|read| outcome(read).map_err(LinkError::Client))
    }

    /// Reads once from the server.
    pub(crate) fn poll_server(&mut self, cx: &mut Context<'_>) -> Poll<Result<Read, LinkError>> {
        self.from_server.poll_read(cx, &mut self.server).map(|read| outcome(read).map_err(LinkError::Server))
    }

    /// While the client's side waits: takes what it sends as far as there is room, and sees that it goes away.
    pub(crate) fn poll_waiting_client(&mut self, cx: &mut Context<'_>) -> Poll<Result<Read, LinkError>> {
        if self.from_client.is_full() { Poll::Pending } else { self.poll_client(cx) }
    }

    /// Sends what is to go out. True when an outbox that was full has room again.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, LinkError> {
        let full = self.to_client.room() == 0 || self.to_server.room() == 0;
        if let Poll::Ready(sent) = self.to_client.poll_write(cx, &mut self.client) {
            sent.map_err(LinkError::Client)?;
        }
        // What the server said before it closed is still to be read, and tells more.
        if let Poll::Ready(Err(_)) = self.to_server.poll_write(cx, &mut self.server) {
            self.to_server = Outbox::default();
        }
        Ok(full && self.to_client.room() > 0 && self.to_server.room() > 0)
    }

    /// Gives both sides a moment to take what is left for them, and says goodbye: TLS tells an end that was meant from
    /// one that was cut.
    pub(crate) async fn last_words(&mut self) {
        let said = async {
            let client = finish(&mut self.to_client, &mut self.client);
            let server = finish(&mut self.to_server, &mut self.server);
            tokio::join!(client, server)
        };
        clock::within(GOODBYE, said).await;
    }
}

/// Who is gone already needs to hear nothing.
async fn finish(outbox: &mut Outbox, stream: &mut Stream) {
    if std::future::poll_fn(|cx| outbox.poll_write(cx, stream)).await.is_ok() {
        drop(stream.shutdown().await);
    }
}

fn outcome(read: io::Result<usize>) -> io::Result<Read> {
    match read {
        Ok(0) => Ok(Read::Closed),
        Ok(_) => Ok(Read::More),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Read::Closed),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_tests::servers::Certificates;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpSocket, TcpStream};

    use super::*;
    use crate::tls;
    use crate::upstream::TlsMode;

    /// Both ends of a connection whose sockets hold little.
    async fn narrow() -> (TcpStream, TcpStream) {
        let socket = || {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_send_buffer_size(4_096).unwrap();
            socket.set_recv_buffer_size(4_096).unwrap();
            socket
        };
        let listening = socket();
        listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = listening.listen(1).unwrap();
        let (near, far) = tokio::join!(socket().connect(listener.local_addr().unwrap()), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    /// The same under TLS, which the first has asked for.
    async fn secured(certificates: &Certificates) -> (Stream, Stream) {
        let acceptor = tls::acceptor(&certificates.certificate(), &certificates.key()).unwrap();
        let connector = tls::connector(TlsMode::Require, None).unwrap().unwrap();
        let (near, far) = narrow().await;
        let (near, far) = tokio::join!(tls::connect(&connector, "localhost", near), acceptor.accept(far));
        (Stream::TlsToServer(Box::new(near.unwrap())), Stream::TlsFromClient(Box::new(far.unwrap())))
    }

    #[tokio::test]
    async fn what_tls_has_taken_and_its_socket_has_not_goes_out_too() {
        let certificates = Certificates::new("DNS:localhost").unwrap();
        let (mut client, from_client) = secured(&certificates).await;
        let (to_server, mut server) = secured(&certificates).await;
        let mut link = Link::new(from_client, to_server);
        let sent: Vec<u8> = (0..60_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        link.to_client.add(&sent);
        link.to_server.add(&sent);
        std::future::poll_fn(|cx| Poll::Ready(link.poll_write(cx).unwrap())).await;
        assert_eq!((link.to_client.len(), link.to_server.len()), (0, 0), "TLS takes all of it");
        let write = std::future::poll_fn(|cx| link.poll_write(cx).map_or(Poll::Ready(()), |_| Poll::Pending));
        let read = async {
            let (mut at_client, mut at_server) = (vec![0; sent.len()], vec![0; sent.len()]);
            client.read_exact(&mut at_client).await.unwrap();
            server.read_exact(&mut at_server).await.unwrap();
            assert!(at_client == sent && at_server == sent);
        };
        let all = async {
            tokio::select! { () = write => panic!("the link broke"), () = read => {} }
        };
        tokio::time::timeout(Duration::from_secs(10), all).await.expect("all of it arrives");
    }
}
