//! Operations that go on in another group where this one holds them back: why it would, and what it keeps of them.

use super::budget::LeaseState;
use super::{NodeGroup, Refusal};
use crate::units::{Ru, Time};

/// A group beside another one in which its operations may go on.
#[derive(Debug)]
pub struct Passing<'n>(pub &'n mut NodeGroup);

impl Passing<'_> {
    /// Why an operation would be refused now that may wait until `deadline`; `None` when it would start or wait. It spends
    /// nothing and counts nothing.
    pub fn denies(&mut self, now: Time, cost: Ru, deadline: Time) -> Option<Refusal> {
        match self.0.check(now, cost) {
            Ok(()) => None,
            Err(_) => denial(self.0, now, cost.or_zero(), deadline),
        }
    }

    /// An operation asked here, found no tokens and goes on in another group, which pays for it. It counts as load, so that
    /// the lease follows what the group is asked for, and neither as refused nor as consumption.
    pub fn pass_on(&mut self, now: Time, cost: Ru) {
        let (node, cost) = (&mut *self.0, cost.or_zero());
        node.arrive(now, cost);
        node.quota.arrive(now);
        node.renewal.press();
        if cost <= node.look().max_fit() {
            node.budget.taken.pass(cost);
        }
    }
}

/// Why an operation that cannot start now is refused, if waiting until `deadline` is known to be useless.
pub(super) fn denial(node: &NodeGroup, now: Time, cost: Ru, deadline: Time) -> Option<Refusal> {
    let refusal = node.look().refusal(now, cost);
    let hopeless = match refusal {
        Refusal::UnknownGroup | Refusal::NeverFits { .. } => true,
        // The rate stays as it is, so the time until a retry is reliable.
        Refusal::Throttled { retry_after } => {
            node.renewal.saturated(now) && now.after(retry_after) > deadline
        }
        Refusal::QuotaUsedUp { resets_in, .. } => now.after(resets_in) > deadline,
        Refusal::Unavailable { .. } => node.budget.right().state() == LeaseState::Closed,
        Refusal::TooManyWaiters { .. } => true,
    };
    if hopeless || deadline <= now {
        return Some(refusal);
    }
    let limit = node.config.max_waiters;
    (node.waiters.len() >= limit).then_some(Refusal::TooManyWaiters { limit })
}
