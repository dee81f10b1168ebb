//! The order in which the operations that wait on a node start.
//!
//! First come, first served, with one exception: an operation that the bucket can never cover waits for a lump, which
//! the controller grants in its own order. Meanwhile operations behind it that fit the bucket go on, with tokens that
//! the controller leases for them beside it, and never with the lump. They cannot starve it: no tokens of the bucket
//! would ever cover it, and what is leased beside it is at most half of the client's share (`decide.rs`), so that it
//! waits at most twice as long as it would at the head of the queue.

use super::NodeGroup;
use super::budget::{Budget, From};
use super::quota::Quota;
use crate::units::{Ru, Time};
use crate::usage::Total;
use crate::waiters::{Waiter, WaiterId, Waiters};

/// An operation that may start, and the tokens that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub id: WaiterId,
    pub cost: Ru,
    pub from: From,
}

/// Whose turn it is among the operations that wait, with what is in hand.
#[derive(Clone, Copy)]
pub(super) struct Turns<'a> {
    waiters: &'a Waiters,
    budget: &'a Budget,
    quota: &'a Quota,
    settled: &'a Total,
}

impl Turns<'_> {
    /// Whether an operation needs a lump at the bucket's present size.
    pub(super) fn is_large(&self, cost: Ru) -> bool {
        self.budget.right().has_lumps() && cost > self.budget.bucket().cap()
    }

    /// The first operation that waits for a lump which has not come.
    pub(super) fn waits_for_lump(&self) -> Option<(WaiterId, Waiter)> {
        let first = self.waiters.first_large().filter(|_| !self.budget.right().is_paced())?;
        self.budget.hand().never_covers(first.1.cost).then_some(first)
    }

    /// The first operation that waits for a lump, come or not, and does not use the bucket.
    fn leaves_the_bucket(&self) -> Option<WaiterId> {
        let (id, first) = self.waiters.first_large().filter(|_| !self.budget.right().is_paced())?;
        let hand = self.budget.hand();
        (hand.never_covers(first.cost) || hand.lump().will_cover(first.cost)).then_some(id)
    }

    /// The tokens with which a new operation may start at once: nothing waits, or it passes all that wait.
    #[inline]
    pub(super) fn admits(&self, cost: Ru) -> Option<From> {
        if self.waiters.is_empty() && self.covers(cost, From::Both) {
            return Some(From::Both);
        }
        self.passes(cost).then_some(From::Bucket)
    }

    /// Whether an operation may take its tokens now, within the quota.
    #[inline]
    fn covers(&self, cost: Ru, from: From) -> bool {
        self.budget.covers(cost, from) && self.is_within_quota(cost)
    }

    /// Whether the quota, if there is one, lets an operation begin.
    #[inline]
    pub(super) fn is_within_quota(&self, cost: Ru) -> bool {
        self.quota.is_none() || self.is_within_share(cost)
    }

    /// Whether the node's share of the quota covers an operation. The fallback is for a node without a controller, from
    /// which it has no share: it holds unless the quota was used up when the controller last said so.
    #[cold]
    fn is_within_share(&self, cost: Ru) -> bool {
        let now = self.budget.bucket().last();
        match self.budget.right().expires() {
            Some(_) => self.quota.covers(now, cost, self.settled),
            None => self.quota.used_up(now, cost, self.settled).is_none(),
        }
    }

    /// Whether a new operation passes all that wait.
    fn passes(&self, cost: Ru) -> bool {
        self.waiters.first_small().is_none()
            && self.leaves_the_bucket().is_some()
            && self.covers(cost, From::Bucket)
    }

    /// The operation that may start now.
    pub(super) fn next(&self) -> Option<Turn> {
        self.order().into_iter().flatten().find(|turn| self.covers(turn.cost, turn.from))
    }

    /// When an operation may start, if nothing else happens.
    pub(super) fn next_at(&self) -> Option<Time> {
        let at = |turn: Turn| {
            self.is_within_quota(turn.cost).then(|| self.budget.covered_at(turn.cost, turn.from))?
        };
        self.order().into_iter().flatten().filter_map(at).min()
    }

    /// The first operation of either size that may start once it is covered, in the order of precedence.
    fn order(&self) -> [Option<Turn>; 2] {
        let turn = |(id, Waiter { cost, .. }), from| Some(Turn { id, cost, from });
        if !self.budget.right().has_lumps() {
            // Nobody grants lumps for the fallback, nor under a paced limit.
            return [self.waiters.first().and_then(|first| turn(first, From::Both)), None];
        }
        match (self.waiters.first_large(), self.waiters.first_small()) {
            (None, None) => [None, None],
            (Some(one), None) | (None, Some(one)) => [turn(one, From::Both), None],
            (Some(large), Some(small)) if small.0 < large.0 => {
                [turn(large, From::Lump), turn(small, From::Bucket)]
            }
            (Some(large), Some(small)) => {
                let passes = self.leaves_the_bucket().is_some();
                [turn(large, From::Both), turn(small, From::Bucket).filter(|_| passes)]
            }
        }
    }

    /// RU of the operations that pass the one that waits for a lump.
    pub(super) fn beside(&self) -> Ru {
        if self.waits_for_lump().is_some() { self.waiters.small_backlog() } else { Ru::ZERO }
    }
}

impl NodeGroup {
    /// Whose turn it is.
    #[inline]
    pub(super) fn turns(&self) -> Turns<'_> {
        let Self { waiters, budget, quota, consumption: settled, .. } = self;
        Turns { waiters, budget, quota, settled }
    }

    /// Moves operations that need a lump at the bucket's present size to their queue. Before the first lease the size
    /// was unknown.
    pub(super) fn sort_waiters(&mut self, now: Time) {
        while let Some((id, first)) = self.waiters.first_small()
            && self.turns().is_large(first.cost)
        {
            self.large_demand.arrived(now, first.cost);
            self.waiters.enlarge(id);
        }
    }
}
