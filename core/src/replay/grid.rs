//! Moments at equal distances in a sample, each with its part of the operations.

use super::record::Costs;
use super::{Ru, Sample, Span, Time};

/// They, from the begin of the sample on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid<'s> {
    pub(super) sample: &'s Sample,
    pub(super) costs: &'s Costs,
    /// How many there are.
    pub(super) moments: u64,
    /// The times from one to the next.
    gaps: Equal,
    /// The operations of each.
    counts: Equal,
}

impl<'s> Grid<'s> {
    pub(super) fn new(sample: &'s Sample, costs: &'s Costs, moments: u64) -> Self {
        let equal = |whole| Equal::new(whole, moments);
        Self { sample, costs, moments, gaps: equal(sample.length.0), counts: equal(costs.count) }
    }

    /// The least time between two.
    pub(super) fn gap(&self) -> Span {
        Span(self.gaps.least)
    }

    /// How many operations come at each at least.
    pub(super) fn fewest(&self) -> u64 {
        self.counts.least
    }

    /// When the moment of this number is; after the last one, the end of the sample.
    pub(super) fn arrival(&self, moment: u64) -> Time {
        self.sample.start.after(Span(self.gaps.begin(moment)))
    }

    /// How many operations come before it.
    pub(super) fn before(&self, moment: u64) -> u64 {
        self.counts.begin(moment)
    }

    /// The last moment before which no more than so many operations come.
    pub(super) fn last_before(&self, operations: u64) -> u64 {
        parts_within(self.costs.count, operations, self.moments)
    }

    /// What these cost.
    pub(super) fn cost(&self, moment: u64) -> Ru {
        Ru(self.costs.before(self.before(moment)))
    }

    /// What comes at one moment at most.
    pub(super) fn most(&self) -> Ru {
        Ru(self.costs.before(self.counts.least + u64::from(self.counts.rest > 0)))
    }

    /// The first moment at a time or later; their number if there is none.
    pub(super) fn first_at(&self, at: Time) -> u64 {
        let (into, length) = (at.since(self.sample.start).0, self.sample.length.0.max(1));
        if let Some(place) = into.checked_mul(self.moments) {
            return place.div_ceil(length).min(self.moments);
        }
        let place = (u128::from(into) * u128::from(self.moments)).div_ceil(length.into());
        u64::try_from(place).unwrap_or(u64::MAX).min(self.moments)
    }
}

/// How many of so many equal parts of a whole end up to a place in it.
pub(super) fn parts_within(whole: u64, place: u64, parts: u64) -> u64 {
    if let Some(fits) = place.checked_add(1).and_then(|next| next.checked_mul(parts)) {
        return (fits - 1).checked_div(whole.max(1)).unwrap_or(parts).min(parts);
    }
    let fits = (u128::from(place) + 1) * u128::from(parts);
    u64::try_from((fits - 1) / u128::from(whole.max(1))).unwrap_or(parts).min(parts)
}

/// A whole in equal parts.
#[derive(Clone, Copy, Debug)]
struct Equal {
    least: u64,
    rest: u64,
    of: u64,
}

impl Equal {
    fn new(whole: u64, of: u64) -> Self {
        let of = of.max(1);
        Self { least: whole.checked_div(of).unwrap_or(0), rest: whole.checked_rem(of).unwrap_or(0), of }
    }

    /// Where the part of this number begins: so many parts of the whole, rounded down.
    fn begin(&self, number: u64) -> u64 {
        // Minutes have moments without a rest, which is seen without a division.
        let more = if self.rest == 0 { 0 } else { part_of(self.rest, number, self.of) };
        self.least.saturating_mul(number).saturating_add(more)
    }
}

/// Where the part of this number begins, of so many equal parts.
pub(super) fn part_of(whole: u64, number: u64, parts: u64) -> u64 {
    if let Some(at) = whole.checked_mul(number) {
        return at.checked_div(parts.max(1)).unwrap_or(at);
    }
    let at = u128::from(whole) * u128::from(number) / u128::from(parts.max(1));
    u64::try_from(at).unwrap_or(u64::MAX)
}
