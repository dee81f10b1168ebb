//! The queue of operations that wait for admission on a node: first come, first served, each with a deadline.
//!
//! Operations that need a lump have a queue apart from those that fit the bucket, so that these need not wait for
//! tokens that are not theirs. The node decides which of both goes first.

use std::collections::{BTreeMap, BTreeSet};

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
    /// The cost is an estimate: if it never fits, the caller asks for the most that does.
    pub estimated: bool,
}

/// Waiting operations in the order of arrival.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Waiters {
    /// Operations that fit the bucket, as far as is known, and those that do not.
    small: Ranks<WaiterId, Waiter>,
    large: BTreeMap<WaiterId, Waiter>,
    /// Deadlines in ascending order of arrival, as operations with the same patience have them.
    in_order: Ranks<(Time, WaiterId), ()>,
    /// Deadlines that arrived after a later one.
    early: BTreeSet<(Time, WaiterId)>,
    next: u64,
    backlog: Ru,
    /// The part of the backlog that fits the bucket.
    small_backlog: Ru,
}

impl Waiters {
    /// An empty queue whose next waiter has this id.
    pub(crate) fn from_id(next: u64) -> Self {
        Self { next, ..Self::default() }
    }

    /// The id of the next waiter.
    pub(crate) fn next_id(&self) -> u64 {
        self.next
    }

    pub(crate) fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// RU waiting.
    pub(crate) fn backlog(&self) -> Ru {
        self.backlog
    }

    /// RU waiting in operations that fit the bucket.
    pub(crate) fn small_backlog(&self) -> Ru {
        self.small_backlog
    }

    pub(crate) fn join(&mut self, waiter: Waiter, large: bool) -> WaiterId {
        let id = WaiterId(self.next);
        self.next += 1;
        self.backlog += waiter.cost;
        let by_deadline = (waiter.deadline, id);
        if self.in_order.is_next(by_deadline) {
            self.in_order.join(by_deadline, ());
        } else {
            self.early.insert(by_deadline);
        }
        if large {
            self.large.insert(id, waiter);
        } else {
            self.small.join(id, waiter);
            self.small_backlog += waiter.cost;
        }
        id
    }

    pub(crate) fn leave(&mut self, id: WaiterId) -> Option<Waiter> {
        let small = self.small.leave(id);
        self.small_backlog -= small.map_or(Ru::ZERO, |waiter| waiter.cost);
        let waiter = small.or_else(|| self.large.remove(&id))?;
        let by_deadline = (waiter.deadline, id);
        if self.in_order.leave(by_deadline).is_none() {
            self.early.remove(&by_deadline);
        }
        self.backlog -= waiter.cost;
        Some(waiter)
    }

    /// Moves an operation that does not fit the bucket after all.
    pub(crate) fn enlarge(&mut self, id: WaiterId) {
        if let Some(waiter) = self.small.leave(id) {
            self.small_backlog -= waiter.cost;
            self.large.insert(id, waiter);
        }
    }

    /// The first operation of all.
    pub(crate) fn first(&self) -> Option<(WaiterId, Waiter)> {
        [self.first_small(), self.first_large()].into_iter().flatten().min_by_key(|(id, _)| *id)
    }

    /// The first operation that fits the bucket.
    pub(crate) fn first_small(&self) -> Option<(WaiterId, Waiter)> {
        self.small.first().map(|(id, waiter)| (id, *waiter))
    }

    /// The first operation that does not.
    pub(crate) fn first_large(&self) -> Option<(WaiterId, Waiter)> {
        self.large.first_key_value().map(|(id, waiter)| (*id, *waiter))
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
            let waiter =
                Waiter { cost: Ru(cost), deadline: Time(deadline), since: Time(0), estimated: false };
            w.join(waiter, cost == 2)
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
        /// Compares with a map: which waiter is first, which deadline is next, and how much waits.
        #[test]
        fn any_order_of_coming_and_going(steps in proptest::collection::vec((0_u8..4, 0_u64..500), 0..600)) {
            let (mut waiters, mut all) = (Waiters::default(), BTreeMap::new());
            for (kind, number) in steps {
                let leaver = match kind {
                    0 | 1 => None,
                    2 => waiters.first().map(|(id, _)| id),
                    _ => Some(WaiterId(number)),
                };
                if let Some(id) = leaver {
                    assert_eq!(waiters.leave(id), all.remove(&id));
                } else {
                    let waiter = Waiter { cost: Ru(1), deadline: Time(number), since: Time(0), estimated: false };
                    all.insert(waiters.join(waiter, kind == 1), waiter);
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
