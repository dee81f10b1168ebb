//! Batches of tokens that a thread spends on its own, so that most operations need no lock.
//!
//! A batch is tokens that are drawn from the bucket and still count in it (I4). It comes back before anything else
//! happens to the group: renewals, grants, refusals, waiters and looks see the bucket whole, as if every operation
//! had gone through it. While batches are out there are only further draws and returns. What differs is when the
//! group learns of operations: at the return of the batch, a tenth of a second later at most.

use super::NodeGroup;
use crate::units::{Ru, Span, Time};
use crate::usage::Consumption;

/// A batch is put back after this at the latest, as demand is measured in cells of that length.
const LONGEST: Span = Span::millis(100);
/// A batch that covers fewer operations than this is not worth its drawing.
const LEAST: i64 = 16;

/// Tokens drawn from the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// How many.
    pub tokens: Ru,
    /// From then on none of them may be spent.
    pub until: Time,
}

/// What became of a batch: its tokens, and the operations that went through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// As it was drawn.
    pub drawn: Ru,
    /// Tokens not spent.
    pub left: Ru,
    /// RU of all operations that asked for admission.
    pub arrived: Ru,
    /// Operations that were refused.
    pub refused: u64,
    /// What the operations settled meanwhile used, with what they were charged.
    pub actual: Consumption,
}

impl NodeGroup {
    /// Draws a batch for operations that cost about `cost`. `None`: operations go through the group one by one.
    pub fn draw(&mut self, now: Time, cost: Ru) -> Option<Batch> {
        self.budget.advance(now);
        if !self.waiters.is_empty() {
            return None;
        }
        let least = Ru(cost.or_zero().0.saturating_mul(LEAST)).max(Ru(1));
        let (tokens, end) = self.budget.draw(least)?;
        Some(Batch { tokens, until: end.min(now.after(LONGEST)) })
    }

    /// A batch comes back.
    pub fn put_back(&mut self, now: Time, spent: &Spent) {
        // First of all: tokens that are in the bucket again take part in what it earns and in the lease's end.
        self.budget.put_back(spent.drawn, spent.left);
        if spent.arrived.is_positive() {
            self.arrive(now, spent.arrived);
        }
        if spent.refused > 0 {
            self.renewal.press();
        }
        self.consumption.count(&spent.actual);
        self.consumption.throttled = self.consumption.throttled.saturating_add(u128::from(spent.refused));
    }
}
