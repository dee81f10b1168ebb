//! Lending a group's tokens to threads, which pay for operations from their purses without the group's lock, and taking
//! back what is left.
//!
//! Any other change of the group recalls everything first, so that the state is whole.

mod bias;
mod purse;
mod purses;
mod seat;

use tidegate_core::node::{Alike, Batch, NodeGroup, Refusal, Spent};
use tidegate_core::units::{Ru, Span, Time};
use tidegate_core::usage::Usage;
use tidegate_cost_model::Charge;

use crate::clock::{Clock, Tick};
use purse::Account;
use purses::{Open, Purses};

pub(crate) use bias::{prepare, will_prepare};
#[cfg(all(test, shuttle))]
pub(crate) use seat::seat;

/// Operations that come closer than this to one another are worth a purse.
const BUSY: Span = Span::millis(2);
/// A purse refuses no longer than this without asking the group.
const LONGEST_REFUSAL: Span = Span::millis(100);

/// The purses of one group, which threads reach without its lock.
#[derive(Debug, Default)]
pub(crate) struct Lending(Purses);

/// What is lent, guarded by the group's lock.
#[derive(Debug)]
pub(crate) struct Loans {
    /// Whether the group lends at all.
    allowed: bool,
    open: Open,
    /// When an operation last came to the lock, and whether that was soon after the one before.
    entered: Time,
    busy: bool,
}

/// Operations that went through purses which were taken back.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub(crate) struct Returned {
    /// Permits that were opened and closed.
    pub(crate) admitted: u64,
    pub(crate) closed: u64,
    pub(crate) refused: u64,
}

impl Loans {
    pub(crate) fn new(allowed: bool) -> Self {
        Self { allowed, open: Open::default(), entered: Time(0), busy: false }
    }

    /// Nothing is lent.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// An operation comes to the lock.
    fn enter(&mut self, now: Time) {
        self.busy = self.allowed && now.since(self.entered) < BUSY;
        self.entered = now;
    }
}

impl Returned {
    fn take_in(&mut self, node: &mut NodeGroup, now: Time, account: &Account) {
        node.put_back(now, &account.spent);
        self.admitted = self.admitted.saturating_add(account.spent.begun);
        self.closed = self.closed.saturating_add(account.closed);
        self.refused = self.refused.saturating_add(account.spent.refused);
    }
}

/// Without the group's lock.
impl Lending {
    /// Pays for an operation from the calling thread's purse; `None` when the group has to decide.
    #[inline(always)]
    pub(crate) fn pay(&self, cost: Ru, clock: &Clock) -> Option<Tick> {
        if cost < Ru::ZERO {
            return None;
        }
        self.0.mine()?.spend(cost, clock)
    }

    /// Refuses an operation as one was refused a moment ago; returns when to try again.
    pub(crate) fn refuses(&self, cost: Ru, clock: &Clock) -> Option<Span> {
        self.0.mine()?.refuses(cost, clock)
    }

    /// Takes in what an operation really cost. False: the group has to.
    pub(crate) fn settle(&self, estimate: Ru, charge: &Charge, usage: &Usage, clock: &Clock) -> bool {
        self.0.mine().is_some_and(|purse| purse.settle(estimate, charge, usage, clock))
    }

    /// The same for an operation without a usage vector.
    #[inline(always)]
    pub(crate) fn settle_charge(&self, estimate: Ru, charge: &Charge, clock: &Clock) -> bool {
        // No closure, which the compiler may leave out of line.
        match self.0.mine() {
            Some(purse) => purse.settle_charge(estimate, charge, clock),
            None => false,
        }
    }

    /// The operation never ran. False: the group has to take the tokens back.
    pub(crate) fn give_back(&self, cost: Ru) -> bool {
        self.0.mine().is_some_and(|purse| purse.give_back(cost))
    }

    /// No thread gets a purse, as where all seats are taken.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn without_seats(&self) {
        self.0.without_seats();
    }

    /// Whether the calling thread has a purse, open or closed.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn has_mine(&self) -> bool {
        self.0.mine().is_some()
    }
}

/// With the group's lock.
impl Lending {
    /// Takes back what all threads hold.
    pub(crate) fn recall(&self, loans: &mut Loans, node: &mut NodeGroup, now: Time) -> Returned {
        let mut returned = Returned::default();
        self.0.close_all(&mut loans.open, |account| returned.take_in(node, now, &account));
        returned
    }

    /// What threads have spent of what they hold, RU and operations; they go on meanwhile.
    pub(crate) fn gone(&self, loans: &Loans) -> (Ru, u64) {
        self.0.gone(loans.open)
    }

    /// Fills the calling thread's purse, after its old one came back, and pays for an operation from it. False: the
    /// group decides on the operation.
    pub(crate) fn lend(
        &self,
        loans: &mut Loans,
        node: &mut NodeGroup,
        clock: &Clock,
        now: Time,
        cost: Ru,
    ) -> (bool, Returned) {
        let mut returned = Returned::default();
        loans.enter(now);
        // The lease of purses that are out must be the current one. Its last moments, and those of a quota's window, are
        // left to the group, which reads the exact clock: a purse that pays late spends what is not leased.
        let end = node.look().spends_until().map(|end| Time(end.0.saturating_sub(clock.worst_lag().0)));
        let Some(end) = end.filter(|end| loans.busy && now < *end) else { return (false, returned) };
        if let Some(account) = self.0.close_mine(&mut loans.open) {
            returned.take_in(node, now, &account);
        }
        let Some(batch) = node.draw(now, cost) else { return (false, returned) };
        let until = last_tick(clock, batch.until).min(clock.tick_at(end));
        let opened = self.0.open_mine(&mut loans.open, batch, until, cost);
        if !opened {
            let Batch { tokens, operations, .. } = batch;
            node.put_back(now, &Spent { drawn: tokens, left: tokens, operations, ..Spent::default() });
        }
        (opened, returned)
    }

    /// Has the calling thread's purse give the same answer for a while, if the group is busy: nothing but time changes
    /// it, unless something happens to the group, which closes the purse. An operation that can never fit has an answer
    /// of its own.
    pub(crate) fn refuse_alike(
        &self,
        loans: &mut Loans,
        node: &NodeGroup,
        clock: &Clock,
        now: Time,
        (cost, refusal): (Ru, Refusal),
    ) {
        let (Refusal::Throttled { retry_after }, true) = (refusal, loans.busy) else { return };
        let Some(Alike { largest, until }) = node.look().refuses_alike(now, retry_after) else { return };
        let lag = clock.lag();
        if retry_after > lag + lag {
            let until = last_tick(clock, until.min(now.after(LONGEST_REFUSAL)));
            self.0.refuse_mine(&mut loans.open, (cost, largest), until, now.after(retry_after));
        }
    }
}

/// The first reading of the coarse clock at which `time` may have come.
fn last_tick(clock: &Clock, time: Time) -> Tick {
    clock.tick_at(Time(time.0.saturating_sub(clock.lag().0)))
}
