//! Responses that a client awaits, in the order in which it gets them.
//!
//! A client may send commands ahead; each command that has a response waits here, and so does each answer that the
//! gateway gives in place of one.

use std::collections::VecDeque;

use tidegate_sql::Naming;

use super::answer::Refusal;
use super::auth::{Auth, Password};
use super::command::Command;
use super::reply::Reply;
use super::step::{Progress, StatementEnds};

/// Most responses that are awaited at once. A client that is further ahead is not read until one has come.
pub(super) const PIPELINE_LIMIT: usize = 128;
/// Most bytes of the gateway's own answers that wait for their turn; beyond, the client is not read.
pub(super) const WAITING_ANSWERS_LIMIT: usize = 1 << 20;

/// The kind of a response.
#[derive(Debug)]
pub(super) enum Response {
    Reply(Reply),
    Auth(Box<Auth>),
}

/// What is remembered of a prepared statement.
#[derive(Clone, Debug)]
pub(super) struct Kept<T> {
    pub(super) template: T,
    pub(super) kind: Kind,
}

/// What the server has prepared for it, and how its executions are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The statement itself.
    Theirs,
    /// The statement that it explains; executions are answered with its cost.
    Explained,
    /// Another one, for the sake of its number: the gateway answers.
    Ours,
}

/// The form in which a cost is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// The sequence id of the first packet.
    pub(super) sequence: u8,
    /// As the result of a prepared statement.
    pub(super) binary: bool,
}

/// How far the description of a prepared statement has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Described {
    /// None of it has.
    Awaited,
    /// So many packets are about its parameters, and the client's; the cost's columns begin with this sequence id.
    Parameters { left: u32, next: u8 },
}

/// A command that the server has, or is getting.
#[derive(Debug)]
pub(super) struct Running<T> {
    pub(super) command: Command,
    pub(super) response: Response,
    /// The statement's, if it is one.
    pub(super) number: Option<u64>,
    /// What to remember of it once it is prepared.
    pub(super) template: Option<Kept<T>>,
    /// The gateway describes its result itself: it is that of an explained statement that is prepared.
    pub(super) described: Option<Described>,
    /// The database that the session will be in.
    pub(super) database: Option<String>,
    /// What it does with names that SQL gives to statements.
    pub(super) naming: Option<Naming<T>>,
    /// The client gets no more of the response: it has had an error, or gets the statement's cost instead.
    pub(super) muted: bool,
    /// The cost that the client gets in place of the result.
    pub(super) explained: Option<Told>,
    /// The error that the client gets when the statement was interrupted.
    pub(super) killed: Option<Refusal>,
    /// Where that error replaces a result that began afterwards: the sequence id of the result's first packet.
    pub(super) withheld: Option<u8>,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
}

impl<T> Running<T> {
    pub(super) fn new(command: Command, response: Response) -> Self {
        Self {
            command,
            response,
            number: None,
            template: None,
            described: None,
            database: None,
            naming: None,
            muted: false,
            explained: None,
            killed: None,
            withheld: None,
            request_bytes: 0,
            response_bytes: 0,
        }
    }

    /// The response, where it is not a conversation.
    pub(super) fn reply(&mut self) -> Option<&mut Reply> {
        match &mut self.response {
            Response::Reply(reply) => Some(reply),
            Response::Auth(_) => None,
        }
    }

    /// A packet of this sequence id passes. True when it is the first of a description that the client does not get.
    pub(super) fn hides_description(&mut self, sequence: u8) -> bool {
        let Some(Described::Parameters { left, next }) = &mut self.described else { return false };
        if *left == 0 {
            // Packets behind the first hidden one are hidden with it.
            return !std::mem::replace(&mut self.muted, true);
        }
        (*left, *next) = (*left - 1, sequence.wrapping_add(1));
        false
    }

    /// Whether it was killed, and the client has not had an error of it.
    pub(super) fn awaits_kill(&self) -> bool {
        self.killed.is_some() && (!self.muted || self.instead().is_some())
    }

    /// The sequence id of what the client gets in place of the server's words.
    pub(super) fn instead(&self) -> Option<u8> {
        let described = match self.described {
            Some(Described::Parameters { next, .. }) => Some(next),
            Some(Described::Awaited) | None => None,
        };
        self.withheld.or(described).or(self.explained.map(|told| told.sequence))
    }

    pub(super) fn progress(&self) -> Option<Progress> {
        let Response::Reply(reply) = &self.response else { return None };
        let rows = reply.tally().rows;
        let (request_bytes, response_bytes) = (self.request_bytes, self.response_bytes);
        Some(Progress { number: self.number?, rows, request_bytes, response_bytes })
    }

    /// How it went, if it is a statement.
    pub(super) fn ends(&self, in_transaction: bool, complete: bool) -> Option<StatementEnds> {
        let Response::Reply(reply) = &self.response else { return None };
        let tally = reply.tally();
        Some(StatementEnds {
            number: self.number?,
            rows: tally.rows,
            affected: tally.affected,
            error: tally.error,
            in_transaction,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            complete,
        })
    }
}

