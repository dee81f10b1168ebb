//! A quota: so much in each window of a calendar, whatever the rate allows.

use std::fmt;

use super::{ReplayError, Sample};
use crate::quota::Unit;
use crate::units::{MICRO, Rate, Ru, Time};

/// What may be used in each window, and when windows begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Micro-RU or operations.
    amount: u64,
    unit: Unit,
    begins: Vec<Time>,
}

impl fmt::Display for Windows {
    /// The amount with its unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ru() {
            Some(ru) => write!(f, "{}", ru.number()),
            None => write!(f, "{} requests", self.amount),
        }
    }
}

/// What is left of a window.
pub(super) enum Left {
    Ru(Ru),
    Requests(u64),
}

impl Windows {
    /// Windows that begin at these moments, in any order; what is before the first one is a window, too.
    pub fn new(amount: Ru, begins: Vec<Time>) -> Self {
        Self::of(amount.0.max(0).unsigned_abs(), Unit::Ru, begins)
    }

    /// The same, and so many operations may begin in each.
    pub fn requests(amount: u64, begins: Vec<Time>) -> Self {
        Self::of(amount, Unit::Requests, begins)
    }

    fn of(amount: u64, unit: Unit, mut begins: Vec<Time>) -> Self {
        begins.sort_unstable();
        begins.dedup();
        Self { amount, unit, begins }
    }

    /// RU that may be used in each; `None` where operations count.
    pub fn ru(&self) -> Option<Ru> {
        let amount = Ru(i64::try_from(self.amount).unwrap_or(i64::MAX));
        (self.unit == Unit::Ru).then_some(amount)
    }

    /// What counts of an operation or of several.
    fn counts(&self, cost: Ru, count: u64) -> u64 {
        match self.unit {
            Unit::Ru => cost.0.max(0).unsigned_abs(),
            Unit::Requests => count,
        }
    }

    /// The most that a rate yields from one moment to another, in micro-RU. What operations would cost is not known, so
    /// that a number of them is no bound.
    pub(super) fn capacity(&self, rate: Rate, from: Time, to: Time) -> u128 {
        let Some(amount) = self.ru() else { return yields(rate, to.since(from).0) };
        let inner = self.begins.iter().filter(|begin| (from.0 + 1..to.0).contains(&begin.0));
        let ends = inner.map(|begin| begin.0).chain([to.0]);
        let amount = u128::from(amount.0.unsigned_abs());
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
    used: u64,
    /// Which window follows.
    next: usize,
}

impl<'w> Open<'w> {
    pub(super) fn of(windows: &'w Windows) -> Self {
        Self { windows, used: 0, next: 0 }
    }

    /// Takes in a sample before it is decided: operations must be counted where they count, and those that cost nothing
    /// count, too.
    pub(super) fn know(&mut self, sample: &Sample) -> Result<(), ReplayError> {
        if self.windows.unit == Unit::Requests {
            match (sample.amount.is_positive(), sample.operations) {
                (true, 0) => return Err(ReplayError::Uncounted),
                (true, _) | (false, 0) => {}
                (false, free) => {
                    let left = self.windows.amount.saturating_sub(self.at(sample.start).1);
                    self.take(sample.start, Ru::ZERO, free.min(left));
                }
            }
        }
        Ok(())
    }

    /// The window of a moment that is not before the present one: which one follows it, and what is used of it.
    fn at(&self, moment: Time) -> (usize, u64) {
        let later = self.windows.begins.get(self.next..).unwrap_or_default();
        match later.partition_point(|begin| *begin <= moment) {
            0 => (self.next, self.used),
            over => (self.next + over, 0),
        }
    }

    /// What is left of the window of a moment; where nothing is, all of the next one, which is waited for.
    pub(super) fn left(&self, moment: Time) -> Left {
        let left = match self.windows.amount.saturating_sub(self.at(moment).1) {
            0 => self.windows.amount,
            left => left,
        };
        match self.windows.unit {
            Unit::Ru => Left::Ru(Ru(i64::try_from(left).unwrap_or(i64::MAX))),
            Unit::Requests => Left::Requests(left),
        }
    }

    /// When so much fits a window, from a moment on; `None` when it never does.
    pub(super) fn fits(&self, from: Time, cost: Ru, count: u64) -> Option<Time> {
        let (next, used) = self.at(from);
        let (amount, counts) = (self.windows.amount, self.windows.counts(cost, count));
        if counts <= amount.saturating_sub(used) {
            return Some(from);
        }
        self.windows.begins.get(next).copied().filter(|_| counts <= amount)
    }

    /// Whether a window begins after the first moment and up to the last.
    pub(super) fn turns(&self, first: Time, last: Time) -> bool {
        self.at(first).0 != self.at(last).0
    }

    /// Counts what starts at a moment.
    pub(super) fn take(&mut self, at: Time, cost: Ru, count: u64) {
        (self.next, self.used) = self.at(at);
        self.used = self.used.saturating_add(self.windows.counts(cost, count));
    }
}
