//! A connection from its first byte to its last: opening, session.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::answer::Refusal;
use super::control::Control;
use super::opening;
use super::session::{MySql, Session};
use super::settings::{ClientTls, Settings};
use crate::complaints::Kind;
use crate::govern::Login;
use crate::seats::Seat;
use crate::session::{End, Listening};
use crate::stream::Stream;
use crate::tls;
use crate::upstream::Place;

/// What all sessions of a listener share.
pub(crate) struct Shared {
    pub(crate) listening: Listening,
    /// Without it nothing is killed but by closing its connection, and costs are estimated.
    pub(crate) control: Option<Control>,
    /// The certificate for clients is one that the gateway made.
    pub(crate) self_signed: bool,
    /// `LOAD DATA LOCAL INFILE` is passed.
    pub(crate) local_infile: bool,
}

impl AsRef<Listening> for Shared {
    fn as_ref(&self) -> &Listening {
        &self.listening
    }
}

impl Shared {
    pub(super) fn settings(&self) -> Settings {
        let client_tls = match &self.listening.acceptor {
            None => ClientTls::Never,
            Some(_) if self.self_signed => ClientTls::LikeServer,
            Some(_) => ClientTls::Always,
        };
        let server_tls = self.listening.connector.is_some();
        let server_socket = matches!(self.listening.upstream.place, Place::Unix(_));
        Settings { client_tls, server_tls, server_socket, local_infile: self.local_infile }
    }

    pub(super) async fn secure_client(&self, stream: Stream) -> io::Result<Stream> {
        match (stream, &self.listening.acceptor) {
            (Stream::Tcp(tcp), Some(acceptor)) => {
                Ok(Stream::TlsFromClient(Box::new(tls::accept(acceptor, tcp).await?)))
            }
            _ => Err(io::Error::other("TLS was begun on a connection that has none")),
        }
    }

    pub(super) async fn secure_server(&self, stream: Stream) -> io::Result<Stream> {
        match stream {
            Stream::Tcp(tcp) => self.listening.secure_server(tcp).await,
            _ => Err(io::Error::other("TLS was begun on a connection that has none")),
        }
    }
}

/// Serves one client to its end; a client without a seat gets the reason.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    mut client: Stream,
    address: SocketAddr,
    seat: Result<Arc<Seat>, String>,
) {
    let complaints = Arc::clone(&shared.listening.complaints);
    let seat = match seat {
        Ok(seat) => seat,
        Err(message) => {
            // ER_CON_COUNT_ERROR
            let refusal = Refusal { code: 1040, state: *b"08004", message };
            return client.end(&refusal.first_packet()).await;
        }
    };
    let server = match shared.listening.connect().await {
        Ok(server) => server,
        Err(error) => {
            let message =
                format!("the gateway cannot reach the database at {}: {error}", shared.listening.upstream);
            if let Some(left_out) = complaints.told(address.ip(), Kind::Upstream) {
                tracing::warn!(client = %address, left_out, "{message}");
            }
            shared.listening.governor.metrics().upstream_failures.inc();
            // ER_UNKNOWN_ERROR: clients take every code that would fit better for an error of their own.
            let refusal = Refusal { code: 1105, state: *b"HY000", message };
            return client.end(&refusal.first_packet()).await;
        }
    };
    let opened = opening::open(&shared, client, server);
    let opened = match shared.listening.opened(opened).await {
        Some(Ok(Some(opened))) => opened,
        Some(Ok(None)) => return tracing::debug!("the server turned a client away"),
        Some(Err(error)) => return tracing::debug!(%error, "a connection without a login"),
        None => return tracing::debug!("a connection that did not log in in time"),
    };
    let protocol = MySql::new(opened.machine, address.ip());
    let mut session = Session::new(protocol, shared, opened.link, Login::default(), seat);
    match session.run().await {
        Ok(End::Told(over)) => tracing::debug!(client = %address, why = over.words(), "session ended"),
        Ok(end) => tracing::debug!(client = %address, ?end, "session ended"),
        Err(error) => {
            if let Some(left_out) = complaints.told(address.ip(), Kind::Session) {
                tracing::info!(client = %address, %error, left_out, "session broken off");
            }
        }
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
    use crate::tls::Acceptor;
    use crate::upstream::TlsMode;

    /// A server takes a password in the clear where its side is private, and no other; so it matters how it is reached.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_is_as_private_as_its_listener_and_the_way_to_its_server_are() {
        let stage = Stage::new().await;
        let (tcp, socket) = ("mysql://127.0.0.1:1", "mysql://localhost?socket=/run/mysqld.sock");
        let plain = Settings { local_infile: true, ..Settings::default() };
        let offered = |client_tls| Settings { client_tls, ..plain };
        for (upstream, mode, certificate, expected) in [
            (tcp, TlsMode::Disable, None, plain),
            (tcp, TlsMode::Require, None, Settings { server_tls: true, ..plain }),
            (socket, TlsMode::Disable, None, Settings { server_socket: true, ..plain }),
            (tcp, TlsMode::Disable, Some(true), offered(ClientTls::LikeServer)),
            (tcp, TlsMode::Disable, Some(false), offered(ClientTls::Always)),
        ] {
            let (_closing, closed) = watch::channel(false);
            let listening = Listening {
                acceptor: certificate.map(|_| Acceptor::Own(tls::self_signed().unwrap())),
                connector: tls::connector(mode, None).unwrap(),
                ..listening(&stage, upstream, closed)
            };
            let self_signed = certificate.unwrap_or_default();
            let shared = Shared { listening, control: None, self_signed, local_infile: true };
            assert_eq!(shared.settings(), expected, "{upstream}");
            let shared = Shared { local_infile: false, ..shared };
            assert_eq!(shared.settings(), Settings { local_infile: false, ..expected });
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_client_for_whom_there_is_no_database_is_counted_and_is_told() {
        let (stage, folder) = (Stage::new().await, tempfile::tempdir().unwrap());
        let upstream = format!("mysql:///?socket={}", folder.path().join("none").display());
        let (_closing, closed) = watch::channel(false);
        let listening = listening(&stage, &upstream, closed);
        let shared = Arc::new(Shared { listening, control: None, self_signed: false, local_infile: true });
        let seats = Arc::new(Seats::new(1));
        // The log has a line for the first of them alone.
        for failures in 1..=3 {
            let (mut client, near) = narrow().await;
            let (seat, _) = seats.enter().expect("the one before has left its seat");
            let address = client.local_addr().unwrap();
            let served = serve(Arc::clone(&shared), Stream::Tcp(near), address, Ok(Arc::new(seat)));
            let mut said = Vec::new();
            let (told, ()) = tokio::join!(soon("it is told", client.read_to_end(&mut said)), served);
            told.unwrap();
            assert_eq!(said[4..7], [0xff, 0x51, 0x04], "error 1105");
            let text = String::from_utf8_lossy(&said);
            assert!(text.contains(&format!("cannot reach the database at {upstream}")), "{text}");
            assert_eq!(stage.governor.metrics().upstream_failures.get(), failures);
        }
    }
}
