//! A quota: so much in each window of a calendar, whatever the rate allows.

use crate::units::{MICRO, Rate, Ru, Time};

/// What may be used in each window, and when windows begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    amount: Ru,
    begins: Vec<Time>,
}

impl Windows {
    /// Windows that begin at these moments, in any order; what is before the first one is a window, too.
    pub fn new(amount: Ru, mut begins: Vec<Time>) -> Self {
        begins.sort_unstable();
        begins.dedup();
        Self { amount, begins }
    }

    /// What may be used in each.
    pub fn amount(&self) -> Ru {
        self.amount
    }

    /// The most that a rate yields from one moment to another, in micro-RU.
    pub(super) fn capacity(&self, rate: Rate, from: Time, to: Time) -> u128 {
        let inner = self.begins.iter().filter(|begin| (from.0 + 1..to.0).contains(&begin.0));
        let ends = inner.map(|begin| begin.0).chain([to.0]);
        let amount = u128::from(self.amount.0.unsigned_abs());
        let sum = ends.fold((0_u128, from.0), |(sum, begin), end| {
            (sum + yields(rate, end.saturating_sub(begin)).min(amount), end)
        });
        sum.0
    }
}

/// What a rate yields in so many microseconds, in micro-RU.
pub(super) fn yields(rate: Rate, micros: u64) -> u128 {
    u128::from(rate.0.unsigned_abs()) * u128::from(micros) / u128::from(MICRO.unsigned_abs())
}

/// The present window, and what is used of it.
pub(super) struct Open<'w> {
    windows: &'w Windows,
    used: i64,
    /// Which window follows.
    next: usize,
}

impl<'w> Open<'w> {
    pub(super) fn of(windows: &'w Windows) -> Self {
        Self { windows, used: 0, next: 0 }
    }

    /// The window of a moment that is not before the present one: which one follows it, and what is used of it.
    fn at(&self, moment: Time) -> (usize, i64) {
        let later = self.windows.begins.get(self.next..).unwrap_or_default();
        match later.partition_point(|begin| *begin <= moment) {
            0 => (self.next, self.used),
            over => (self.next + over, 0),
        }
    }

    /// What is left of the window of a moment; where nothing is, all of the next one, which is waited for.
    pub(super) fn left(&self, moment: Time) -> Ru {
        let left = self.windows.amount.0.saturating_sub(self.at(moment).1);
        if left > 0 { Ru(left) } else { self.windows.amount }
    }

    /// When so much fits a window, from a moment on; `None` when it never does.
    pub(super) fn fits(&self, from: Time, cost: Ru) -> Option<Time> {
        let (next, used) = self.at(from);
        let Ru(amount) = self.windows.amount;
        if cost.0 <= amount.saturating_sub(used) {
            return Some(from);
        }
        self.windows.begins.get(next).copied().filter(|_| cost.0 <= amount)
    }

    /// Whether a window begins after the first moment and up to the last.
    pub(super) fn turns(&self, first: Time, last: Time) -> bool {
        self.at(first).0 != self.at(last).0
    }

    /// Counts what starts at a moment.
    pub(super) fn take(&mut self, at: Time, cost: Ru) {
        (self.next, self.used) = self.at(at);
        self.used = self.used.saturating_add(cost.0);
    }
}
