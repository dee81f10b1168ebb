//! A session's two connections, and the bytes that have come in or go out.
//!
//! A client that closes, or says that it sends no more, still has its statements run, as the server itself would run
//! them: when all of its bytes are on their way, the gateway says the same to the server, which ends its statement and
//! closes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncWrite as _, AsyncWriteExt as _};

use super::Side;
use crate::buffer::{Inbox, Outbox};
use crate::clock;
use crate::govern::Proof;
use crate::stream::{GOODBYE, Stream};

/// How long a client may take for the end of a result whose server has ended the session: what is in the kernel's
/// buffers and in ours, some MB. Half of it cuts results over slow lines; a client that reads nothing holds a place for
/// so long.
const RESULT: Duration = Duration::from_secs(10);

/// A client's connection and a server's.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: Stream,
    pub(crate) server: Stream,
    /// A client that closes has its statement killed.
    kills_abandoned: bool,
    /// The client sends no more.
    client_ended: bool,
    /// Nothing more is to go to the server.
    server_ends: Goodbye,
    pub(crate) from_client: Inbox,
    pub(crate) to_client: Outbox,
    pub(crate) from_server: Inbox,
    pub(crate) to_server: Outbox,
}

/// How far the gateway has said to the server that no more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goodbye {
    No,
    /// Once what is on its way has gone out.
    Wanted,
    Told,
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
    /// A link with nothing on its way; `kills_abandoned` when a client that closes is one that is gone.
    pub(crate) fn new(client: Stream, server: Stream, kills_abandoned: bool) -> Self {
        Self {
            client,
            server,
            kills_abandoned,
            client_ended: false,
            server_ends: Goodbye::No,
            from_client: Inbox::new(),
            to_client: Outbox::default(),
            from_server: Inbox::new(),
            to_server: Outbox::default(),
        }
    }

    /// The first bytes of what that side sent go to the other.
    pub(crate) fn pass(&mut self, from: Side, count: usize) {
        let (inbox, outbox) = self.way(from);
        outbox.add(inbox.data().get(..count).unwrap_or_default());
        inbox.consume(count);
    }

    /// They go nowhere.
    pub(crate) fn skip(&mut self, from: Side, count: usize) {
        self.way(from).0.consume(count);
    }

    /// The other side gets these bytes in their place.
    pub(crate) fn swap(&mut self, from: Side, count: usize, bytes: &[u8]) {
        let (inbox, outbox) = self.way(from);
        outbox.add(bytes);
        inbox.consume(count);
    }

    /// That side gets these bytes.
    pub(crate) fn add(&mut self, to: Side, bytes: &[u8]) {
        match to {
            Side::Client => self.to_client.add(bytes),
            Side::Server => self.to_server.add(bytes),
        }
    }

    fn way(&mut self, from: Side) -> (&mut Inbox, &mut Outbox) {
        match from {
            Side::Client => (&mut self.from_client, &mut self.to_server),
            Side::Server => (&mut self.from_server, &mut self.to_client),
        }
    }

    /// Distinguishes the server's process behind the connection from others.
    pub(crate) fn server_proof(&self) -> Option<Proof> {
        self.server.proof()
    }

    /// Reads once from the client, when all that it sent is on its way.
    pub(crate) fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<Result<Read, LinkError>> {
        let read = self.poll_waiting_client(cx);
        if self.client_ended {
            self.end_server();
        }
        read
    }

    /// Reads once from the server.
    pub(crate) fn poll_server(&mut self, cx: &mut Context<'_>) -> Poll<Result<Read, LinkError>> {
        self.from_server.poll_read(cx, &mut self.server).map(|read| outcome(read).map_err(LinkError::Server))
    }

    /// While the client's side waits: takes what it sends as far as there is room, and notices that it goes away. A
    /// client that goes away and is still served sends nothing more.
    pub(crate) fn poll_waiting_client(&mut self, cx: &mut Context<'_>) -> Poll<Result<Read, LinkError>> {
        if self.client_ended || self.from_client.is_full() {
            return Poll::Pending;
        }
        let read = ready!(self.from_client.poll_read(cx, &mut self.client));
        let read = outcome(read).map_err(LinkError::Client)?;
        if read == Read::Closed && !self.kills_abandoned {
            self.client_ended = true;
            return Poll::Pending;
        }
        Poll::Ready(Ok(read))
    }

    /// Says to the server that no more comes, once all bytes on their way have gone out.
    pub(crate) fn end_server(&mut self) {
        if self.server_ends == Goodbye::No {
            self.server_ends = Goodbye::Wanted;
        }
    }

    /// Sends what is to go out. True when an outbox that was full has room again.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, LinkError> {
        let (client_full, server_full) = (self.to_client.room() == 0, self.to_server.room() == 0);
        if let Poll::Ready(sent) = self.to_client.poll_write(cx, &mut self.client) {
            sent.map_err(LinkError::Client)?;
        }
        // What the server said before it closed is still to be read, and explains more.
        match self.to_server.poll_write(cx, &mut self.server) {
            Poll::Ready(Err(_)) => self.to_server = Outbox::default(),
            Poll::Ready(Ok(())) if self.server_ends == Goodbye::Wanted => {
                if Pin::new(&mut self.server).poll_shutdown(cx).is_ready() {
                    self.server_ends = Goodbye::Told;
                }
            }
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        Ok((client_full && self.to_client.room() > 0) || (server_full && self.to_server.room() > 0))
    }

    /// Waits until all that is to go out is on its way.
    pub(crate) async fn send(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.to_client.poll_write(cx, &mut self.client)).await?;
        poll_fn(|cx| self.to_server.poll_write(cx, &mut self.server)).await
    }

    /// Gives both sides a moment to take what is left for them, and says goodbye, by which TLS distinguishes an
    /// intended end from a cut connection. What the server said before it ended the session is worth more of the
    /// client's time.
    pub(crate) async fn last_words(&mut self, server_ended: bool) {
        let client = finish(&mut self.to_client, &mut self.client);
        let server = finish(&mut self.to_server, &mut self.server);
        let patience = if server_ended { RESULT } else { GOODBYE };
        let (_, server) = tokio::join!(clock::within(patience, client), clock::within(GOODBYE, server));
        self.client_ended = true;
        self.server_ends = if server.is_some() { Goodbye::Told } else { Goodbye::Wanted };
    }

    /// Drops what the server says, as its client is gone. True when there is room for more of it.
    pub(crate) fn poll_dismissed(&mut self, cx: &mut Context<'_>) -> bool {
        let full = self.to_client.room() == 0;
        self.to_client = Outbox::default();
        // Nothing is left for the client, and reading shows whether the server takes no more.
        drop(self.poll_write(cx));
        full
    }
}

