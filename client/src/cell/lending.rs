//! Lending a group's tokens to the purses of threads, and taking them back.

use tidegate_core::node::{Refusal, Spent};
use tidegate_core::units::{Ru, Span, Time};

use super::{CellState, GroupCell};
use crate::clock::Tick;
use crate::lending::Account;

/// Operations that come closer than this to one another are worth a purse.
const BUSY: Span = Span::millis(2);
/// A purse refuses no longer than this without asking the group.
const LONGEST_REFUSAL: Span = Span::millis(100);

impl GroupCell {
    /// Pays for an operation from the calling thread's purse; `None` when the group has to decide.
    #[inline(always)]
    pub(crate) fn pay(&self, cost: Ru) -> Option<Tick> {
        if cost < Ru::ZERO {
            return None;
        }
        self.purses.mine()?.spend(cost, &self.shared.clock)
    }

    /// Closes the purses of all threads, so that the state is whole.
    pub(super) fn gather(&self, state: &mut CellState, now: Time) {
        let mut open = state.open_purses;
        self.purses.close_all(&mut open, |account| self.take_in(state, now, &account));
        state.open_purses = open;
    }

    fn take_in(&self, state: &mut CellState, now: Time, account: &Account) {
        state.node.put_back(now, &account.spent);
        state.open =
            state.open.saturating_add_unsigned(account.admitted).saturating_sub_unsigned(account.closed);
        self.shared.counters.admitted.add_many(account.admitted);
        self.shared.counters.refused.add_many(account.spent.refused);
    }

    /// Fills the calling thread's purse and pays for an operation from it. False: the group decides on the operation.
    pub(super) fn fill_purse(&self, state: &mut CellState, now: Time, cost: Ru) -> bool {
        // The journal wants every settlement.
        state.busy = now.since(state.entered) < BUSY && self.shared.journal.is_none();
        state.entered = now;
        // The lease of purses that are out must be the current one. Its last moments are left to the group, which reads
        // the exact clock: a purse that pays late spends what is not leased.
        let late = self.shared.clock.worst_lag();
        let end = state.node.lease_end().map(|end| Time(end.0.saturating_sub(late.0)));
        let Some(end) = end.filter(|end| state.busy && now < *end) else { return false };
        if let Some(account) = self.purses.close_mine(&mut state.open_purses) {
            self.take_in(state, now, &account);
        }
        let Some(batch) = state.node.draw(now, cost) else { return false };
        let until = self.last_tick(batch.until).min(self.shared.clock.tick_at(end));
        let opened = self.purses.open_mine(&mut state.open_purses, batch, until, cost);
        if !opened {
            state.node.put_back(now, &Spent { drawn: batch.tokens, left: batch.tokens, ..Spent::default() });
        }
        opened
    }

    /// Has the calling thread's purse give the same answer for a while, if the group is busy: nothing but time changes
    /// it, unless something happens to the group, which closes the purse. An operation that can never fit has an answer
    /// of its own.
    pub(super) fn refuse_alike(&self, state: &mut CellState, now: Time, cost: Ru, refusal: Refusal) {
        let (Refusal::Throttled { retry_after }, true, Some(end)) =
            (refusal, state.busy, state.node.lease_end())
        else {
            return;
        };
        let lag = self.shared.clock.lag();
        if retry_after > lag + lag {
            let until = end.min(now.after(retry_after.min(LONGEST_REFUSAL)));
            let (until, retry_at) = (self.last_tick(until), now.after(retry_after));
            let costs = (cost, state.node.max_fit());
            self.purses.refuse_mine(&mut state.open_purses, costs, until, retry_at);
        }
    }

    /// The first reading of the coarse clock at which `time` may have come.
    fn last_tick(&self, time: Time) -> Tick {
        let clock = &self.shared.clock;
        clock.tick_at(Time(time.0.saturating_sub(clock.lag().0)))
    }
}
