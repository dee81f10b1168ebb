//! The operations of a group: those that wait for admission, and how many run.

use tidegate_core::node::{Admitted, Refusal, WaiterId};
use tidegate_core::ranks::Ranks;
use tidegate_core::units::{Ru, Time};
use tokio::sync::oneshot;

use crate::lending::Returned;
use crate::names::GroupName;

/// The answer to a waiter; when admitted, since when.
pub(crate) type Answer = Result<(Time, Admitted), Refusal>;

/// The request of an operation that may wait.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) cost: Ru,
    pub(crate) deadline: Time,
    /// A cost that never fits is not refused: the operation asks for what fits next.
    pub(crate) estimated: bool,
    pub(crate) place: Place,
}

/// The queues in which an operation has a place: what it does is counted once for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// One.
    Only,
    /// Two, of which this is its group's, or the first in which it waits. Who waits in both counts how it ends.
    First,
    /// Two, of which this is the queue of the group to which its own demotes.
    Second,
}

/// How an operation was let in.
pub(crate) enum Entered {
    Admitted(Time, Admitted),
    Queued(WaiterId, oneshot::Receiver<Answer>),
}

#[derive(Default)]
pub(super) struct Operations {
    waiting: Ranks<WaiterId, Waiter>,
    /// Permits not yet settled; those of open purses are not in it, and the sum may be below zero meanwhile.
    open: i64,
}

struct Waiter {
    answer: oneshot::Sender<Answer>,
    estimated: bool,
    place: Place,
}

/// Whether a refusal counts as one: an estimate that never fits is asked for again as far as it fits.
pub(super) fn counts(refusal: Refusal, estimated: bool, place: Place) -> bool {
    place == Place::Only && !(estimated && matches!(refusal, Refusal::NeverFits { .. }))
}

impl Operations {
    /// No operation waits.
    pub(super) fn none_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// No operation waits or runs.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.open == 0
    }

    pub(super) fn join(&mut self, id: WaiterId, wish: Wish) -> oneshot::Receiver<Answer> {
        let (answer, receiver) = oneshot::channel();
        let Wish { estimated, place, .. } = wish;
        self.waiting.join(id, Waiter { answer, estimated, place });
        receiver
    }

    /// A waiter goes away. False when it has its answer.
    pub(super) fn leave(&mut self, id: WaiterId) -> bool {
        self.waiting.leave(id).is_some()
    }

    /// Answers a waiter. Returns whether it was refused, and that counts.
    pub(super) fn complete(&mut self, id: WaiterId, answer: Answer, group: &GroupName) -> bool {
        let Some(waiter) = self.waiting.leave(id) else {
            tracing::error!(%group, "the core finished an unknown waiter");
            return false;
        };
        let refused = match answer {
            Ok(_) => {
                self.open();
                false
            }
            Err(refusal) => counts(refusal, waiter.estimated, waiter.place),
        };
        // The receiver leaves the map, under the group's lock, before it goes away.
        if waiter.answer.send(answer).is_err() {
            tracing::error!(%group, "a waiter left without saying so");
        }
        refused
    }

    /// An operation begins.
    pub(super) fn open(&mut self) {
        self.open = self.open.saturating_add(1);
    }

    /// An operation ends. Returns whether it was the last one.
    pub(super) fn close(&mut self) -> bool {
        self.open = self.open.saturating_sub(1);
        self.open == 0
    }

    /// Operations began and ended without the lock.
    pub(super) fn take_in(&mut self, returned: Returned) {
        self.open =
            self.open.saturating_add_unsigned(returned.admitted).saturating_sub_unsigned(returned.closed);
    }

    /// Permits not yet settled.
    pub(super) fn count(&self) -> usize {
        usize::try_from(self.open).unwrap_or(0)
    }
}
