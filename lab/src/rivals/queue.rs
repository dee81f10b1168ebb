//! A queue of operations in the order of their arrival, each with its own patience.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::units::Time;

use super::Operation;

/// Waiting operations of one node.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// Waiting operations by number, which rises with the arrivals.
    waiting: BTreeMap<u64, Operation>,
    deadlines: BTreeSet<(Time, u64)>,
    /// RU of those who wait.
    ru: f64,
}

impl Queue {
    /// An operation joins.
    pub(super) fn push(&mut self, operation: Operation) {
        self.ru += operation.cost;
        self.deadlines.insert((operation.deadline, operation.id));
        self.waiting.insert(operation.id, operation);
    }

    /// The first in the queue.
    pub(super) fn first(&self) -> Option<&Operation> {
        self.waiting.first_key_value().map(|(_, first)| first)
    }

    /// Takes the first out.
    pub(super) fn pop(&mut self) -> Option<Operation> {
        let (id, first) = self.waiting.pop_first()?;
        self.deadlines.remove(&(first.deadline, id));
        self.left(first.cost);
        Some(first)
    }

    /// Takes out the next one whose patience is over.
    pub(super) fn give_up(&mut self, now: Time) -> Option<u64> {
        let (deadline, id) = self.deadlines.first().copied()?;
        if deadline > now {
            return None;
        }
        self.deadlines.remove(&(deadline, id));
        if let Some(gone) = self.waiting.remove(&id) {
            self.left(gone.cost);
        }
        Some(id)
    }

    fn left(&mut self, cost: f64) {
        // Float dust must not look like a waiter.
        self.ru = if self.waiting.is_empty() { 0.0 } else { self.ru - cost };
    }

    /// The next deadline.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// RU that wait.
    pub(super) fn ru(&self) -> f64 {
        self.ru
    }
}
