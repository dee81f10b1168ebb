//! What was recorded.

use std::fmt;

use super::held::{divided, fine};
use super::line::FEWEST;
use crate::units::{Ru, Span, Time};

/// Most samples of a record: 90 days of minutes are 129,600, two days of seconds 172,800. Twice as many would double
/// the memory of an answer, 10 MB; half would cut 90 days.
pub const MOST_SAMPLES: usize = 200_000;

/// Operations that a sample without a count is taken for: so many that none of them is large beside a burst. With a
/// thousandth, an hour of a busy group would be gusts beside a small burst; more of them change no answer.
const UNCOUNTED: u64 = 1 << 32;

/// What was wanted in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its begin.
    pub start: Time,
    /// Its length.
    pub length: Span,
    /// RU that was charged, and that refused operations would have been.
    pub amount: Ru,
    /// How many operations that was; 0 is not known.
    pub operations: u64,
}

impl Sample {
    /// Its end.
    pub fn end(&self) -> Time {
        self.start.after(self.length)
    }

    /// Its mean rate, in micro-RU a second.
    pub(super) fn mean(&self) -> i128 {
        divided(fine(self.amount), self.length.0.max(1).into())
    }

    /// Its first operations and the others, for a first part of its length and the rest, at rates that differ.
    fn split(&self, first: Span, amount: i128) -> Option<[Self; 2]> {
        let count = i128::from(self.operations);
        let (amount, operations) = if count == 0 {
            (Ru(i64::try_from(amount).ok()?), 0)
        } else {
            let operations = u64::try_from(count * amount / i128::from(self.amount.0)).ok()?;
            (Ru(self.costs().before(operations)), operations)
        };
        let before = Self { length: first, amount, operations, ..*self };
        let rest = (self.amount - amount, self.operations - operations);
        let after = Self {
            start: before.end(),
            length: Span(self.length.0 - first.0),
            amount: rest.0,
            operations: rest.1,
        };
        Some([before, after]).filter(|parts| parts.iter().all(|part| part.length.0 > 0))
    }

    /// How many of its operations cost something, as an amount.
    pub(super) fn paying(&self) -> Ru {
        Ru(if self.amount.is_positive() { i64::try_from(self.operations).unwrap_or(i64::MAX) } else { 0 })
    }

    /// What its operations cost.
    pub(super) fn costs(&self) -> Costs {
        let amount = self.amount.0.max(0).unsigned_abs();
        let count = if self.operations == 0 { UNCOUNTED.min(amount.max(1)) } else { self.operations };
        let (share, rest) = (amount.checked_div(count), amount.checked_rem(count));
        Costs { count, share: share.unwrap_or(0), rest: rest.unwrap_or(0) }
    }
}

/// What the operations of a sample cost: the same, but the first ones a millionth more, so that they add up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// How many there are.
    pub(super) count: u64,
    share: u64,
    rest: u64,
}

impl Costs {
    /// What an operation costs, and the first one after it that costs something else, or the end.
    pub(super) fn alike(&self, operation: u64) -> (Ru, u64) {
        let (more, end) = if operation < self.rest { (1, self.rest) } else { (0, self.count) };
        (Ru(i64::try_from(self.share.saturating_add(more)).unwrap_or(i64::MAX)), end)
    }

    /// What the cheapest one costs.
    pub(super) fn least(&self) -> Ru {
        Ru(i64::try_from(self.share).unwrap_or(i64::MAX))
    }

    /// How many of so many operations from the first one on cost no more than an amount together.
    pub(super) fn within(&self, first: u64, operations: u64, amount: Ru) -> u64 {
        // Mostly all of them fit, or not one, which is seen without a division.
        if self.before(first + operations) - self.before(first) <= amount.0 {
            return operations;
        }
        let (amount, dear) = (amount.0.max(0).unsigned_abs(), self.rest.saturating_sub(first));
        if amount < self.share {
            return 0;
        }
        let of_dear = amount.checked_div(self.share.saturating_add(1)).unwrap_or(0);
        if of_dear < dear {
            return of_dear.min(operations);
        }
        let left = amount.saturating_sub(dear.saturating_mul(self.share.saturating_add(1)));
        left.checked_div(self.share).map_or(operations, |others| dear.saturating_add(others).min(operations))
    }

    /// What the operations before this one cost together.
    pub(super) fn before(&self, operation: u64) -> i64 {
        // At most the amount of the sample, for operations of it.
        self.share
            .saturating_mul(operation)
            .saturating_add(self.rest.min(operation))
            .min(i64::MAX.unsigned_abs())
            .cast_signed()
    }
}

/// Samples that follow each other.
#[derive(Clone, Debug)]
pub struct Record(Vec<Sample>);

/// Why samples are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// There is none.
    Empty,
    /// There are too many.
    Many(usize),
    /// The sample of this index begins before the one before it ends.
    Order(usize),
    /// The sample of this index has no length, ends after all time, or an amount out of range.
    Range(usize),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing was recorded; choose another time or group"),
            Self::Many(samples) => write!(
                f,
                "{samples} samples are too many: at most {MOST_SAMPLES}; choose a shorter time or longer samples"
            ),
            Self::Order(at) => {
                write!(f, "sample {at} begins before the one before it ends; sort them by time")
            }
            Self::Range(at) => {
                write!(f, "sample {at} has no length or an amount out of range: give 0 to {}", Ru::MAX)
            }
        }
    }
}

impl std::error::Error for RecordError {}

