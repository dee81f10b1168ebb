//! A session's two connections, and the bytes that have come in or go out.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::buffer::{Inbox, Outbox};
use crate::clock;
use crate::govern::Proof;
use crate::stream::Stream;

/// How long a client may take for the last words.
const LAST_WORDS: Duration = Duration::from_millis(100);

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
        if !self.to_client.is_empty()
            && let Poll::Ready(sent) = self.to_client.poll_write(cx, &mut self.client)
        {
            sent.map_err(LinkError::Client)?;
        }
        if !self.to_server.is_empty()
            && let Poll::Ready(sent) = self.to_server.poll_write(cx, &mut self.server)
        {
            // What the server said before it closed is still to be read, and tells more.
            if sent.is_err() {
                self.to_server = Outbox::default();
            }
        }
        Ok(full && self.to_client.room() > 0 && self.to_server.room() > 0)
    }

    /// Gives the client a moment to take what is left for it.
    pub(crate) async fn last_words(&mut self) {
        let sent = std::future::poll_fn(|cx| self.to_client.poll_write(cx, &mut self.client));
        // A client that is gone already needs to hear nothing.
        drop(clock::within(LAST_WORDS, sent).await);
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
