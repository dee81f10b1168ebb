//! What all sessions of a listener share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Later;
use crate::clock;
use crate::complaints::Complaints;
use crate::govern::{Governor, Unowned};
use crate::keepalive::Keepalive;
use crate::stream::Stream;
use crate::tls::{self, Acceptor, Connector};
use crate::upstream::{Place, Upstream};

/// What the sessions of one listener share.
pub(crate) struct Listening {
    pub(crate) governor: Arc<Governor>,
    /// What sessions of the server wrote for others.
    pub(crate) unowned: Arc<Unowned>,
    pub(crate) upstream: Upstream,
    pub(crate) acceptor: Option<Acceptor>,
    pub(crate) connector: Option<Connector>,
    /// Longest time from the first byte to a successful login.
    pub(crate) login_timeout: Duration,
    pub(crate) keepalive: Keepalive,
    /// A client that closes has its statement killed.
    pub(crate) kills_abandoned: bool,
    pub(crate) complaints: Arc<Complaints>,
    pub(crate) closing: watch::Receiver<bool>,
}

impl Listening {
    /// Completes when the gateway shuts down.
    pub(crate) fn closing(&self) -> Later<()> {
        let mut closing = self.closing.clone();
        Box::pin(async move {
            // A sender that is gone is the end, too.
            drop(closing.wait_for(|closing| *closing).await);
        })
    }

    /// What a client says before its session begins; `None` when that takes too long, or the gateway shuts down
    /// meanwhile: who has said nothing yet must not hold that up.
    pub(crate) fn opened<T>(&self, opening: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
        // In a box, so that a session does not hold room for its beginning to its end.
        let (opening, closing) = (Box::pin(clock::within(self.login_timeout, opening)), self.closing());
        async move {
            tokio::select! {
                opened = opening => opened,
                () = closing => None,
            }
        }
    }

    /// A connection to the server, not yet under TLS.
    pub(crate) async fn connect(&self) -> io::Result<Stream> {
        self.upstream.connect(self.keepalive).await
    }

    /// The server's side under TLS, which it has agreed to.
    pub(crate) async fn secure_server(&self, tcp: TcpStream) -> io::Result<Stream> {
        match (&self.connector, &self.upstream.place) {
            (Some(connector), Place::Tcp { host, .. }) => {
                Ok(Stream::TlsToServer(Box::new(tls::connect(connector, host, tcp).await?)))
            }
            _ => Err(io::Error::other("TLS was begun on a connection that has none")),
        }
    }
}
