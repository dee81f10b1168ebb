//! What a PostgreSQL client and its server have said to each other, as far as governing needs it.
//!
//! In: the bytes of both sides, in pieces of any size. Out: which bytes go on, what has to be decided before a message
//! goes on, and which statement has ended. No I/O and no clock. `R` stands for a statement that was admitted, `O` for
//! a statement that the gateway answers itself.
//!
//! A *unit* is what the server ends with one `ReadyForQuery`: a simple query, a function call, or the messages of the
//! extended protocol up to a `Sync`. A unit is admitted once, at its query or its first `Execute`; what a client sends
//! of later `Execute`s before the `Sync` belongs to the same unit. A client may send a simple query instead of the
//! `Sync`, whose `ReadyForQuery` is then the only one: the unit ends when the server has answered what it was sent of
//! it, and the query waits for that. Answers of the gateway itself wait in
//! [`Expected`] until the server has answered all that came before them.
//!
//! A statement that is explained runs at the server, under the client's name for it; its result is withheld, and the
//! session sends its cost. Where its `Execute` is the last of its unit the cost is sent at the unit's end, with what
//! the commit took; otherwise where the result would have ended.
//!
//! It is two directions, `client` and `server`, and the `wire` that both work on.

mod client;
mod expected;
mod front;
mod names;
mod server;
#[cfg(test)]
mod tests;
mod units;
mod wire;

use std::ops::Range;
use std::sync::Arc;

use tidegate_sql::Naming;

use crate::govern::{Known, Progress};
use crate::postgres::frame::{Header, ProtocolError, c_string};
use crate::postgres::key::Key;
use crate::postgres::reset::Reset;
use client::ClientSide;
use server::ServerSide;
use wire::Wire;

/// Which statement a name stands for.
#[derive(Debug)]
pub(crate) enum Prepared<O> {
    /// One of the database.
    Theirs(Known),
    /// One of the database, whose cost the client gets.
    Explained(Known),
    /// One that the gateway answers.
    Ours(Arc<O>),
}

/// A name bound to a statement, with the formats asked for the result.
#[derive(Debug)]
struct Portal<O> {
    prepared: Prepared<O>,
    formats: Arc<[bool]>,
}

/// What the session does with the client's bytes.
#[derive(Debug)]
pub(crate) enum Step<O> {
    /// Read more; this many bytes are needed at once.
    More(usize),
    /// Send this many on to the server.
    Pass(usize),
    /// Drop this many.
    Skip(usize),
    /// Send these bytes to the server.
    Send(Vec<u8>),
    /// Decide.
    Ask(Ask<O>),
    /// Call again once the server has said more.
    Wait,
    /// The unit of the extended protocol has ended without a `Sync`; [`Machine::part`] gives it. Then call again.
    Ends,
}

/// A step, or what does not follow the protocol.
pub(crate) type Stepped<O> = Result<Step<O>, ProtocolError>;
/// How many bytes of the server's were used, and what happened.
pub(crate) type Heard<R> = Result<(usize, Option<Event<R>>), ProtocolError>;

/// A text's place in the client's bytes.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) place: Range<usize>,
    /// The message that it is in can be seen to its end.
    pub(crate) whole: bool,
}

/// The decision that is needed before the message at the front goes on.
#[derive(Debug)]
pub(crate) enum Ask<O> {
    /// A simple query, or a function call (without text).
    Query(Text),
    /// A statement to prepare.
    Parse(Text),
    /// The first statement of a unit is to run.
    Execute(Known),
    /// Columns of a statement of ours.
    Describe { statement: Arc<O>, parameters: bool, formats: Arc<[bool]> },
    /// A statement of ours is to run.
    Run { statement: Arc<O>, formats: Arc<[bool]> },
}

/// What becomes of the message that was asked about.
#[derive(Debug)]
pub(crate) enum Decision<R, O> {
    /// It goes on, a query or an `Execute`; this stands for it.
    Go(R, Goes),
    /// The statement to prepare is this one. Of a whole message, another text may be prepared in its place.
    Prepare(Prepared<O>, Option<String>),
    /// It does not go on, and the client is answered this.
    Answer(Vec<u8>),
    /// It fails with this error, and with it what follows up to `Sync`, unless it is a simple query.
    Refuse(Vec<u8>),
}

/// How a statement goes on once it is admitted.
#[derive(Debug, Default)]
pub(crate) struct Goes {
    /// Of a simple query: the statement that runs in its place, to show its cost; its result is withheld.
    pub(crate) inner: Option<String>,
    /// Of a simple query: what it does with names.
    pub(crate) naming: Option<Arc<Naming<Known>>>,
}

/// Events of the server's side, for the session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<R> {
    /// The login has succeeded.
    Login,
    /// A unit has ended; its `ReadyForQuery` goes to the client with the next step.
    Ended(Unit<R>),
    /// An explained statement has run, and more of its unit follows. The session has to send the client what the unit
    /// cost so far, in these formats.
    Costs(Arc<[bool]>),
}

/// What the client gets at the end of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Explained {
    /// A table with its columns.
    Table,
    /// Rows in these formats; their columns were described before.
    Rows(Arc<[bool]>),
}

