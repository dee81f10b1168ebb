//! A connection from its first byte to its last: opening, login upstream, session.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::cancel::{self, Cancels};
use super::key::Key;
use super::message;
use super::session;
use super::startup::{self, Opening, Refused, Startup};
use crate::clock;
use crate::complaints::Kind;
use crate::govern::Login;
use crate::seats::Seat;
use crate::session::{End, Listening, SessionError, Side};
use crate::stream::Stream;

/// The request that a server gets before its side is put under TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Longest wait for the server's side to be under TLS.
const SECURE_TIMEOUT: Duration = Duration::from_secs(10);

/// What all sessions of a listener share.
pub(crate) struct Shared {
    pub(crate) listening: Listening,
    pub(crate) cancels: Cancels,
}

impl AsRef<Listening> for Shared {
    fn as_ref(&self) -> &Listening {
        &self.listening
    }
}

impl Shared {
    /// A connection to the server, under TLS if it is to be.
    pub(super) async fn connect(&self) -> io::Result<Stream> {
        match self.listening.connect().await? {
            // A server may take a connection and then say nothing.
            Stream::Tcp(tcp) if self.listening.connector.is_some() => {
                let secured = clock::within(SECURE_TIMEOUT, self.secure(tcp)).await;
                secured.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
            }
            stream => Ok(stream),
        }
    }

    async fn secure(&self, mut tcp: TcpStream) -> io::Result<Stream> {
        tcp.write_all(&SSL_REQUEST).await?;
        match tcp.read_u8().await? {
            b'S' => self.listening.secure_server(tcp).await,
            _ => Err(io::Error::other("the server does not offer TLS; leave tls= out of the upstream")),
        }
    }

    /// Asks the server, over a connection of its own, to cancel what the process of this key does.
    pub(super) async fn cancel(self: Arc<Self>, key: Key) -> io::Result<()> {
        cancel::send(self.connect().await?, &cancel::packet(&key)).await
    }
}

/// Serves one client to its end; a client without a seat gets the reason, once it has shown that it speaks the
/// protocol.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    stream: Stream,
    client_address: SocketAddr,
    seat: Result<Arc<Seat>, String>,
) {
    let opening = startup::open(stream, shared.listening.acceptor.as_ref());
    let (mut client, opening) = match shared.listening.opened(opening).await {
        Some(Ok(opened)) => opened,
        Some(Err(error)) => return tracing::debug!(%error, "a connection that is no PostgreSQL client's"),
        None => return tracing::debug!("a connection that did not log in in time"),
    };
    match opening {
        Opening::Gone => {}
        Opening::Refused(Refused { sqlstate, message, old }) => {
            tracing::debug!(client = %client_address, message, "a client was not let in");
            let told = if old { message::old_fatal(&message) } else { message::fatal(sqlstate, &message) };
            client.end(&told).await;
        }
        Opening::Cancel(key) => {
            shared.cancels.tell(&key);
            match Arc::clone(&shared).cancel(key.clone()).await {
                Ok(()) => shared.cancels.done(&key),
                Err(error) => {
                    let left_out = shared.listening.complaints.told(client_address.ip(), Kind::Control);
                    if let Some(left_out) = left_out {
                        tracing::warn!(%error, left_out, "a request to cancel did not reach the server");
                    }
                }
            }
            client.end(&[]).await;
        }
        Opening::Login(startup) => match seat {
            Ok(seat) => login(shared, (client, client_address), startup, seat).await,
            Err(reason) => client.end(&message::fatal("53300", &reason)).await,
        },
    }
}

async fn login(
    shared: Arc<Shared>,
    (mut client, address): (Stream, SocketAddr),
    startup: Startup,
    seat: Arc<Seat>,
) {
    let complaints = Arc::clone(&shared.listening.complaints);
    let server = match shared.connect().await {
        Ok(server) => server,
        Err(error) => {
            let words =
                format!("the gateway cannot reach the database at {}: {error}", shared.listening.upstream);
            if let Some(left_out) = complaints.told(address.ip(), Kind::Upstream) {
                tracing::warn!(client = %address, left_out, "{words}");
            }
            shared.listening.governor.metrics().upstream_failures.inc();
            return client.end(&message::fatal("08006", &words)).await;
        }
    };
    let login = Login { tenant: startup.database, user: startup.user, application: startup.application };
    let (user, tenant) = (login.user.clone(), login.tenant.clone());
    let mut session = session::begin(shared, (client, server), login, &startup.packet, seat);
    let client = address;
    match session.run().await {
        Ok(End::Told(over)) => tracing::debug!(%client, user, tenant, why = over.words(), "session ended"),
        Ok(end) => tracing::debug!(%client, user, tenant, ?end, "session ended"),
        Err(error @ SessionError::Protocol(Side::Client, _)) => {
            if let Some(left_out) = complaints.told(client.ip(), Kind::Session) {
                tracing::info!(%client, user, tenant, %error, left_out, "session broken off");
            }
        }
        Err(error) => tracing::debug!(%client, user, tenant, %error, "session broken off"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::sync::watch;

    use super::*;
    use crate::govern::tests::Stage;
    use crate::seats::Seats;
    use crate::session::tests::{listening, narrow, soon};

    #[tokio::test(flavor = "multi_thread")]
    async fn every_client_for_whom_there_is_no_database_is_counted_and_is_told() {
        let (stage, folder) = (Stage::new().await, tempfile::tempdir().unwrap());
        let upstream = format!("postgres:///?socket={}", folder.path().join("none").display());
        let (_closing, closed) = watch::channel(false);
        let listening = listening(&stage, &upstream, closed);
        let shared = Arc::new(Shared { listening, cancels: Cancels::default() });
        let seats = Arc::new(Seats::new(1));
        let startup = b"\0\0\0\x20\0\x03\0\0user\0ann\0database\0shop\0\0";
        // The log has a line for the first of them alone.
        for failures in 1..=3 {
            let (mut client, near) = narrow().await;
            let (seat, _) = seats.enter().expect("the one before has left its seat");
            let address = client.local_addr().unwrap();
            let served = serve(Arc::clone(&shared), Stream::Tcp(near), address, Ok(Arc::new(seat)));
            client.write_all(startup).await.unwrap();
            let mut said = Vec::new();
            let (told, ()) = tokio::join!(soon("it is told", client.read_to_end(&mut said)), served);
            told.unwrap();
            let text = String::from_utf8_lossy(&said);
            let words = format!("cannot reach the database at {upstream}");
            assert!(text.contains("C08006\0") && text.contains(&words), "{text}");
            assert_eq!(stage.governor.metrics().upstream_failures.get(), failures);
        }
    }
}
