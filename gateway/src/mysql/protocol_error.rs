//! What ends a connection: a peer that breaks the protocol or asks for what the gateway does not do.

/// Why a connection cannot go on. [`Machine::farewell`](super::machine::Machine::farewell) tells the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    /// The server is not MySQL, or is older than 4.1.
    #[error(
        "the upstream's greeting of {len} bytes is not of protocol 10; check that it is a MySQL or MariaDB"
    )]
    Greeting {
        /// Length of the packet, in bytes.
        len: usize,
    },
    /// A client before 4.1, or none at all.
    #[error(
        "the client's first packet of {len} bytes is not a login of protocol 4.1; use a client of MySQL 4.1 or later"
    )]
    Login {
        /// Length of the packet, in bytes.
        len: usize,
    },
    /// A packet of the connection phase that is too long to be one.
    #[error(
        "a packet of {len} bytes before the login has ended; at most {limit} are taken, check what connects here"
    )]
    LongLogin {
        /// Declared length, in bytes.
        len: usize,
        /// Most that is taken.
        limit: usize,
    },
    /// A name longer than any server takes.
    #[error("the name of a {what} of {len} bytes is too long; use one of at most {limit}")]
    LongName {
        /// User or database.
        what: &'static str,
        /// Its length, in bytes.
        len: usize,
        /// Most that is taken.
        limit: usize,
    },
    /// TLS was asked for where it was not offered.
    #[error(
        "the client asks for TLS, and this listener has none; give it a certificate or connect without TLS"
    )]
    ClientTls,
    /// TLS is demanded upstream and not offered there.
    #[error("the upstream offers no TLS; enable it there or allow plain connections to it")]
    ServerTls,
    /// `caching_sha2_password` asks for a password that the client cannot send as the server takes it.
    #[error(
        "the server wants the whole password in the clear, which clients send under TLS only, and this one has no TLS; \
         connect with TLS (if the gateway offers none, give it --tls-cert and --tls-key), or log in past the gateway \
         once, after which the server knows the password until it restarts"
    )]
    PlainPassword,
    /// The server has answered a request for its RSA key with something else.
    #[error(
        "the server's RSA key of {len} bytes for passwords cannot be used; it has to be of 1024 to 16384 bits, or \
         reach the server with ?tls=require"
    )]
    ServerKey {
        /// Length of the packet, in bytes.
        len: usize,
    },
    /// The server says that it has prepared a statement, and not what.
    #[error(
        "the server's answer to a statement to be prepared has only {len} bytes; check that it is a MySQL or MariaDB"
    )]
    Prepared {
        /// Length of the packet, in bytes.
        len: usize,
    },
    /// What the client sends on could be a part of the file or a command.
    #[error("the server ended an upload that the client had not ended; connect again")]
    UploadCut,
    /// A command was sent between `LOCAL INFILE`'s request and its data.
    #[error("a command was sent ahead of a LOAD DATA LOCAL INFILE; send it after the statement's result")]
    Ahead,
    /// A decision without a question.
    #[error("no statement waits for a decision; decide once for each that was asked")]
    NotAsked,
}

impl ProtocolError {
    /// Code and SQLSTATE that say it to a client.
    pub(super) fn code(&self) -> (u16, [u8; 5]) {
        match self {
            // ER_HANDSHAKE_ERROR
            Self::Greeting { .. } | Self::ServerTls | Self::ServerKey { .. } => (1043, *b"08S01"),
            // ER_NOT_SUPPORTED_AUTH_MODE, ER_HANDSHAKE_ERROR
            Self::Login { .. } | Self::LongLogin { .. } | Self::ClientTls => (1043, *b"08S01"),
            // ER_SECURE_TRANSPORT_REQUIRED
            Self::PlainPassword => (3159, *b"HY000"),
            // ER_WRONG_STRING_LENGTH
            Self::LongName { .. } => (1470, *b"HY000"),
            // ER_NET_PACKETS_OUT_OF_ORDER
            Self::UploadCut | Self::Ahead | Self::NotAsked | Self::Prepared { .. } => (1156, *b"08S01"),
        }
    }
}
