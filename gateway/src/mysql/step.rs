//! What a [`Machine`](super::machine::Machine) asks its caller to do, and the events that it reports.

use std::fmt;

use super::command::Command;
use super::protocol_error::ProtocolError;
use crate::session::Side;

/// What to do next. Steps are carried out in the order in which they are given, whichever side they came from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'a, T> {
    /// Keep the input and read more behind it.
    More,
    /// Keep the input; ask again after the other side has moved, or a decision was made.
    Wait,
    /// The first so many bytes of the input go to the other side.
    Pass(usize),
    /// The first so many bytes of the input go nowhere.
    Skip(usize),
    /// The first so many bytes of the input are replaced on their way to the other side.
    Swap(usize, Bytes),
    /// These bytes go to that side.
    Send(Side, Bytes),
    /// From here on that side speaks TLS: the gateway is its server towards a client, and a client towards a server.
    /// Bytes read behind the taken input belong to TLS.
    StartTls(Side),
    /// A statement waits for [`Machine::decide`](super::machine::Machine::decide).
    Ask(Statement<'a, T>),
    /// Something has happened.
    Tell(Event),
}

/// A step, or what breaks the protocol.
pub(super) type Stepped<'a, T> = Result<Step<'a, T>, ProtocolError>;

/// Bytes of a protocol; shown by their number only, since they may be secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A statement, before its first byte goes to the server.
#[derive(PartialEq, Eq)]
pub(super) struct Statement<'a, T> {
    /// Counts the statements of a connection from 1.
    pub(super) number: u64,
    /// How it was sent.
    pub(super) command: Command,
    /// The beginning of its SQL, at most [`LOOK_LIMIT`](super::machine::LOOK_LIMIT) bytes; empty for commands without.
    pub(super) sql: &'a [u8],
    /// Whether that is all of its SQL.
    pub(super) whole: bool,
    /// What was remembered of the prepared statement that it executes or fetches from.
    pub(super) template: Option<T>,
    /// It executes a statement that is to be explained.
    pub(super) explained: bool,
}

impl<T: fmt::Debug> fmt::Debug for Statement<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement")
            .field("number", &self.number)
            .field("command", &self.command)
            .field("sql_bytes", &self.sql.len())
            .field("whole", &self.whole)
            .field("template", &self.template)
            .finish()
    }
}

/// Something that has happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The server has let the client in.
    Login(Login),
    /// The response to a statement has ended.
    StatementEnds(StatementEnds),
    /// `COM_RESET_CONNECTION` was done: variables and prepared statements are gone.
    SessionReset,
    /// `COM_CHANGE_USER` was done: as a new login, on the same thread of the server.
    UserChanged(Login),
    /// The session has another default database.
    DatabaseChanged {
        /// Its name.
        database: String,
    },
}

/// The user that is let in, and the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Login {
    /// The account's name, without a host.
    pub(super) user: String,
    /// The default database, if one was named.
    pub(super) database: Option<String>,
    /// What the client calls itself.
    pub(super) program_name: Option<String>,
    /// The server's number of the connection, as `KILL` takes it.
    pub(super) thread_id: u32,
    /// As the server says it.
    pub(super) server_version: String,
    /// Whether the client uses TLS.
    pub(super) tls: bool,
}

/// How a statement went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatementEnds {
    /// The statement's.
    pub(super) number: u64,
    /// Rows sent to the client.
    pub(super) rows: u64,
    /// Rows changed, as the server counts them.
    pub(super) affected: u64,
    /// The server's error, or that which the client got in its place.
    pub(super) error: Option<u16>,
    /// Whether a transaction is open now.
    pub(super) in_transaction: bool,
    /// Bytes from the client, with the file that it sent.
    pub(super) request_bytes: u64,
    /// Bytes from the server.
    pub(super) response_bytes: u64,
    /// Whether the response came to its end; if not, the connection has.
    pub(super) complete: bool,
}

/// How far a statement has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// The statement's.
    pub(super) number: u64,
    /// Rows that have begun to arrive.
    pub(super) rows: u64,
    /// Bytes from the client so far.
    pub(super) request_bytes: u64,
    /// Bytes from the server so far.
    pub(super) response_bytes: u64,
}
