//! A connection from its first byte to its last: opening, login upstream, session.

use std::io;
use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;

use super::cancel::{self, Cancels};
use super::message;
use super::session::{End, Fault, Session};
use super::startup::{self, Opening, Startup};
use crate::clock;
use crate::govern::Login;
use crate::session::Listening;
use crate::stream::Stream;

/// What a server is asked before its side is put under TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// What all sessions of a listener share.
pub(crate) struct Shared {
    pub(crate) listening: Listening,
    pub(crate) cancels: Cancels,
}

impl Shared {
    /// A connection to the server, under TLS if it is to be.
    pub(super) async fn connect(&self) -> io::Result<Stream> {
        match self.listening.upstream.connect().await? {
            Stream::Tcp(mut tcp) if self.listening.connector.is_some() => {
                tcp.write_all(&SSL_REQUEST).await?;
                match tcp.read_u8().await? {
                    b'S' => self.listening.secure_server(tcp).await,
                    _ => {
                        Err(io::Error::other("the server does not offer TLS; leave tls= out of the upstream"))
                    }
                }
            }
            stream => Ok(stream),
        }
    }

    /// Asks the server, over a connection of its own, to cancel what the process of this key does.
    pub(super) async fn cancel(self: Arc<Self>, key: (u32, u32)) -> io::Result<()> {
        cancel::send(self.connect().await?, &cancel::packet(key)).await
    }
}

/// Serves one client to its end. `refused` tells why there is no place for it, once it has said that it speaks the
/// protocol.
pub(crate) async fn serve(shared: Arc<Shared>, stream: Stream, refused: Option<String>) {
    let opening = startup::open(stream, shared.listening.acceptor.as_ref());
    let (mut client, opening) = match clock::within(shared.listening.login_timeout, opening).await {
        Some(Ok(opened)) => opened,
        Some(Err(error)) => return tracing::debug!(%error, "a connection that is no PostgreSQL client's"),
        None => return tracing::debug!("a connection that did not log in in time"),
    };
    match opening {
        Opening::Gone => {}
        Opening::Cancel { pid, secret, packet } => {
            shared.cancels.tell((pid, secret));
            let sent = match shared.connect().await {
                Ok(server) => cancel::send(server, &packet).await,
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                tracing::warn!(%error, "a request to cancel did not reach the server");
            }
        }
        Opening::Login(_) if refused.is_some() => {
            let reply = message::fatal("53300", &refused.unwrap_or_default());
            let _ = client.write_all(&reply).await;
        }
        Opening::Login(startup) => login(shared, client, startup).await,
    }
}

async fn login(shared: Arc<Shared>, mut client: Stream, startup: Startup) {
    let server = match shared.connect().await {
        Ok(server) => server,
        Err(error) => {
            let words =
                format!("the gateway cannot reach the database at {}: {error}", shared.listening.upstream);
            tracing::warn!("{words}");
            shared.listening.governor.metrics().upstream_failures.inc();
            let _ = client.write_all(&message::fatal("08006", &words)).await;
            return;
        }
    };
    let login = Login { tenant: startup.database, user: startup.user, application: startup.application };
    let (user, tenant) = (login.user.clone(), login.tenant.clone());
    let session = Session::new(shared, client, server, login, &startup.packet);
    match session.run().await {
        Ok(end @ (End::Client | End::Server)) => tracing::debug!(user, tenant, ?end, "session ended"),
        Ok(End::Told(over)) => tracing::debug!(user, tenant, why = over.words(), "session ended"),
        Err(fault @ Fault::Client(_)) => tracing::info!(user, tenant, %fault, "session broken off"),
        Err(fault) => tracing::debug!(user, tenant, %fault, "session broken off"),
    }
}
