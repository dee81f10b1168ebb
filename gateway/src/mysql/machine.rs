//! A connection between a client and a server, without its sockets.
//!
//! In: bytes of either side, decisions about statements. Out: [`Step`]s. [`Machine::client`] and [`Machine::server`]
//! are called with what has been read and not yet taken, again and again until they want more.
//!
//! It is two directions, `from_client` and `from_server`, and the `wire` that both work on.

use tidegate_sql::Naming;

use super::answer::{Answer, Refusal};
use super::ending::Status;
use super::frame::HEADER;
use super::from_client::ClientSide;
use super::from_server::ServerSide;
use super::outstanding::{Response, Running};
use super::protocol_error::ProtocolError;
use super::settings::Settings;
use super::step::{Progress, StatementEnds, Stepped};
use super::wire::Wire;
use crate::session::Side;

/// Most bytes of a packet that are seen before it is passed on: the beginning of a statement's text. A longer text
/// is known by its beginning.
pub(super) const LOOK_LIMIT: usize = 64 * 1024;
/// Most bytes of input that a machine needs to see at once; with less room a caller would wait forever.
pub(super) const INPUT_LIMIT: usize = HEADER + LOOK_LIMIT;

/// The decision about a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision<T> {
    /// It goes to the server.
    Go,
    /// It goes to the server; if it is prepared, this is what comes with every execution of it.
    Remember(T),
    /// It does not: the client gets this in its place. A result is an answer to text, and to one execution.
    Answer(Answer),
    /// This text goes in its place, and of the result the client gets errors only; [`Machine::explain`] has to follow
    /// the statement's end.
    Explain(Vec<u8>),
    /// This text is prepared in its place; executions of it are to be decided as [`Decision::ExplainRun`].
    Prepare(T, Vec<u8>),
    /// Another one is prepared in its place, so that it has a number; executions of it, with which this comes, are to be
    /// decided as [`Decision::Answer`].
    PrepareOurs(T),
    /// It goes, and of the result the client gets errors only; as with [`Decision::Explain`].
    ExplainRun,
}

/// A connection; `T` is what the caller remembers of a prepared statement.
#[derive(Debug)]
pub(super) struct Machine<T> {
    client: ClientSide,
    server: ServerSide,
    wire: Wire<T>,
}

impl<T: Clone> Machine<T> {
    /// A connection of which nothing has been heard.
    pub(super) fn new(settings: Settings) -> Self {
        Self { client: ClientSide::new(), server: ServerSide::new(), wire: Wire::new(settings) }
    }

