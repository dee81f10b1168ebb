//! A quota: so much in each window of a calendar, or in any interval of a length, whatever the rate allows.

use std::fmt;

use super::grid::Grid;
use super::line::FEWEST;
use super::rolling::Rolling;
use super::search::Bucket;
use super::{Budget, ReplayError, Sample};
use crate::policy::fine;
use crate::quota::Unit;
use crate::units::{MICRO, Rate, Ru, Span, Time};

/// What may be used in each window, and when it counts no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Micro-RU or operations.
    amount: u64,
    unit: Unit,
    turns: Turns,
}

/// When what was used counts no more.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Turns {
    /// From the next of these moments on.
    At(Vec<Time>),
    /// When it is so old.
    Rolling(Span),
}

impl fmt::Display for Windows {
    /// The amount with its unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ru() {
            Some(ru) => write!(f, "{}", ru.number())?,
            None => write!(f, "{} requests", self.amount)?,
        }
        match self.turns {
            Turns::At(_) => Ok(()),
            Turns::Rolling(length) => write!(f, " in any {length}"),
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

    /// One window that rolls: what was used leaves it when it is as old as the window is long, by the cells of
    /// [`crate::quota`].
    pub fn rolling(amount: Ru, length: Span) -> Self {
        let amount = amount.0.max(0).unsigned_abs();
        Self { amount, unit: Unit::Ru, turns: Turns::Rolling(length) }
    }

    /// The same, and so many operations may begin in any interval of this length.
    pub fn rolling_requests(amount: u64, length: Span) -> Self {
        Self { amount, unit: Unit::Requests, turns: Turns::Rolling(length) }
    }

    fn of(amount: u64, unit: Unit, mut begins: Vec<Time>) -> Self {
        begins.sort_unstable();
        begins.dedup();
        Self { amount, unit, turns: Turns::At(begins) }
    }

    /// RU that may be used in each; `None` where operations count.
    pub fn ru(&self) -> Option<Ru> {
        let amount = Ru(i64::try_from(self.amount).unwrap_or(i64::MAX));
        (self.unit == Unit::Ru).then_some(amount)
    }

    /// The longest time between two moments of an even stretch: with fewer in a window that rolls, what comes in it
    /// would be gusts.
    pub(super) fn pause(&self) -> Span {
        match self.turns {
            Turns::At(_) => Span(u64::MAX),
            Turns::Rolling(length) => Span((length.0 / FEWEST).max(1)),
        }
    }

    /// What counts of an operation or of several.
    fn counts(&self, cost: Ru, count: u64) -> u64 {
        match self.unit {
            Unit::Ru => cost.0.max(0).unsigned_abs(),
            Unit::Requests => count,
        }
    }

    /// What counts of all that comes at some moments.
    pub(super) fn comes(&self, grid: &Grid<'_>, (first, end): (u64, u64)) -> u64 {
        let (first, end) = (grid.before(first), grid.before(end));
        self.counts(Ru(grid.costs.before(end) - grid.costs.before(first)), end - first)
    }

    /// The first of some moments at which not all fits that comes, beside what is used, their end if all of it does; and
    /// what counts of all that comes before.
    pub(super) fn fitting(&self, grid: &Grid<'_>, (first, end): (u64, u64), used: u64) -> (u64, u64) {
        let (all, left) = (self.comes(grid, (first, end)), self.amount.saturating_sub(used));
        if all <= left {
            return (end, all);
        }
        let (begin, last) = (grid.before(first), grid.before(end));
        let fits = match self.unit {
            Unit::Ru => grid.costs.within(begin, last - begin, Ru(left.cast_signed())),
            Unit::Requests => left,
        };
        let fits = grid.last_before(begin + fits).clamp(first, end);
        (fits, self.comes(grid, (first, fits)))
    }

    /// Whether all that comes in a sample may fit, if it is no longer than a window that rolls: so all of it is in one.
    pub(super) fn may_hold(&self, grid: &Grid<'_>) -> bool {
        let is_in_one = matches!(self.turns, Turns::Rolling(length) if grid.sample.length <= length);
        !is_in_one || self.comes(grid, (0, grid.moments)) <= self.amount
    }

    /// A bucket that has at least what a window that rolls lets start, where operations wait so long: the whole of it at
    /// once, and then as much again in each of its lengths. In millionths of a micro-RU, or of an operation.
    pub(super) fn bucket(&self, patience: Span) -> Option<Bucket> {
        let Turns::Rolling(length) = &self.turns else { return None };
        let amount = fine(Ru(i64::try_from(self.amount).unwrap_or(i64::MAX)));
        let rate = amount.div_ceil(u128::from(length.0.max(1)));
        Some(Bucket { rate, burst: amount.saturating_add(rate.saturating_mul(patience.0.into())) })
    }

    /// The most that a rate yields from one moment to another, in micro-RU. What operations would cost is not known, so
    /// that a number of them is no bound.
    pub(super) fn capacity(&self, rate: Rate, from: Time, to: Time) -> u128 {
        let Some(amount) = self.ru() else { return yields(rate, to.since(from).0) };
        let amount = u128::from(amount.0.unsigned_abs());
        let within = |micros| yields(rate, micros).min(amount);
        match &self.turns {
            Turns::Rolling(length) => {
                let (span, length) = (to.since(from).0, length.0.max(1));
                u128::from(span / length) * within(length) + within(span % length)
            }
            Turns::At(begins) => {
                let inner = begins.iter().filter(|begin| (from.0 + 1..to.0).contains(&begin.0));
                let ends = inner.map(|begin| begin.0).chain([to.0]);
                let sum = ends.fold((0_u128, from.0), |(sum, begin), end| {
                    (sum + within(end.saturating_sub(begin)), end)
                });
                sum.0
            }
        }
    }
}

