//! What an operator chooses for connections of a listener.

/// Where clients may use TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClientTls {
    /// There is no certificate for it.
    #[default]
    Never,
    /// Where the server is MySQL itself and offers it: its clients count on that, and MariaDB's do not. The certificate
    /// is the gateway's own.
    LikeServer,
    /// The listener was given a certificate.
    Always,
}

/// Choices for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// Which clients may use TLS.
    pub(super) client_tls: ClientTls,
    /// The way to the server is encrypted, or there is no connection.
    pub(super) server_tls: bool,
    /// The server is reached by a Unix socket, which it takes for as private as TLS.
    pub(super) server_socket: bool,
    /// `LOAD DATA LOCAL INFILE` is passed; otherwise the client gets an error and the server an empty file.
    pub(super) local_infile: bool,
}