/// A peer that is gone needs no goodbye.
async fn finish(outbox: &mut Outbox, stream: &mut Stream) {
    if poll_fn(|cx| outbox.poll_write(cx, stream)).await.is_ok() {
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
    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixStream;

    use super::*;
    use crate::session::tests::narrow;
    use crate::tls;
    use crate::upstream::TlsMode;

    /// Both ends of a narrow connection under TLS, which the first has asked for.
    async fn secured() -> (Stream, Stream) {
        let acceptor = tls::self_signed().unwrap();
        let connector = tls::connector(TlsMode::Require, None).unwrap().unwrap();
        let (near, far) = narrow().await;
        let (near, far) = tokio::join!(tls::connect(&connector, "localhost", near), acceptor.accept(far));
        (Stream::TlsToServer(Box::new(near.unwrap())), Stream::TlsFromClient(Box::new(far.unwrap())))
    }

    #[tokio::test]
    async fn what_tls_has_taken_and_its_socket_has_not_goes_out_too() {
        let (mut client, from_client) = secured().await;
        let (to_server, mut server) = secured().await;
        let mut link = Link::new(from_client, to_server, false);
        let sent: Vec<u8> = (0..60_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        link.to_client.add(&sent);
        link.to_server.add(&sent);
        poll_fn(|cx| Poll::Ready(link.poll_write(cx).unwrap())).await;
        assert_eq!((link.to_client.len(), link.to_server.len()), (0, 0), "TLS takes all of it");
        let write = poll_fn(|cx| link.poll_write(cx).map_or(Poll::Ready(()), |_| Poll::Pending));
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

    /// Else the answers of a server that is full of statements come at the pace of looks.
    #[tokio::test]
    async fn a_client_that_takes_something_makes_room_though_the_server_takes_nothing() {
        for client_takes in [true, false] {
            let ((client, near_client), (server, near_server)) = (narrow().await, narrow().await);
            let mut link = Link::new(Stream::Tcp(near_client), Stream::Tcp(near_server), false);
            // More than the sockets hold, and a little more than there is room for.
            let (much, little) = (vec![0; 16 * Outbox::HIGH], vec![0; Outbox::HIGH + 1]);
            let (to_client, to_server) = if client_takes { (little, much) } else { (much, little) };
            link.to_client.add(&to_client);
            link.to_server.add(&to_server);
            let moved = poll_fn(|cx| Poll::Ready(link.poll_write(cx).unwrap())).await;
            let room = (link.to_client.room() > 0, link.to_server.room() > 0);
            assert_eq!((moved, room), (true, (client_takes, !client_takes)));
            let moved = poll_fn(|cx| Poll::Ready(link.poll_write(cx).unwrap())).await;
            assert!(!moved, "it had room before");
            drop((client, server));
        }
    }

    /// A client whose statement goes on without it is not read any more: only this shows that it is gone.
    #[tokio::test]
    async fn a_client_that_takes_no_more_breaks_the_link_and_a_server_may_still_say_why_it_does_not() {
        for client_leaves in [true, false] {
            let (client, near_client) = UnixStream::pair().unwrap();
            let (mut server, near_server) = UnixStream::pair().unwrap();
            server.write_all(b"why").await.unwrap();
            let (leaves, _stays) = if client_leaves { (client, server) } else { (server, client) };
            drop(leaves);
            let mut link = Link::new(Stream::Unix(near_client), Stream::Unix(near_server), false);
            link.to_client.add(b"rows");
            link.to_server.add(b"ask");
            let written = poll_fn(|cx| Poll::Ready(link.poll_write(cx))).await;
            assert_eq!(matches!(written, Err(LinkError::Client(_))), client_leaves, "{written:?}");
            if !client_leaves {
                assert_eq!((link.to_client.len(), link.to_server.len()), (0, 0));
                assert_eq!(poll_fn(|cx| link.poll_server(cx)).await.unwrap(), Read::More);
                assert_eq!(link.from_server.data(), b"why");
            }
        }
    }

    #[tokio::test]
    async fn who_sends_no_more_is_told_to_the_server_once_all_is_on_its_way() {
        for kills_abandoned in [true, false] {
            let ((mut client, near_client), (mut server, near_server)) = (narrow().await, narrow().await);
            let mut link = Link::new(Stream::Tcp(near_client), Stream::Tcp(near_server), kills_abandoned);
            client.write_all(b"ask").await.unwrap();
            client.shutdown().await.unwrap();
            assert_eq!(poll_fn(|cx| link.poll_waiting_client(cx)).await.unwrap(), Read::More);
            if kills_abandoned {
                assert_eq!(poll_fn(|cx| link.poll_waiting_client(cx)).await.unwrap(), Read::Closed);
                continue;
            }
            // While its statement waits, the server hears nothing of it.
            let ended = poll_fn(|cx| {
                assert!(link.poll_waiting_client(cx).is_pending());
                if link.client_ended { Poll::Ready(()) } else { Poll::Pending }
            });
            ended.await;
            assert_eq!(link.server_ends, Goodbye::No);
            link.pass(Side::Client, 3);
            assert!(poll_fn(|cx| Poll::Ready(link.poll_client(cx).is_pending())).await);
            poll_fn(|cx| Poll::Ready(link.poll_write(cx).unwrap())).await;
            let mut heard = Vec::new();
            server.read_to_end(&mut heard).await.unwrap();
            assert_eq!((heard.as_slice(), link.server_ends), (&b"ask"[..], Goodbye::Told));
            // And the answer comes all the same.
            server.write_all(b"answer").await.unwrap();
            assert_eq!(poll_fn(|cx| link.poll_server(cx)).await.unwrap(), Read::More);
            link.pass(Side::Server, 6);
            link.last_words(true).await;
            heard.clear();
            client.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, b"answer");
        }
    }

    #[tokio::test]
    async fn what_a_client_sends_while_it_waits_is_read_up_to_a_bound() {
        let ((mut client, near_client), (_server, near_server)) = (narrow().await, narrow().await);
        let mut link = Link::new(Stream::Tcp(near_client), Stream::Tcp(near_server), true);
        let sends = async { client.write_all(&vec![0; 16 * Outbox::HIGH]).await };
        let reads = poll_fn(|cx| {
            while let Poll::Ready(read) = link.poll_waiting_client(cx) {
                assert_eq!(read.unwrap(), Read::More);
                assert!(link.from_client.data().len() <= Outbox::HIGH, "it goes on");
            }
            if link.from_client.is_full() { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! { _ = sends => panic!("all of it was taken"), () = reads => {} }
    }

    /// It explains more than that nothing can be sent to it.
    #[tokio::test]
    async fn what_a_server_said_before_it_closed_is_read_though_it_takes_no_more() {
        let (_client, near_client) = narrow().await;
        let (mut server, near_server) = UnixStream::pair().unwrap();
        let mut link = Link::new(Stream::Tcp(near_client), Stream::Unix(near_server), false);
        server.write_all(b"sorry").await.unwrap();
        drop(server);
        for _ in 0..2 {
            link.to_server.add(b"statement");
            poll_fn(|cx| Poll::Ready(link.poll_write(cx).unwrap())).await;
        }
        assert_eq!(link.to_server.len(), 0, "it is not kept");
        assert_eq!(poll_fn(|cx| link.poll_server(cx)).await.unwrap(), Read::More);
        assert_eq!(link.from_server.data(), b"sorry");
        link.skip(Side::Server, 5);
        assert_eq!(poll_fn(|cx| link.poll_server(cx)).await.unwrap(), Read::Closed);
    }
}