    /// What to do with `input`, which has been read from the client and not been taken.
    pub(super) fn client<'a>(&mut self, input: &'a [u8]) -> Stepped<'a, T> {
        self.client.step(&mut self.wire, input)
    }

    /// What to do with `input`, which has been read from the server and not been taken.
    pub(super) fn server(&mut self, input: &[u8]) -> Stepped<'static, T> {
        self.server.step(&mut self.wire, &mut self.client, input)
    }

    /// Decides about the statement that was asked about.
    pub(super) fn decide(&mut self, decision: Decision<T>) -> Result<(), ProtocolError> {
        self.client.decide(&mut self.wire, decision)
    }

    /// Sends the client the cost of the explained statement that has just ended; nothing if the client had an error
    /// instead.
    pub(super) fn explain(&mut self, answer: &Answer) {
        self.wire.explain(answer);
    }

    /// The server has been asked to interrupt the statement that it runs; when it says that it did, the client gets
    /// `refusal`. Returns whether the server runs that statement.
    pub(super) fn kill(&mut self, number: u64, refusal: Refusal) -> bool {
        let Some(running) = self.wire.outstanding.front_mut() else { return false };
        let runs = running.number == Some(number);
        if runs {
            running.killed = Some(refusal);
        }
        runs
    }

    /// Whether the session is in a transaction, as the server said last.
    pub(super) fn in_transaction(&self) -> bool {
        self.wire.in_transaction()
    }

    /// The side whose packet comes next, until the client's login has begun: the server's greeting first, then the login,
    /// or a request for TLS before it.
    pub(super) fn opens_with(&self) -> Option<Side> {
        self.client.opens_with()
    }

    /// Whether TLS may begin behind the next packet of that side: no byte further is the protocol's.
    pub(super) fn may_secure(&self, side: Side) -> bool {
        self.wire.handshake.may_secure(side)
    }

    /// Whether the server has greeted the client and not turned it away at once.
    pub(super) fn is_open(&self) -> bool {
        self.server.is_open()
    }

    /// Whether the server has answered all that it was sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.wire.is_quiet()
    }

    /// Whether the answer to what the server was sent may change who pays: another database, or a session as if new.
    pub(super) fn may_change_payer(&self) -> bool {
        self.wire.may_change_payer()
    }

    /// Whether the client awaits nothing and says nothing: a good moment to end the connection.
    pub(super) fn is_idle(&self) -> bool {
        self.wire.is_idle() && self.client.awaits_command()
    }

    /// How far the statement has come that the server is at.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.wire.outstanding.front()?.progress()
    }

    /// The connection has ended: returns the statements that have not.
    pub(super) fn abandon(&mut self) -> Vec<StatementEnds> {
        self.client.over();
        self.wire.abandon()
    }

    /// The packet that says why the connection ends; none in the middle of another packet.
    pub(super) fn farewell(&self, refusal: &Refusal) -> Option<Vec<u8>> {
        let front = self.wire.outstanding.front();
        let hears = front.is_none_or(|running| !running.muted);
        if hears && !self.wire.heard.at_packet() {
            return None;
        }
        let sequence = match front {
            _ if self.server.is_silent() => return Some(refusal.first_packet()),
            Some(running) if !hears => {
                running.instead().unwrap_or_else(|| self.client.sequence().wrapping_add(1))
            }
            Some(Running { response: Response::Auth(auth), .. }) if auth.is_asked() => {
                self.wire.heard.sequence().wrapping_sub(self.wire.handshake.ahead(auth)).wrapping_add(1)
            }
            Some(Running { response: Response::Auth(_), .. }) => self.client.sequence().wrapping_add(1),
            Some(running) if running.response_bytes > 0 => self.wire.heard.sequence().wrapping_add(1),
            _ => self.client.sequence().wrapping_add(1),
        };
        Some(refusal.packet(sequence))
    }

    /// The statement behind `name`. Certain when nothing is awaited.
    pub(super) fn named(&self, name: &str) -> Option<&T> {
        self.wire.statements.named.get(name)
    }

    /// Whether there are names that a statement could change, or will be.
    pub(super) fn knows_names(&self) -> bool {
        self.wire.statements.named.len() > 0 || self.wire.outstanding.any(|running| running.naming.is_some())
    }

    /// How many names are known.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn names(&self) -> usize {
        self.wire.statements.named.len()
    }

    /// The statement asked about does this with names, if it is let through.
    pub(super) fn will_name(&mut self, naming: Naming<T>) {
        self.wire.statements.will_name(naming);
    }

    /// Whether a backslash escapes in the session's strings, as the server said last.
    pub(super) fn escapes(&self) -> bool {
        !self.wire.status().has(Status::NO_BACKSLASH_ESCAPES)
    }

    /// What both directions work on.
    #[cfg(test)]
    pub(super) fn wire(&self) -> &Wire<T> {
        &self.wire
    }

    /// The client cannot do this.
    #[cfg(test)]
    pub(super) fn forbid(&mut self, capabilities: super::capability::Capabilities) {
        self.wire.handshake.forbid(capabilities);
    }
}

impl From<&ProtocolError> for Refusal {
    fn from(error: &ProtocolError) -> Self {
        let (code, state) = error.code();
        Self { code, state, message: error.to_string() }
    }
}
