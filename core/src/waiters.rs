//! The queue of operations that wait for admission on a node: first come, first served, each with a deadline.

use std::collections::BTreeSet;

use crate::ranks::Ranks;
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
    queue: Ranks<WaiterId, Waiter>,
    /// Deadlines that came in ascending order, as those of operations with the same patience do.
    in_order: Ranks<(Time, WaiterId), ()>,
    /// Deadlines that came after a later one.
    early: BTreeSet<(Time, WaiterId)>,
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
        let by_deadline = (waiter.deadline, id);
        if self.in_order.is_next(by_deadline) {
            self.in_order.join(by_deadline, ());
        } else {
            self.early.insert(by_deadline);
        }
        self.queue.join(id, waiter);
        id
    }

    pub(crate) fn leave(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.queue.leave(id)?;
        let by_deadline = (waiter.deadline, id);
        if self.in_order.leave(by_deadline).is_none() {
            self.early.remove(&by_deadline);
        }
        self.backlog -= waiter.cost;
        Some(waiter)
    }

    pub(crate) fn first(&self) -> Option<(WaiterId, Waiter)> {
        self.queue.first().map(|(id, waiter)| (id, *waiter))
    }

    /// The waiter whose deadline comes first.
    pub(crate) fn most_urgent(&self) -> Option<(Time, WaiterId)> {
        let in_order = self.in_order.first().map(|(first, ())| first);
        in_order.into_iter().chain(self.early.first().copied()).min()
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

    proptest::proptest! {
        /// Against a map: who is first, whose deadline is next, and how much waits.
        #[test]
        fn any_order_of_coming_and_going(steps in proptest::collection::vec((0_u8..4, 0_u64..500), 0..600)) {
            let (mut waiters, mut all) = (Waiters::default(), std::collections::BTreeMap::new());
            for (kind, number) in steps {
                let leaver = match kind {
                    0 | 1 => None,
                    2 => waiters.first().map(|(id, _)| id),
                    _ => Some(WaiterId(number)),
                };
                if let Some(id) = leaver {
                    assert_eq!(waiters.leave(id), all.remove(&id));
                } else {
                    let waiter = Waiter { cost: Ru(1), deadline: Time(number), since: Time(0) };
                    all.insert(waiters.join(waiter), waiter);
                }
                assert_eq!(waiters.first(), all.first_key_value().map(|(id, waiter)| (*id, *waiter)));
                let urgent = all.iter().map(|(id, waiter)| (waiter.deadline, *id)).min();
                assert_eq!(waiters.most_urgent(), urgent);
                assert_eq!((waiters.len(), waiters.is_empty()), (all.len(), all.is_empty()));
                assert_eq!(waiters.backlog(), Ru(i64::try_from(all.len()).unwrap()));
            }
        }
    }
}
