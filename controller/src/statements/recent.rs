//! What statements cost recently: sums of each row by spans of time, for lists of a range and for the history of one.
//!
//! Pure: time is Unix milliseconds and an argument. Counts are of the span in which their report came: gateways report
//! every few seconds. Minutes are kept for an hour and hours for a day, with at most [`MAX_STATEMENT_CELLS`] sums of
//! each; beyond, the oldest span is forgotten, and an answer says since when it counts.

use std::collections::BTreeMap;

use super::Sums;
use crate::error::AdminError;
use crate::limits::MAX_STATEMENT_CELLS;
use crate::quantity::cut;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// A time up to the present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Five minutes.
    Minutes,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl Range {
    /// All names, in the order of the variants.
    pub const NAMES: [&'static str; 3] = ["5m", "1h", "24h"];

    /// Reads the name; an empty one means all that was counted.
    pub fn parse(text: &str) -> Result<Option<Self>, AdminError> {
        Ok(Some(match text {
            "" => return Ok(None),
            "5m" => Self::Minutes,
            "1h" => Self::Hour,
            "24h" => Self::Day,
            _ => {
                let names = Self::NAMES.join(", ");
                let message =
                    format!("{:?} is none of {names}; leave it out for all that was counted", cut(text));
                return Err(AdminError::invalid("last", message));
            }
        }))
    }

    /// Its length, in milliseconds.
    pub const fn length_ms(self) -> u64 {
        match self {
            Self::Minutes => 5 * MINUTE_MS,
            Self::Hour => HOUR_MS,
            Self::Day => 24 * HOUR_MS,
        }
    }
}

/// Sums by row within a range.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Within {
    /// Nothing before this is in them.
    pub(super) since_unix_ms: u64,
    /// By the number of the row.
    pub(super) sums: BTreeMap<u64, Sums>,
}

/// Sums of rows by minutes and by hours. Rows have numbers that are never given twice.
#[derive(Debug)]
pub(super) struct Recent {
    minutes: Spans,
    hours: Spans,
}

impl Default for Recent {
    fn default() -> Self {
        Self { minutes: Spans::new(MINUTE_MS, HOUR_MS), hours: Spans::new(HOUR_MS, 24 * HOUR_MS) }
    }
}

impl Recent {
    /// Adds what a report says of a row.
    pub(super) fn add(&mut self, unix_ms: u64, row: u64, sums: &Sums) {
        self.minutes.add(unix_ms, row, sums);
        self.hours.add(unix_ms, row, sums);
    }

    /// The sums of all rows within a range that ends now.
    pub(super) fn within(&self, range: Range, unix_ms: u64) -> Within {
        let (since_unix_ms, spans) = self.of(range).since(range, unix_ms);
        let mut sums: BTreeMap<u64, Sums> = BTreeMap::new();
        for (row, more) in spans.flat_map(|(_, rows)| rows) {
            let sum = sums.entry(*row).or_default();
            *sum = sum.plus(more);
        }
        Within { since_unix_ms, sums }
    }

    /// The sums of one row within a range that ends now, by the start of their span, in Unix milliseconds.
    pub(super) fn history(&self, row: u64, range: Range, unix_ms: u64) -> Vec<(u64, Sums)> {
        let spans = self.of(range);
        let (_, kept) = spans.since(range, unix_ms);
        kept.filter_map(|(number, rows)| Some((number * spans.length_ms, *rows.get(&row)?))).collect()
    }

    fn of(&self, range: Range) -> &Spans {
        if range == Range::Day { &self.hours } else { &self.minutes }
    }
}

/// Spans of one length, by their number since 1970.
#[derive(Debug)]
struct Spans {
    length_ms: u64,
    /// Spans that are kept, the present one included.
    kept: u64,
    spans: BTreeMap<u64, BTreeMap<u64, Sums>>,
    /// Sums in all of them.
    cells: usize,
    /// The first span of which nothing was forgotten.
    whole_from: u64,
}

impl Spans {
    fn new(length_ms: u64, kept_ms: u64) -> Self {
        // A range begins within a span.
        let kept = kept_ms / length_ms + 1;
        Self { length_ms, kept, spans: BTreeMap::new(), cells: 0, whole_from: 0 }
    }

