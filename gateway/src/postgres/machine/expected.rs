//! What the client gets next: answers of the server, in its place, or of the gateway.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Explained, Unit};
use crate::postgres::message;

/// Bytes of the gateway's answers that wait for their turn; a client that sends on waits, too, with what is answered.
const MAX_HELD: usize = 1_048_576;

/// Something that the client gets.
#[derive(Debug)]
pub(super) enum Expect {
    /// This many answers of the server to messages of the extended protocol.
    Replies(u32),
    /// The server's description of a result, which is replaced by this one.
    Described(Vec<u8>),
    /// The server's result of a statement that is explained, with the formats asked for.
    Explained(Arc<[bool]>),
    /// An answer of the gateway.
    Insert(Vec<u8>),
    /// An answer of the gateway to a simple query; a `ReadyForQuery` is added.
    Answer(Vec<u8>),
    /// The server's `ReadyForQuery`.
    Ready,
}

/// All that it gets, in this order.
#[derive(Debug, Default)]
pub(super) struct Expected {
    queue: VecDeque<Expect>,
    /// Bytes of the gateway's answers in it.
    held: usize,
    needs_flush: bool,
    /// The server was asked for all that is expected of it.
    flushed: bool,
    /// The `ReadyForQuery` at the front has been reported.
    told_ready: bool,
    /// The end of the explained result at the front has been reported.
    told_costs: bool,
}

impl Expected {
    /// How many, neighbours of the same kind counted once.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn push(&mut self, expect: Expect) {
        self.flushed = false;
        if let Expect::Answer(reply) = &expect {
            self.held += reply.len();
        }
        match (self.queue.back_mut(), expect) {
            (Some(Expect::Replies(count)), Expect::Replies(more)) if *count < u32::MAX => *count += more,
            (_, expect) => self.queue.push_back(expect),
        }
    }

    /// An answer of the gateway. The server keeps its replies until a message makes it send them.
    pub(super) fn insert(&mut self, reply: Vec<u8>) {
        let last = self.queue.back_mut();
        self.needs_flush |=
            matches!(last, Some(Expect::Replies(_) | Expect::Described(_) | Expect::Explained(_)));
        self.held += reply.len();
        match last {
            Some(Expect::Insert(before)) => before.extend_from_slice(&reply),
            _ => self.queue.push_back(Expect::Insert(reply)),
        }
    }

    /// Whether so much waits for its turn that nothing more should be answered.
    pub(super) fn is_full(&self) -> bool {
        self.held >= MAX_HELD
    }

    fn pop(&mut self) -> Option<Expect> {
        let expect = self.queue.pop_front()?;
        if let Expect::Insert(reply) | Expect::Answer(reply) = &expect {
            self.held -= reply.len();
        }
        Some(expect)
    }

    /// Whether a `Flush` must be sent to the server now, so that an answer of the gateway finds its place.
    pub(super) fn take_flush(&mut self) -> bool {
        std::mem::take(&mut self.needs_flush)
    }

    /// Whether anything is still to come. The server keeps its replies until a message makes it send them.
    pub(super) fn awaits(&mut self) -> bool {
        let awaits = !self.queue.is_empty();
        self.needs_flush |= awaits && !std::mem::replace(&mut self.flushed, true);
        awaits
    }

    /// Whether an answer of the gateway is next.
    pub(super) fn has_answer(&self) -> bool {
        matches!(self.queue.front(), Some(Expect::Insert(_) | Expect::Answer(_)))
    }

    /// Puts answers of the gateway out whose turn it is; a session of this status is ready for another query.
    pub(super) fn answer(&mut self, status: u8, out: &mut Vec<u8>) {
        while self.has_answer() {
            match self.pop() {
                Some(Expect::Insert(reply)) => out.extend_from_slice(&reply),
                Some(Expect::Answer(reply)) => {
                    out.extend_from_slice(&reply);
                    out.extend_from_slice(&message::ready_for_query(status));
                }
                _ => {}
            }
        }
    }

    /// The server has answered a message.
    pub(super) fn replied(&mut self) {
        if let Some(Expect::Replies(count)) = self.queue.front_mut() {
            *count -= 1;
            if *count == 0 {
                self.queue.pop_front();
            }
        }
    }

    /// Whether the `ReadyForQuery` at the front has not been reported yet, as it is now.
    pub(super) fn tells_ready(&mut self) -> bool {
        !std::mem::replace(&mut self.told_ready, true)
    }

    /// That goes out.
    pub(super) fn ready(&mut self) {
        (self.told_ready, self.told_costs) = (false, false);
        // Only now: an answer of the gateway behind it must not overtake it.
        while self.pop().is_some_and(|expect| !matches!(expect, Expect::Ready)) {}
    }

    /// The formats of the cost that is due before a message of this kind: it ends the result of a statement that is
    /// explained, and more of the unit follows. They are reported once.
    pub(super) fn tells_costs(&mut self, kind: u8) -> Option<Arc<[bool]>> {
        let Some(Expect::Explained(formats)) = self.queue.front() else { return None };
        let last = matches!(self.queue.get(1), Some(Expect::Ready));
        let due = ends_result(kind) && !last && !self.told_costs;
        self.told_costs |= due;
        due.then(|| Arc::clone(formats))
    }

    /// Whether a message of this kind, of this unit, is one that the client gets something else for.
    pub(super) fn instead_of<R>(&mut self, kind: u8, unit: Option<&mut Unit<R>>, out: &mut Vec<u8>) -> bool {
        match self.queue.front() {
            Some(Expect::Described(description)) if matches!(kind, b'T' | b'n') => {
                out.extend_from_slice(description);
                self.queue.pop_front();
                true
            }
            Some(Expect::Explained(formats)) if ends_result(kind) => {
                // Sent by now, or at the end.
                if !std::mem::take(&mut self.told_costs)
                    && let Some(unit) = unit
                {
                    unit.explained = Some(Explained::Rows(Arc::clone(formats)));
                }
                self.queue.pop_front();
                true
            }
            Some(Expect::Explained(_)) => matches!(kind, b'D' | b'd' | b'H' | b'c'),
            _ => false,
        }
    }

    /// The server answers nothing more before its next `ReadyForQuery`.
    pub(super) fn skip_to_ready(&mut self) {
        while self.queue.front().is_some_and(|expect| !matches!(expect, Expect::Ready)) {
            self.pop();
        }
    }

    /// There will be no next `ReadyForQuery`. False when none was expected.
    pub(super) fn forget_ready(&mut self) -> bool {
        let ready = self.queue.iter().position(|expect| matches!(expect, Expect::Ready));
        ready.and_then(|ready| self.queue.remove(ready)).is_some()
    }
}

/// Whether a message of this kind ends what an `Execute` gives.
fn ends_result(kind: u8) -> bool {
    matches!(kind, b'C' | b'I' | b's')
}
