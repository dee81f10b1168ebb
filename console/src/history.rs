//! What a group used over a longer time, from the stored minutes or hours, in as many columns as a chart shows.

use crate::chart::Series;

/// Columns of a chart of the past. With half of them an hour of minutes still fits; twice of them are narrower than a
/// pixel on a telephone.
const COLUMNS: u64 = 180;

/// Causes of RU, in the order of [`Bucket::parts`].
pub const PARTS: [&str; 5] = ["CPU", "read", "write", "network", "flat"];

/// A stored minute or hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its start, in Unix seconds.
    pub start_s: u64,
    /// Micro-RU by cause.
    pub parts: [i128; 5],
}

impl Bucket {
    /// Micro-RU in all.
    pub fn total(&self) -> i128 {
        self.parts.iter().sum()
    }
}

/// A span of time that a page shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Range {
    /// The last five minutes, second by second.
    #[default]
    Live,
    /// The last hour, by minutes.
    Hour,
    /// The last 24 hours, by minutes.
    Day,
    /// The last 90 days, by hours.
    Quarter,
}

impl Range {
    /// All of them, with their words in addresses and for people.
    pub const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Live, "", "Live"),
        (Self::Hour, "1h", "1 h"),
        (Self::Day, "24h", "24 h"),
        (Self::Quarter, "90d", "90 d"),
    ];

    /// The range of this word; the present for any other.
    pub fn parse(word: &str) -> Self {
        Self::ALL.into_iter().find(|(_, of, _)| *of == word).map(|(range, ..)| range).unwrap_or_default()
    }

    /// Its word in addresses.
    pub fn word(self) -> &'static str {
        Self::ALL.into_iter().find(|(range, ..)| *range == self).map_or("", |(_, word, _)| word)
    }

    /// Its length, and that of what is stored, in seconds; `None` for the present.
    pub const fn seconds(self) -> Option<(u64, u64)> {
        match self {
            Self::Live => None,
            Self::Hour => Some((3_600, 60)),
            Self::Day => Some((24 * 3_600, 60)),
            Self::Quarter => Some((90 * 24 * 3_600, 3_600)),
        }
    }
}