#[derive(Debug)]
enum Awaited<T> {
    Running(Running<T>),
    Answer(Vec<u8>),
}

/// What a client awaits.
#[derive(Debug)]
pub(super) struct Outstanding<T> {
    awaited: VecDeque<Awaited<T>>,
    answer_bytes: usize,
}

impl<T> Outstanding<T> {
    pub(super) fn new() -> Self {
        Self { awaited: VecDeque::new(), answer_bytes: 0 }
    }

    /// Whether there is room for another.
    pub(super) fn has_room(&self) -> bool {
        self.awaited.len() < PIPELINE_LIMIT && self.answer_bytes < WAITING_ANSWERS_LIMIT
    }

    pub(super) fn is_empty(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Whether one of the commands is of this kind.
    pub(super) fn any(&self, is: impl Fn(&Running<T>) -> bool) -> bool {
        self.awaited.iter().any(|awaited| matches!(awaited, Awaited::Running(running) if is(running)))
    }

    pub(super) fn len(&self) -> usize {
        self.awaited.len()
    }

    /// Whether the server has been sent any of a command behind the one that it answers.
    pub(super) fn is_ahead(&self) -> bool {
        self.awaited
            .iter()
            .skip(1)
            .any(|awaited| matches!(awaited, Awaited::Running(running) if running.request_bytes > 0))
    }

    pub(super) fn push(&mut self, running: Running<T>) {
        self.awaited.push_back(Awaited::Running(running));
    }

    pub(super) fn push_answer(&mut self, packets: Vec<u8>) {
        self.answer_bytes += packets.len();
        self.awaited.push_back(Awaited::Answer(packets));
    }

    /// The answer whose turn it is.
    pub(super) fn pop_answer(&mut self) -> Option<Vec<u8>> {
        let front = self.awaited.pop_front()?;
        match front {
            Awaited::Answer(packets) => {
                self.answer_bytes = self.answer_bytes.saturating_sub(packets.len());
                Some(packets)
            }
            Awaited::Running(_) => {
                self.awaited.push_front(front);
                None
            }
        }
    }

    /// The command that the server answers.
    pub(super) fn front(&self) -> Option<&Running<T>> {
        match self.awaited.front()? {
            Awaited::Running(running) => Some(running),
            Awaited::Answer(_) => None,
        }
    }

    /// The command that the server answers.
    pub(super) fn front_mut(&mut self) -> Option<&mut Running<T>> {
        match self.awaited.front_mut()? {
            Awaited::Running(running) => Some(running),
            Awaited::Answer(_) => None,
        }
    }

    /// So many more bytes of the response at the front have come.
    pub(super) fn count(&mut self, taken: usize) {
        if let Some(running) = self.front_mut() {
            let bytes = u64::try_from(taken).unwrap_or(u64::MAX);
            running.response_bytes = running.response_bytes.saturating_add(bytes);
        }
    }

    /// Whether a packet that begins so is the key that the gateway has asked for.
    pub(super) fn awaits_key(&self, payload: &[u8]) -> bool {
        let response = self.front().map(|running| &running.response);
        let asked =
            matches!(response, Some(Response::Auth(auth)) if matches!(auth.password, Password::Key(_)));
        asked && payload.first() == Some(&0x01)
    }

    /// The command that was sent last.
    pub(super) fn back_mut(&mut self) -> Option<&mut Running<T>> {
        match self.awaited.back_mut()? {
            Awaited::Running(running) => Some(running),
            Awaited::Answer(_) => None,
        }
    }

    /// The command that the server has answered.
    pub(super) fn pop(&mut self) -> Option<Running<T>> {
        let front = self.awaited.pop_front()?;
        match front {
            Awaited::Running(running) => Some(running),
            Awaited::Answer(_) => {
                self.awaited.push_front(front);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_take_their_turn() {
        let mut outstanding = Outstanding::<()>::new();
        let reply = Reply::to(Command::Ping).map(Response::Reply).unwrap();
        outstanding.push(Running::new(Command::Ping, reply));
        outstanding.push_answer(vec![1; 10]);
        assert_eq!(outstanding.pop_answer(), None);
        assert_eq!(outstanding.pop().map(|running| running.command), Some(Command::Ping));
        assert!(outstanding.pop().is_none());
        assert_eq!(outstanding.pop_answer(), Some(vec![1; 10]));
        assert!(outstanding.is_empty());
    }

    #[test]
    fn a_client_far_ahead_is_not_read() {
        let mut outstanding = Outstanding::<()>::new();
        for _ in 0..PIPELINE_LIMIT {
            assert!(outstanding.has_room());
            outstanding.push_answer(Vec::new());
        }
        assert!(!outstanding.has_room());
        let mut outstanding = Outstanding::<()>::new();
        outstanding.push_answer(vec![0; WAITING_ANSWERS_LIMIT]);
        assert!(!outstanding.has_room());
    }
}
