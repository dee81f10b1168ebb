//! Batches of tokens that a thread spends without the group's lock, so that most operations need none.
//!
//! The tokens of a batch are drawn from the bucket and still count in it (I4). Every batch comes back before anything
//! but a further draw or return happens to the group: renewals, grants, refusals, waiters and views see the bucket
//! whole, as if every operation had gone through it. The only difference is when the group learns of operations: at the
//! return of the batch, at most a tenth of a second later.

use super::NodeGroup;
use crate::units::{Ru, Span, Time};
use crate::usage::Consumption;

/// A batch is put back after this at the latest: the length of a cell in which demand is measured.
const LONGEST: Span = Span::millis(100);
/// A batch that covers fewer operations than this costs more than it saves.
const LEAST: u32 = 16;

/// Tokens drawn from the bucket, within the node's share of the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Their amount.
    pub tokens: Ru,
    /// How many operations may begin with them at most; [`Batch::ANY`] where nothing counts operations.
    pub operations: u64,
    /// The time from which none of them may be spent.
    pub until: Time,
}

impl Batch {
    /// As many operations as its tokens cover.
    pub const ANY: u64 = u64::MAX;
}

/// The result of a batch: its tokens, and the operations that it served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens drawn.
    pub drawn: Ru,
    /// Tokens not spent.
    pub left: Ru,
    /// How many operations might have begun, as drawn.
    pub operations: u64,
    /// Those that began.
    pub begun: u64,
    /// RU of all operations that asked for admission.
    pub arrived: Ru,
    /// Operations that were refused.
    pub refused: u64,
    /// Consumption of the operations settled meanwhile, with their charges.
    pub actual: Consumption,
}

impl NodeGroup {
    /// Draws a batch for operations that cost about `cost`. `None`: operations pass through the group one by one.
    pub fn draw(&mut self, now: Time, cost: Ru) -> Option<Batch> {
        self.budget.advance(now);
        if !self.waiters.is_empty() {
            return None;
        }
        let least = Ru(cost.or_zero().0.saturating_mul(LEAST.into())).max(Ru(1));
        let part = self.quota.part(now, &self.consumption);
        if part.operations < LEAST.into() {
            return None;
        }
        let end = self.look().spends_until()?;
        // So that it pays for no operation that never fits.
        let most = part.tokens.min(self.look().max_fit());
        let tokens = self.budget.draw(least, most)?;
        self.quota.lend(tokens, part.operations);
        Some(Batch { tokens, operations: part.operations, until: end.min(now.after(LONGEST)) })
    }

    /// Takes a batch back.
    pub fn put_back(&mut self, now: Time, spent: &Spent) {
        // Before all else: tokens back in the bucket take part in its income and in the end of the lease.
        self.budget.put_back(spent.drawn, spent.left);
        self.quota.take_back(now, spent);
        if spent.arrived.is_positive() {
            self.arrive(now, spent.arrived);
        }
        if spent.refused > 0 {
            self.renewal.press();
        }
        self.consumption.count(&spent.actual);
        self.consumption.throttled = self.consumption.throttled.saturating_add(u128::from(spent.refused));
        if spent.drawn.is_positive() && self.quota.is_nearly_used(&self.consumption) {
            self.renewal.press();
        }
    }
}