/// The means of equal spans of a range that ends at `now_s`, in RU/s by cause: the moments at which the spans begin, in
/// Unix milliseconds, and the values. What has no bucket used nothing.
pub fn columns(buckets: &[Bucket], (length, step): (u64, u64), now_s: u64) -> (Vec<u64>, Vec<Series>) {
    let each = (length / step).div_ceil(COLUMNS).max(1) * step;
    // Whole columns up to the present one.
    let count = length / each;
    let end = (now_s / each + 1) * each;
    let begin = end.saturating_sub(count * each);
    let times: Vec<u64> = (0..count).map(|at| (begin + at * each) * 1_000).collect();
    let mut sums = vec![[0_i128; 5]; times.len()];
    for bucket in buckets.iter().filter(|bucket| bucket.start_s >= begin) {
        let at = usize::try_from((bucket.start_s - begin) / each).unwrap_or(usize::MAX);
        let Some(sum) = sums.get_mut(at) else { continue };
        sum.iter_mut().zip(bucket.parts).for_each(|(sum, part)| *sum = sum.saturating_add(part));
    }
    // The present column is not over: its mean is over the time until now.
    let over = |at: usize| if at + 1 == sums.len() { now_s.saturating_sub(end - each).max(1) } else { each };
    let series = PARTS.iter().enumerate().map(|(part, name)| {
        let mean = |(at, sum): (usize, &[i128; 5])| {
            let sum = sum.get(part).copied().unwrap_or(0);
            i64::try_from(sum / i128::from(over(at))).unwrap_or(i64::MAX)
        };
        Series { name: (*name).to_owned(), values: sums.iter().enumerate().map(mean).collect() }
    });
    let series = series.filter(|series| series.values.iter().any(|value| *value != 0)).collect();
    (times, series)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(start_s: u64, cpu: i128, read: i128) -> Bucket {
        Bucket { start_s, parts: [cpu * 1_000_000, read * 1_000_000, 0, 0, 0] }
    }

    #[test]
    fn minutes_of_an_hour_are_means_and_gaps_are_nothing() {
        let now = 36_030;
        let (times, series) = columns(&[bucket(35_940, 600, 60), bucket(36_000, 30, 0)], (3_600, 60), now);
        assert_eq!((times.len(), times[59]), (60, 36_000_000));
        assert_eq!(series.len(), 2, "causes without any RU are left out");
        assert_eq!(series[0].values[57..], [0, 10_000_000, 1_000_000], "the last one is half over");
        assert_eq!(series[1].values[58], 1_000_000);
    }

    #[test]
    fn long_ranges_have_no_more_columns_than_a_chart_shows_and_lose_nothing() {
        for (range, step) in [(Range::Day, 60), (Range::Quarter, 3_600)] {
            let (length, _) = range.seconds().unwrap();
            let now = 90 * 24 * 3_600 * 30;
            let begin = now - length + step;
            let buckets: Vec<Bucket> =
                (0..length / step).map(|at| bucket(begin + at * step, 60, 0)).collect();
            let (times, series) = columns(&buckets, range.seconds().unwrap(), now);
            assert!(times.len() <= 180 && times.len() >= 90, "{}", times.len());
            let whole = 60 * 1_000_000 / i64::try_from(step).unwrap();
            let middle = &series[0].values[1..times.len() - 1];
            assert!(middle.iter().all(|value| *value == whole), "{middle:?}");
        }
    }

    #[test]
    fn each_cause_is_a_series_from_the_first_bucket_to_the_last() {
        let now = 36_030;
        // Columns begin at 32,460 and end at 36,060: half of the last one is over.
        let bucket =
            |start_s, micro: i128| Bucket { start_s, parts: [1, 2, 3, 4, 5].map(|part| part * micro) };
        let whole = 60_000_000;
        let buckets =
            [(32_400, whole), (32_460, whole), (33_000, 2 * whole), (36_000, whole / 2), (36_060, whole)];
        let (times, series) =
            columns(&buckets.map(|(start_s, micro)| bucket(start_s, micro)), (3_600, 60), now);
        assert_eq!((times[0], times[59]), (32_460_000, 36_000_000));
        let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, PARTS);
        for (series, part) in series.iter().zip(1..) {
            let used: Vec<(usize, i64)> =
                series.values.iter().copied().enumerate().filter(|(_, value)| *value != 0).collect();
            let rate = part * 1_000_000;
            assert_eq!(used, [(0, rate), (9, 2 * rate), (59, rate)], "{}", series.name);
        }
        // Several buckets of one column are one mean.
        let (length, step) = Range::Day.seconds().unwrap();
        let hour: Vec<Bucket> = (0..60).map(|at| bucket(now / 480 * 480 - 4_800 + at * 60, whole)).collect();
        let (times, series) = columns(&hour, (length, step), now);
        assert_eq!((times.len(), times[1] - times[0]), (180, 480_000));
        let sum: i64 = series[0].values.iter().sum();
        assert_eq!(sum * 480, 60 * 60_000_000, "nothing is counted twice or not at all");
        assert_eq!(
            (bucket(0, 7).total(), Range::ALL.map(|(range, ..)| range.word())),
            (105, ["", "1h", "24h", "90d"])
        );
    }

    #[test]
    fn buckets_from_other_times_are_left_out() {
        let (_, series) = columns(&[bucket(0, 9, 9), bucket(99_999_999, 9, 9)], (3_600, 60), 36_030);
        assert!(series.is_empty());
        assert_eq!((Range::parse("90d"), Range::parse("x")), (Range::Quarter, Range::Live));
    }
}
