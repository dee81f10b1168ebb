//! The queue of operations that wait for admission on a node: first come, first served, each with a deadline.
//!
//! A cancelled waiter leaves a hole that is skipped later, so that leaving costs no walk through the queue.

use std::collections::{BTreeSet, VecDeque};

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

/// Holes that are not worth closing the ranks for.
const HOLES: usize = 64;

/// Waiting operations in the order of arrival.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Waiters {
    /// `None` is a hole; the first is none.
    queue: VecDeque<(WaiterId, Option<Waiter>)>,
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
        self.by_deadline.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_deadline.is_empty()
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
        self.queue.push_back((id, Some(waiter)));
        id
    }

    pub(crate) fn leave(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = match self.queue.front() {
            Some((first, _)) if *first == id => self.queue.pop_front()?.1?,
            _ => {
                let place = self.queue.binary_search_by_key(&id, |(id, _)| *id).ok()?;
                self.queue.get_mut(place)?.1.take()?
            }
        };
        self.by_deadline.remove(&(waiter.deadline, id));
        self.backlog -= waiter.cost;
        while self.queue.front().is_some_and(|(_, waiter)| waiter.is_none()) {
            self.queue.pop_front();
        }
        if self.queue.len() > 2 * self.len() + HOLES {
            self.queue.retain(|(_, waiter)| waiter.is_some());
        }
        Some(waiter)
    }

    pub(crate) fn first(&self) -> Option<(WaiterId, Waiter)> {
        self.queue.front().and_then(|(id, waiter)| Some((*id, (*waiter)?)))
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

    proptest::proptest! {
        /// Against a map: who is first, whose deadline is next, and how much waits; and holes do not pile up.
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
                assert!(waiters.queue.len() <= 2 * all.len() + HOLES);
            }
        }
    }
}