/// What is decided and charged as one: a simple query, or the messages of the extended protocol up to a `Sync`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unit<R> {
    /// Once it is admitted.
    pub(crate) running: Option<R>,
    pub(crate) progress: Progress,
    /// The server answered with an error.
    pub(crate) failed: bool,
    /// The client gets its cost in place of the result, unless it failed.
    pub(crate) explained: Option<Explained>,
    /// What the server said of the session's settings.
    pub(crate) reset: Option<Reset>,
    /// A prepared statement of it resets all settings.
    pub(crate) runs_reset: bool,
    simple: bool,
    /// Rows are on their way out, by `COPY`, which its end counts.
    copies_out: bool,
    /// Ends of copied data that the client sent before the server asked for the data.
    copy_ends: u32,
    /// Its `Sync` has been sent, or it needs none.
    closed: bool,
    /// The error that the client gets in place of the server's "canceling statement".
    killed: Option<Vec<u8>>,
}

/// A session between a client and its server.
#[derive(Debug)]
pub(crate) struct Machine<R, O> {
    client: ClientSide<O>,
    server: ServerSide,
    wire: Wire<R, O>,
}

impl Text {
    /// Where a text is that begins at `start` with these bytes, and may be cut off.
    fn at(header: Header, start: usize, bytes: &[u8]) -> Self {
        let text = c_string(bytes);
        let length = text.map_or(bytes.len(), |(text, _)| text.len());
        let whole = text.is_some() && header.total <= start.saturating_add(bytes.len());
        Self { place: start..start.saturating_add(length), whole }
    }
}

impl<O> Clone for Prepared<O> {
    fn clone(&self) -> Self {
        match self {
            Self::Theirs(known) => Self::Theirs(known.clone()),
            Self::Explained(known) => Self::Explained(known.clone()),
            Self::Ours(statement) => Self::Ours(Arc::clone(statement)),
        }
    }
}

impl<R> Unit<R> {
    fn new(simple: bool) -> Self {
        Self {
            running: None,
            progress: Progress::default(),
            failed: false,
            explained: None,
            reset: None,
            runs_reset: false,
            simple,
            copies_out: false,
            copy_ends: 0,
            closed: simple,
            killed: None,
        }
    }
}

impl<R, O> Machine<R, O> {
    /// A session whose startup packet is on its way. `unknown` stands for statements without a known text. The client is
    /// `unbound` when the server is under TLS and it is not: clients take an offer to bind the login to a TLS that they
    /// do not have for an attack, and break off.
    pub(crate) fn new(unknown: Known, unbound: bool) -> Self {
        Self { client: ClientSide::new(unknown), server: ServerSide::new(unbound), wire: Wire::new() }
    }

    /// Looks at what the client sent.
    pub(crate) fn client(&mut self, bytes: &[u8]) -> Stepped<O> {
        self.client.step(&mut self.wire, bytes)
    }

    /// Decides about the message asked about, with which `bytes` of the client begin.
    pub(crate) fn decide(&mut self, bytes: &[u8], decision: Decision<R, O>) -> Result<(), ProtocolError> {
        self.client.decide(&mut self.wire, bytes, decision)
    }

    /// Looks at what the server sent and puts what is for the client into `out`, at most about `room` bytes; then call
    /// again.
    pub(crate) fn server(&mut self, bytes: &[u8], out: &mut Vec<u8>, room: usize) -> Heard<R> {
        self.server.step(&mut self.wire, bytes, out, room)
    }

    /// The key that cancels statements of the server's process, once the server has sent it.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.server.key()
    }

    /// Whether the server has nothing left to answer, so that [`Self::in_transaction`] is certain.
    pub(crate) fn is_quiet(&self) -> bool {
        self.wire.units.are_quiet()
    }

    /// Whether the client's next message may wait for the end of a unit before it: of one to which it has nothing to
    /// add, as it has while it copies in.
    pub(crate) fn awaits_end(&self) -> bool {
        self.wire.units.have_closed() && !self.wire.copying_in
    }

    /// The statement that runs where this one does: another that it names, or itself.
    pub(crate) fn behind<'k>(&'k self, known: &'k Known) -> &'k Known {
        self.wire.statements.behind(known)
    }

    /// The statement that an `EXECUTE` names, if it is known.
    pub(crate) fn executed(&self, naming: &Naming<Known>) -> Option<&Known> {
        self.wire.statements.executed(naming)
    }

    /// Whether the last `ReadyForQuery` was inside a transaction, or the server has run something since without one.
    pub(crate) fn in_transaction(&self) -> bool {
        self.wire.status != b'I' || self.wire.unsynced
    }

    /// Ends the unit that the server has answered and the client has sent no `Sync` for.
    pub(crate) fn part(&mut self) -> Option<Unit<R>> {
        self.wire.part()
    }

    /// The first unit that is admitted, and whether the server works on it.
    pub(crate) fn admitted(&mut self) -> Option<(&mut Unit<R>, bool)> {
        self.wire.units.first_admitted_mut()
    }

    /// The units that end without an answer when the connection does.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = Unit<R>> + '_ {
        self.wire.units.abandon()
    }

    /// Whether a `Flush` must be sent to the server now, so that an answer of the gateway finds its place. In the
    /// middle of a message it would become a part of that.
    pub(crate) fn take_flush(&mut self) -> bool {
        self.client.is_between_messages() && self.wire.expected.take_flush()
    }

    /// Whether an answer of the gateway is next for the client.
    pub(crate) fn has_answer(&self) -> bool {
        self.wire.expected.has_answer()
    }

    /// Whether the client has got whole messages only, so that another may follow.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.server.is_between_messages()
    }

    /// The unit at the front is being cancelled; the client gets this in place of the server's words.
    pub(crate) fn kill(&mut self, error: Vec<u8>) {
        if let Some(unit) = self.wire.units.first_mut() {
            unit.killed = Some(error);
        }
    }
}
