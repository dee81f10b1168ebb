//! The queue of operations that wait for admission on a node: first come, first served, each with a deadline.
//!
//! A cancelled waiter leaves a hole that is skipped later, so that leaving costs no walk through the queue.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::{Ru, Time};

/// Identity of a waiting operation within its group on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// An operation that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiter {
    pub cost: Ru,
    pub deadline: Time,
    pub since: Time,
}

/// Waiting operations in the order of arrival.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Waiters {
    queue: BTreeMap<WaiterId, Waiter>,
    by_deadline: BTreeSet<(Time, WaiterId)>,
    next: u64,
    backlog: Ru,
}

impl Waiters {
    /// An empty queue whose next waiter is called so.
    pub(crate) fn from_id(next: u64) -> Self {
        Self { next, ..Self::default() }
    }

    /// What the next waiter is called.
    pub(crate) fn next_id(&self) -> u64 {
        self.next
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// RU waiting.
    pub(crate) fn backlog(&self) -> Ru {
        self.backlog
    }

    pub(crate) fn join(&mut self, waiter: Waiter) -> WaiterId {
        let id = WaiterId(self.next);
        self.next += 1;
        self.backlog += waiter.cost;
        self.by_deadline.insert((waiter.deadline, id));
        self.queue.insert(id, waiter);
        id
    }

    pub(crate) fn leave(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.queue.remove(&id)?;
        self.by_deadline.remove(&(waiter.deadline, id));
        self.backlog -= waiter.cost;
        Some(waiter)
    }

    pub(crate) fn first(&self) -> Option<(WaiterId, Waiter)> {
        self.queue.first_key_value().map(|(id, waiter)| (*id, *waiter))
    }

    /// The waiter whose deadline comes first.
    pub(crate) fn most_urgent(&self) -> Option<(Time, WaiterId)> {
        self.by_deadline.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_keeps_the_order_the_backlog_and_the_deadlines() {
        let mut waiters = Waiters::default();
        let join = |w: &mut Waiters, cost, deadline| {
            w.join(Waiter { cost: Ru(cost), deadline: Time(deadline), since: Time(0) })
        };
        let (a, b, c) = (join(&mut waiters, 1, 30), join(&mut waiters, 2, 10), join(&mut waiters, 4, 20));
        assert_eq!(waiters.backlog(), Ru(7));
        assert_eq!(waiters.most_urgent(), Some((Time(10), b)));
        assert!(waiters.leave(b).is_some() && waiters.leave(b).is_none());
        assert_eq!(waiters.first().map(|(id, _)| id), Some(a));
        assert_eq!(waiters.most_urgent(), Some((Time(20), c)));
        assert_eq!((waiters.backlog(), waiters.len()), (Ru(5), 2));
    }
}