/// What a rate yields in so many microseconds, in micro-RU.
pub(super) fn yields(rate: Rate, micros: u64) -> u128 {
    u128::from(rate.0.unsigned_abs()) * u128::from(micros) / u128::from(MICRO.unsigned_abs())
}

/// The present window, and what is used of it.
pub(super) struct Open<'w> {
    windows: &'w Windows,
    used: Used<'w>,
}

/// What is used, by how windows turn.
enum Used<'w> {
    Fixed(Fixed<'w>),
    Rolling(Rolling),
}

/// What is used of a window that ends.
struct Fixed<'w> {
    /// When the windows begin that follow.
    begins: &'w [Time],
    used: u64,
}

impl Fixed<'_> {
    /// What is used at a moment, or at the last one.
    fn at(&mut self, moment: Time) -> u64 {
        while let Some((_, later)) = self.begins.split_first().filter(|(begin, _)| **begin <= moment) {
            (self.begins, self.used) = (later, 0);
        }
        self.used
    }
}

impl Used<'_> {
    fn at(&mut self, moment: Time) -> u64 {
        match self {
            Self::Fixed(fixed) => fixed.at(moment),
            Self::Rolling(rolling) => rolling.at(moment),
        }
    }
}

impl<'w> Open<'w> {
    pub(super) fn of(windows: &'w Windows) -> Self {
        let used = match &windows.turns {
            Turns::At(begins) => Used::Fixed(Fixed { begins, used: 0 }),
            Turns::Rolling(length) => Used::Rolling(Rolling::new(*length)),
        };
        Self { windows, used }
    }

    /// Takes in a sample before it is decided: operations must be counted where they count, and those that cost nothing
    /// count, too.
    pub(super) fn know(&mut self, sample: &Sample) -> Result<(), ReplayError> {
        if self.windows.unit == Unit::Requests {
            match (sample.amount.is_positive(), sample.operations) {
                (true, 0) => return Err(ReplayError::Uncounted),
                (true, _) | (false, 0) => {}
                (false, free) => {
                    let left = self.windows.amount.saturating_sub(self.used.at(sample.start));
                    self.take(sample.start, Ru::ZERO, free.min(left));
                }
            }
        }
        Ok(())
    }

