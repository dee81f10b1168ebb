//! What a protocol is to a session: its machine, and what it alone keeps and says.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Context;

use tidegate_cost_model::SqlDialect;
use tidegate_sql::Answer;

use super::{End, Finished, Later, Link, Listening, Session, SessionError};
use crate::govern::{Denied, Governor, Progress, Running};

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// The side that connected to the gateway.
    Client,
    /// The database.
    Server,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// What the client's bytes come to, as far as the protocol has not dealt with them.
pub(crate) enum Next<P: Protocol> {
    /// So many bytes have to be held at once.
    More(usize),
    /// Nothing more is taken before something else has moved.
    Wait,
    /// A statement is to be judged.
    Ask(P::Ask),
    /// Something has happened.
    Event(P::Event),
}

/// What became of a statement that was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It goes on to the server, or the session waits for something.
    Goes,
    /// The client has an answer coming, or the server prepares it only.
    Answered,
    /// What came before decides; it is asked about again.
    NotYet,
}

/// A protocol's half of a session.
pub(crate) trait Protocol: Sized {
    /// The language of its statements.
    const DIALECT: SqlDialect;
    /// Whether the server answers a request to interrupt a statement: then an error, such as a missing privilege, is one
    /// that stays. Where there is no answer, only a connection has failed.
    const REFUSES: bool;
    /// Whether its machine asks again about a statement that was not judged. What it asks then holds then: an earlier
    /// message may have failed meanwhile.
    const ASKS_AGAIN: bool;
    /// What the sessions of a listener share.
    type Shared: AsRef<Listening>;
    /// What does not follow the protocol.
    type Error: Error;
    /// What its machine reports.
    type Event;
    /// A statement that is to be judged.
    type Ask;
    /// What has to be known of a statement when it is admitted.
    type Goes;
    /// What has to be known of a statement of the gateway's own when its answer has come.
    type Own;

    /// Passes what the server sent on to the client, up to an event; `None` when more has to come or to go out.
    fn server(&mut self, link: &mut Link) -> Result<Option<Self::Event>, Self::Error>;
    /// Passes what the client sent on to the server, up to what concerns the session.
    fn client(&mut self, link: &mut Link, governor: &Governor) -> Result<Next<Self>, Self::Error>;
    /// Does what an event asks for.
    fn happened(session: &mut Session<Self>, event: Self::Event);
    /// Decides what becomes of a statement whose payer is known, or what that has to wait for.
    fn judge(session: &mut Session<Self>, ask: Self::Ask) -> Result<Judged, Self::Error>;
    /// The statement is admitted.
    fn go(&mut self, link: &Link, goes: Self::Goes, running: Box<Running>) -> Result<(), Self::Error>;
    /// The client gets an error in its place.
    fn deny(&mut self, link: &Link, denied: &Denied) -> Result<Judged, Self::Error>;
    /// The client gets an answer of the gateway's own.
    fn answer(&mut self, link: &Link, answer: Answer, own: Self::Own) -> Result<(), Self::Error>;

    /// Whether the server has answered all that it was sent, so that [`Self::in_transaction`] is certain.
    fn is_quiet(&self) -> bool;
    /// Whether the client awaits nothing and says nothing: a good moment to end the connection.
    fn is_idle(&self) -> bool;
    /// Whether the session is in a transaction, as the server said last.
    fn in_transaction(&self) -> bool;
    /// The admitted statement that the server comes to first, and how far it has come if the server is at it.
    fn running(&mut self) -> Option<(&mut Running, Option<Progress>)>;

    /// Whether the client has asked to cancel the statement that waits for its payer or for admission.
    fn poll_cancelled(&mut self, _: &Context<'_>) -> bool {
        false
    }
    /// A request that came before the next statement is not about it.
    fn forget_cancelled(&mut self) {}
    /// Whether the server has acted on the client's request to cancel the statement that it is at.
    fn poll_interrupted(&mut self, _: &Context<'_>) -> bool {
        false
    }
    /// The client gets this error when the server has interrupted what it is at. False when the server cannot be asked
    /// to.
    fn kill(&mut self, shared: &Self::Shared, denied: &Denied) -> bool;
    /// Asks the server to interrupt what it is at, where there is a way to.
    fn interrupt(&self, shared: &Arc<Self::Shared>) -> Option<Later<io::Result<()>>>;

    /// The last words for the client; none in the middle of others.
    fn farewell(&self, end: &Result<End, SessionError<Self::Error>>) -> Option<Vec<u8>>;
    /// The session is over: nothing more reaches it by the key of its server's process.
    fn leave(&self, _: &Self::Shared) {}
    /// The statements that have not ended.
    fn abandon(&mut self) -> Vec<Finished>;
}
