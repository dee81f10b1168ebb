//! The load of a node, and the surplus that it gives back because others use it better.

use super::NodeGroup;
use super::budget::Returned;
use crate::units::{Rate, Ru, Span, Time};

/// A load below one part in this many of its earlier size has gone elsewhere.
const GONE: i64 = 4;
/// Tokens kept when surplus is returned, as time at the leased rate.
const KEEP: Span = Span::millis(250);

impl NodeGroup {
    /// The load to report. It follows a load that came or went at once, and ignores noise.
    pub(super) fn offered(&mut self, now: Time) -> Rate {
        let recent = self.demand.recent(now);
        let smoothed =
            if self.distance(now).trip().is_some() { self.demand.risen(now) } else { self.demand.rate(now) };
        if !self.waiters.is_empty() {
            return smoothed.max(recent).max(self.distance(now).comes_to_wait());
        }
        if self.distance(now).has_stopped() {
            return Rate::ZERO;
        }
        let full = self.budget.full_at().is_some_and(|at| at <= now);
        let gone = self.renewal.is_scarce() && full && recent < smoothed.scale(1, GONE);
        if gone { recent } else { smoothed }
    }

    /// Lowers the rate to the load and takes out what others can use better.
    pub(super) fn yield_surplus(&mut self, now: Time) -> Returned {
        if self.turns().waits_for_lump().is_some() {
            // Tokens that cannot add up to its cost go back, so that two nodes never wait for what the other holds; the
            // operations beside it keep theirs.
            return self.budget.give_back(self.kept(), true);
        }
        if !self.waiters.is_empty() {
            return self.budget.give_back(Ru::MAX, false);
        }
        if self.distance(now).has_stopped() {
            self.budget.lower(Rate::ZERO);
            return self.budget.give_back(Ru::ZERO, true);
        }
        if !self.renewal.is_scarce() {
            // Half of the bucket, or as much as the largest of the last operations takes.
            let half = self.budget.bucket().cap().scale(1, 2).max(self.budget.taken().largest());
            let keep = if self.distance(now).trip().is_some() { half } else { Ru::MAX };
            return self.budget.give_back(keep, !self.distance(now).needs_lump());
        }
        let full = self.budget.full_at().is_some_and(|at| at <= now);
        let offered = if full { self.demand.recent(now) } else { self.demand.rate(now) };
        let enough = offered + offered;
        if enough < self.budget.bucket().rate().scale(3, 4) {
            self.budget.lower(enough);
        }
        self.budget
            .give_back(self.kept().max(self.budget.taken().largest()), !self.distance(now).needs_lump())
    }

    /// Tokens to keep, at most half of the bucket.
    fn kept(&self) -> Ru {
        self.budget.bucket().rate().over(KEEP).min(self.budget.bucket().cap().scale(1, 2))
    }
}