    /// What is left of the window of a moment; where nothing is, what comes back next, which is waited for.
    pub(super) fn left(&mut self, moment: Time) -> Left {
        let left = match (self.windows.amount.saturating_sub(self.used.at(moment)), &self.used) {
            (0, Used::Fixed(_)) => self.windows.amount,
            (0, Used::Rolling(rolling)) => rolling.next().unwrap_or(self.windows.amount),
            (left, _) => left,
        };
        match self.windows.unit {
            Unit::Ru => Left::Ru(Ru(i64::try_from(left).unwrap_or(i64::MAX))),
            Unit::Requests => Left::Requests(left),
        }
    }

    /// When so much fits a window, from a moment on; `None` when it never does.
    pub(super) fn fits(&mut self, from: Time, cost: Ru, count: u64) -> Option<Time> {
        let (amount, counts) = (self.windows.amount, self.windows.counts(cost, count));
        let missing = counts.saturating_sub(amount.saturating_sub(self.used.at(from)));
        if missing == 0 {
            return Some(from);
        }
        let fits = match &self.used {
            Used::Fixed(fixed) => fixed.begins.first().copied(),
            Used::Rolling(rolling) => rolling.leaves(missing),
        };
        fits.filter(|_| counts <= amount)
    }

    /// Whether all that comes in a sample may start as it comes.
    pub(super) fn may_hold(&self, grid: &Grid<'_>) -> bool {
        self.windows.may_hold(grid)
    }

    /// Whether so many moments from one on bring more than is left, by what each brings at least.
    pub(super) fn is_short(&mut self, grid: &Grid<'_>, moment: u64, moments: u64) -> bool {
        let least = grid.costs.least().0.saturating_mul(i64::try_from(grid.fewest()).unwrap_or(i64::MAX));
        let counts = self.windows.counts(Ru(least), grid.fewest()).saturating_mul(moments);
        self.used.at(grid.arrival(moment)).saturating_add(counts) > self.windows.amount
    }

    /// The first moment from one on at which not all fits that comes, or up to which it is known; their number if all
    /// does. No operation is under way before them.
    pub(super) fn until(
        &mut self,
        grid: &Grid<'_>,
        moment: u64,
        budget: &mut Budget,
    ) -> Result<u64, ReplayError> {
        match &mut self.used {
            Used::Fixed(fixed) => {
                let used = fixed.at(grid.arrival(moment));
                let end = fixed.begins.first().map_or(grid.moments, |begin| grid.first_at(*begin));
                Ok(self.windows.fitting(grid, (moment, end), used).0)
            }
            Used::Rolling(rolling) => rolling.until(self.windows, grid, moment, budget),
        }
    }

    /// The same within the time until more comes back, in which all starts that waits at most so long, unless it is fewer
    /// moments than a number. It may start later than it comes, or not at all.
    pub(super) fn within(&mut self, grid: &Grid<'_>, (moment, fewest): (u64, u64), patience: Span) -> u64 {
        if self.is_short(grid, moment, fewest) {
            return moment;
        }
        let used = self.used.at(grid.arrival(moment));
        let ends = match &self.used {
            Used::Fixed(fixed) => fixed.begins.first().copied(),
            Used::Rolling(rolling) => Some(rolling.steady_until()),
        };
        let end = ends.map_or(grid.moments, |ends| grid.first_at(Time(ends.0.saturating_sub(patience.0))));
        if end < moment + fewest { moment } else { self.windows.fitting(grid, (moment, end), used).0 }
    }

    /// Counts what comes at the moments from one on up to the one that was found last.
    pub(super) fn pass(&mut self, grid: &Grid<'_>, (moment, end): (u64, u64)) {
        match &mut self.used {
            Used::Fixed(fixed) => {
                fixed.used = fixed.used.saturating_add(self.windows.comes(grid, (moment, end)));
            }
            Used::Rolling(rolling) => rolling.pass(),
        }
    }

    /// Counts what starts at a moment.
    pub(super) fn take(&mut self, at: Time, cost: Ru, count: u64) {
        let counts = self.windows.counts(cost, count);
        match &mut self.used {
            Used::Fixed(fixed) => fixed.used = fixed.at(at).saturating_add(counts),
            Used::Rolling(rolling) => rolling.take(at, counts),
        }
    }
}