    fn add(&mut self, unix_ms: u64, row: u64, sums: &Sums) {
        let number = unix_ms / self.length_ms;
        // A clock that was set back: what is ahead of it would be in every range until it comes there again.
        for rows in self.spans.split_off(&(number + 1)).into_values() {
            self.cells -= rows.len();
        }
        self.whole_from = self.whole_from.min(number + 1);
        while self.spans.first_key_value().is_some_and(|(first, _)| first + self.kept <= number) {
            self.forget_first();
        }
        let rows = self.spans.entry(number).or_default();
        let before = rows.len();
        let sum = rows.entry(row).or_default();
        *sum = sum.plus(sums);
        self.cells += rows.len() - before;
        while self.cells > MAX_STATEMENT_CELLS {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((number, rows)) = self.spans.pop_first() {
            self.cells -= rows.len();
            self.whole_from = number + 1;
        }
    }

    /// The spans of a range, and the moment at which the first of them begins.
    fn since(&self, range: Range, unix_ms: u64) -> (u64, impl Iterator<Item = (&u64, &BTreeMap<u64, Sums>)>) {
        let last = unix_ms / self.length_ms;
        let first = (unix_ms.saturating_sub(range.length_ms()) / self.length_ms).max(self.whole_from);
        (first * self.length_ms, self.spans.range(first..=last.max(first)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Noon of some day.
    const NOON: u64 = 20_000 * 24 * HOUR_MS + 12 * HOUR_MS;

    fn calls(calls: u64) -> Sums {
        Sums { calls, ..Sums::default() }
    }

    fn counted(recent: &Recent, range: Range, unix_ms: u64) -> Vec<(u64, u64)> {
        recent.within(range, unix_ms).sums.into_iter().map(|(row, sums)| (row, sums.calls)).collect()
    }

    #[test]
    fn a_range_has_a_name() {
        for name in Range::NAMES {
            assert!(Range::parse(name).unwrap().is_some());
        }
        assert_eq!(Range::parse("").unwrap(), None);
        assert_eq!(Range::parse("7d").unwrap_err().field(), Some("last"));
    }

    #[test]
    fn a_clock_that_was_set_back_takes_what_is_ahead_of_it_away() {
        let mut recent = Recent::default();
        recent.add(NOON + 48 * HOUR_MS, 1, &calls(5));
        assert_eq!(counted(&recent, Range::Day, NOON), [], "not yet");
        recent.add(NOON, 1, &calls(1));
        for range in [Range::Minutes, Range::Hour, Range::Day] {
            assert_eq!(counted(&recent, range, NOON), [(1, 1)]);
            assert_eq!(counted(&recent, range, NOON + 48 * HOUR_MS), []);
        }
        // What was taken away takes no room any more.
        assert_eq!((recent.minutes.cells, recent.hours.cells), (1, 1));
    }

    #[test]
    fn what_was_forgotten_ahead_of_a_clock_that_was_set_back_hides_nothing() {
        let mut recent = Recent::default();
        let later = NOON + 48 * HOUR_MS;
        for row in 0..=u64::try_from(MAX_STATEMENT_CELLS).unwrap() {
            recent.add(later, row, &calls(1));
        }
        for range in [Range::Hour, Range::Day] {
            assert!(recent.within(range, later).since_unix_ms > later, "a whole span was forgotten");
        }
        recent.add(NOON, 1, &calls(1));
        // Of the present span something may be missing, of the next nothing is.
        let next = NOON + HOUR_MS;
        recent.add(next, 1, &calls(2));
        for range in [Range::Hour, Range::Day] {
            assert_eq!(counted(&recent, range, next), [(1, 2)], "{range:?}");
            assert!(recent.within(range, next).since_unix_ms <= next, "{range:?}");
        }
    }

    #[test]
    fn sums_are_bounded_and_an_answer_says_since_when_it_counts() {
        let mut recent = Recent::default();
        let many = u64::try_from(MAX_STATEMENT_CELLS).unwrap() / 2;
        for minute in 0..3 {
            for row in 0..many {
                recent.add(NOON + minute * MINUTE_MS, row, &calls(1));
            }
        }
        let now = NOON + 2 * MINUTE_MS;
        let within = recent.within(Range::Hour, now);
        assert_eq!((within.since_unix_ms, within.sums[&7].calls), (NOON + MINUTE_MS, 2));
        assert_eq!((recent.minutes.cells, recent.hours.cells), (2 * many as usize, many as usize));
        let hours = recent.within(Range::Day, now);
        assert_eq!((hours.since_unix_ms, hours.sums[&7].calls), (NOON - 24 * HOUR_MS, 3));
        // Rows of one span that are more than all that may be kept.
        for row in 0..2 * many + 2 {
            recent.add(now + MINUTE_MS, row, &calls(1));
        }
        assert!(recent.minutes.cells <= MAX_STATEMENT_CELLS);
        assert_eq!(recent.within(Range::Hour, now + MINUTE_MS).since_unix_ms, now + 2 * MINUTE_MS);
    }

    proptest! {
        #[test]
        fn a_range_sums_what_was_reported_in_its_spans(
            reports in prop::collection::vec((0_u64..2 * 24 * HOUR_MS, 0_u64..4, 1_u64..100), 0..200),
            after in 0_u64..HOUR_MS,
        ) {
            let mut reports = reports;
            reports.sort_unstable();
            let mut recent = Recent::default();
            for (at, row, count) in &reports {
                recent.add(NOON + at, *row, &calls(*count));
            }
            let now = NOON + reports.last().map_or(0, |(at, ..)| *at) + after;
            for (range, step) in [(Range::Minutes, MINUTE_MS), (Range::Hour, MINUTE_MS), (Range::Day, HOUR_MS)] {
                let from = (now - range.length_ms()) / step * step;
                let mut expected = BTreeMap::new();
                for (at, row, count) in &reports {
                    if NOON + at >= from {
                        *expected.entry(*row).or_insert(0) += count;
                    }
                }
                let within = recent.within(range, now);
                prop_assert_eq!(within.since_unix_ms, from);
                let sums: BTreeMap<u64, u64> = within.sums.iter().map(|(row, sums)| (*row, sums.calls)).collect();
                prop_assert_eq!(&sums, &expected);
                for (row, count) in expected {
                    let history = recent.history(row, range, now);
                    prop_assert!(history.iter().all(|(start, _)| start % step == 0 && *start >= from && *start <= now));
                    prop_assert_eq!(history.iter().map(|(_, sums)| sums.calls).sum::<u64>(), count);
                }
            }
        }
    }
}
