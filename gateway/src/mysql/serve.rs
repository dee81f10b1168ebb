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
    use tokio::sync::watch;

    use super::*;
    use crate::govern::tests::Stage;
    use crate::session::tests::listening;
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
}