impl Record {
    /// Samples in the order of time. Where none is, nothing was wanted.
    ///
    /// # Errors
    /// [`RecordError`] names the sample and the remedy.
    pub fn new(samples: Vec<Sample>) -> Result<Self, RecordError> {
        if samples.is_empty() {
            return Err(RecordError::Empty);
        }
        if samples.len() > MOST_SAMPLES {
            return Err(RecordError::Many(samples.len()));
        }
        let mut end = Time(0);
        for (at, sample) in samples.iter().enumerate() {
            let amounts = Ru::ZERO..=Ru::MAX;
            let ends = sample.start.0.checked_add(sample.length.0);
            if sample.length == Span(0) || ends.is_none() || !amounts.contains(&sample.amount) {
                return Err(RecordError::Range(at));
            }
            if sample.start < end {
                return Err(RecordError::Order(at));
            }
            end = sample.end();
        }
        Ok(Self(samples))
    }

    /// Its samples.
    pub fn samples(&self) -> &[Sample] {
        &self.0
    }

    /// A sample as its neighbours suggest that it was. Where its rate lies between theirs, load changed within it, mostly
    /// at once: it had the rate of the one before, and then that of the one after. Else it was even.
    ///
    /// Reports of nodes come about once a second, so that a gust begins and ends within a sample of the history even if
    /// it took whole seconds. What was before the first sample and after the last is not known.
    pub(super) fn parts(&self, at: usize) -> impl Iterator<Item = Sample> + use<> {
        let sample = self.0.get(at).copied();
        let parts = sample.and_then(|sample| {
            let (before, after) = (self.0.get(at.checked_sub(1)?)?, self.0.get(at + 1)?);
            let beside = |other: &Sample, touches| if touches { other.mean() } else { 0 };
            let before = beside(before, before.end() == sample.start);
            let (mean, after) = (sample.mean(), beside(after, after.start == sample.end()));
            if (mean - before).signum() * (after - mean).signum() != 1 {
                return None;
            }
            let first = i128::from(sample.length.0) * (after - mean) / (after - before);
            sample.split(Span(u64::try_from(first).ok()?), before * first / 1_000_000)
        });
        let whole = if parts.is_some() { None } else { sample };
        parts.into_iter().flatten().chain(whole)
    }

    /// The most that comes at one moment where samples are even.
    pub(super) fn lump(&self) -> Ru {
        let of = |sample: &Sample| {
            let costs = sample.costs();
            costs.before(costs.count.div_ceil(FEWEST).saturating_add(1).min(costs.count))
        };
        Ru(self.0.iter().map(of).max().unwrap_or(0))
    }

    /// What the cheapest operation costs of those that cost something.
    pub(super) fn least_cost(&self) -> Ru {
        let paying = self.0.iter().filter(|sample| sample.amount.is_positive());
        paying.map(|sample| sample.costs().least()).min().unwrap_or_default()
    }

    /// From the begin of the first sample to the end of the last.
    pub fn span(&self) -> Span {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => last.end().since(first.start),
            _ => Span(0),
        }
    }

    /// All that was wanted, in micro-RU.
    pub fn amount(&self) -> u128 {
        self.0.iter().map(|sample| u128::from(sample.amount.0.unsigned_abs())).sum()
    }

    /// Time without a sample.
    pub fn idle(&self) -> Span {
        let covered = self.0.iter().fold(0_u64, |sum, sample| sum.saturating_add(sample.length.0));
        Span(self.span().0.saturating_sub(covered))
    }

    /// The highest mean rate of a sample, in micro-RU a second.
    pub fn peak(&self) -> u128 {
        let mean = |sample: &Sample| {
            u128::from(sample.amount.0.unsigned_abs()) * 1_000_000 / u128::from(sample.length.0.max(1))
        };
        self.0.iter().map(mean).max().unwrap_or(0)
    }
}

/// What was counted in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its begin.
    pub start: Time,
    /// Its length.
    pub length: Span,
    /// Micro-RU that was charged.
    pub charged: u128,
    /// Operations that were charged; 0 is not known.
    pub operations: u128,
    /// Operations that were refused.
    pub refused: u128,
}

impl Record {
    /// What was wanted: what was charged, and what was refused. Nobody knows what a refused operation would have used,
    /// so it costs what those cost that were charged in the same time, or in all of it where none were.
    ///
    /// # Errors
    /// [`RecordError`] names the sample and the remedy.
    pub fn of(counted: &[Counted]) -> Result<Self, RecordError> {
        let sum = |of: fn(&Counted) -> u128| counted.iter().map(of).fold(0, u128::saturating_add);
        let (charged, operations) = (sum(|at| at.charged), sum(|at| at.operations));
        let sample = |(at, counted): (usize, &Counted)| {
            let (paid, by) = match counted.operations {
                0 => (charged, operations),
                some => (counted.charged, some),
            };
            let range = RecordError::Range(at);
            let refused = counted.refused.checked_mul(paid).and_then(|cost| cost.checked_div(by.max(1)));
            let amount = refused.and_then(|refused| counted.charged.checked_add(refused)).ok_or(range)?;
            let known = counted.operations > 0 || counted.charged == 0;
            let all = if known { counted.operations.saturating_add(counted.refused) } else { 0 };
            Ok(Sample {
                start: counted.start,
                length: counted.length,
                amount: i64::try_from(amount).map(Ru).map_err(|_| range)?,
                operations: u64::try_from(all).map_err(|_| range)?,
            })
        };
        Self::new(counted.iter().enumerate().map(sample).collect::<Result<_, _>>()?)
    }
}
