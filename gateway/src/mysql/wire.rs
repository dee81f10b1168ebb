//! What both directions of a connection work on: the responses that are awaited, what they change, and what is due.

use std::collections::VecDeque;

use super::answer::{self, Answer, Audience};
use super::command::Command;
use super::ending::{Ending, Status};
use super::frame::Frames;
use super::handshake::Handshake;
use super::outstanding::{Described, Kept, Outstanding, Response, Running, Told};
use super::reply::Reply;
use super::settings::Settings;
use super::statements::Statements;
use super::step::{Bytes, Event, StatementEnds, Step};
use crate::govern::explained_columns;
use crate::session::Side;

/// The state of both directions.
#[derive(Debug)]
pub(super) struct Wire<T> {
    pub(super) handshake: Handshake,
    pub(super) outstanding: Outstanding<T>,
    pub(super) statements: Statements<T>,
    /// Where the server's bytes stand within its packets.
    pub(super) heard: Frames,
    status: Status,
    /// The session when it was new, or as if new.
    fresh: Status,
    explaining: Option<Told>,
    due: VecDeque<Due>,
}

/// A step that is due before anything else is looked at.
#[derive(Debug)]
enum Due {
    Tell(Event),
    Send(Side, Vec<u8>),
}

impl<T> Wire<T> {
    /// Of a connection of which nothing has been heard.
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            handshake: Handshake::new(settings),
            outstanding: Outstanding::new(),
            statements: Statements::new(),
            heard: Frames::default(),
            status: Status::default(),
            fresh: Status::default(),
            explaining: None,
            due: VecDeque::new(),
        }
    }

    /// Whether the server has answered all that it was sent, and the client has all of it.
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty() && self.due.is_empty() && self.heard.at_packet()
    }

    /// Whether the server has answered all that it was sent, and it is known what came of that.
    pub(super) fn is_quiet(&self) -> bool {
        self.outstanding.is_empty() && !self.has_news()
    }

    /// Whether another database, or a session as if new, may come of what the server was sent.
    pub(super) fn may_change_payer(&self) -> bool {
        let changes =
            |running: &Running<T>| running.database.is_some() || running.command == Command::ResetConnection;
        self.has_news() || self.outstanding.any(changes)
    }

    fn has_news(&self) -> bool {
        self.due.iter().any(|due| matches!(due, Due::Tell(_)))
    }

    /// The session, as the server said last.
    pub(super) fn status(&self) -> Status {
        self.status
    }

    pub(super) fn in_transaction(&self) -> bool {
        self.status.has(Status::IN_TRANSACTION)
    }

    /// The client's capabilities and the state of its session, for an answer to it.
    pub(super) fn audience(&self) -> Audience {
        Audience { capabilities: self.handshake.capabilities(), status: self.status, binary: false }
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.due.push_back(Due::Tell(event));
    }

    pub(super) fn send(&mut self, side: Side, bytes: Vec<u8>) {
        self.due.push_back(Due::Send(side, bytes));
    }

    /// The next step before more input is read: at most a few events of the packet that came last, then the answers
    /// whose turn has come, which is between the server's packets.
    pub(super) fn due(&mut self) -> Option<Step<'static, T>> {
        match self.due.pop_front() {
            Some(Due::Tell(event)) => return Some(Step::Tell(event)),
            Some(Due::Send(side, bytes)) => return Some(Step::Send(side, Bytes(bytes))),
            None if !self.heard.at_packet() => return None,
            None => {}
        }
        let packets = self.outstanding.pop_answer()?;
        Some(Step::Send(Side::Client, Bytes(packets)))
    }

    /// A command has a response, which is awaited from now on.
    pub(super) fn expect(
        &mut self,
        command: Command,
        number: Option<u64>,
        template: Option<Kept<T>>,
        database: Option<String>,
    ) {
        let naming = self.statements.take_naming();
        if let Some(reply) = Reply::to(command) {
            let running = Running::new(command, Response::Reply(reply));
            self.outstanding.push(Running { number, template, database, naming, ..running });
        }
    }

    /// Sends the client the cost of the explained statement that has just ended; nothing if the client had an error
    /// instead.
    pub(super) fn explain(&mut self, answer: &Answer) {
        if let Some(Told { sequence, binary }) = self.explaining.take() {
            let packets = answer.packets(sequence, Audience { binary, ..self.audience() });
            self.send(Side::Client, packets);
        }
    }

    /// A response has ended. False when it was that to a login, which was rejected.
    pub(super) fn finish(&mut self, ending: Ending) -> bool {
        self.status = ending.status_after(self.status);
        let Some(mut running) = self.outstanding.pop() else { return true };
        self.explaining = running.explained;
        if let Some(Described::Parameters { next, .. }) = running.described {
            let columns = answer::columns(&explained_columns(), next, self.audience());
            self.send(Side::Client, columns);
        }
        if let Response::Auth(auth) = &mut running.response
            && let Some(scramble) = auth.scramble.take()
        {
            self.handshake.keep_scramble(scramble);
        }
        let done = ending.error.is_none();
        if let Some(naming) = running.naming.take() {
            self.statements.named.ended(naming, done);
        }
        let database = ending.database.or(running.database.take().filter(|_| done));
        if let Some(ends) = running.ends(self.in_transaction(), true) {
            self.tell(Event::StatementEnds(ends));
        }
        match (running.response, running.command) {
            (Response::Auth(auth), _) if done => {
                self.renewed();
                let login = self.handshake.login(auth.identity, database);
                self.tell(if auth.is_login { Event::Login(login) } else { Event::UserChanged(login) });
            }
            (Response::Auth(auth), _) if auth.is_login => return false,
            // MariaDB gives up the session before it looks who asks, and goes on with the user before, without a word
            // of the new one. MySQL ends the connection.
            (Response::Auth(_), _) => {
                self.status = self.fresh;
                self.statements.forget();
                self.tell(Event::SessionReset);
            }
            (_, Command::ResetConnection) if done => {
                self.renewed();
                self.tell(Event::SessionReset);
            }
            _ => {
                if let Some(database) = database {
                    self.tell(Event::DatabaseChanged { database });
                }
            }
        }
        true
    }

    /// The session is new, or as if new, and the server has said what it is like.
    fn renewed(&mut self) {
        self.fresh = self.status;
        self.statements.forget();
    }

    /// The connection has ended: returns the statements that have not.
    pub(super) fn abandon(&mut self) -> Vec<StatementEnds> {
        let in_transaction = self.in_transaction();
        let mut ended = Vec::new();
        while !self.outstanding.is_empty() {
            let running = self.outstanding.pop();
            ended.extend(running.and_then(|running| running.ends(in_transaction, false)));
            self.outstanding.pop_answer();
        }
        ended
    }
}
