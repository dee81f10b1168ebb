//! What groups used in each of the last seconds, for charts of the present.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tidegate_core::units::Rate;

/// Seconds that are kept. With half of them a spike is gone before somebody has opened the page; twice as many are more
/// points than a chart on a screen can show.
pub const KEPT: usize = 300;
/// Groups of one second that are kept by name, those that used most; the others are one sum. Half of them is more than
/// a chart shows, too, and would leave tenants without one of their own; twice of them takes twice the memory, which is
/// 10 MiB now.
pub const MOST_GROUPS: usize = 1_000;

/// One second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When it ended.
    pub unix_ms: u64,
    /// RU/s of groups that used anything, by name.
    pub used: BTreeMap<Arc<str>, Rate>,
    /// RU/s of all groups, also of those beyond [`MOST_GROUPS`].
    pub total: Rate,
}

impl Sample {
    /// Of all these groups, of which those are kept that used most.
    pub fn of(unix_ms: u64, mut used: Vec<(Arc<str>, Rate)>) -> Self {
        used.retain(|(_, rate)| *rate > Rate::ZERO);
        if used.len() > MOST_GROUPS {
            used.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        }
        // There is no rate above the largest number.
        let total = used.iter().fold(Rate::ZERO, |sum, (_, rate)| Rate(sum.0.saturating_add(rate.0)));
        used.truncate(MOST_GROUPS);
        Self { unix_ms, used: used.into_iter().collect(), total }
    }

    /// RU/s of one group.
    pub fn of_group(&self, name: &str) -> Rate {
        self.used.get(name).copied().unwrap_or(Rate::ZERO)
    }
}

/// RU/s of each group, added up over the seconds that are kept.
type Sums = HashMap<Arc<str>, i128>;

/// The last seconds, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    /// The number of the oldest, counted from the first that ever was.
    first: usize,
    samples: VecDeque<Arc<Sample>>,
    sums: Sums,
}

impl Recent {
    /// Takes the newest second; the oldest one makes room.
    pub fn push(&mut self, sample: Sample) {
        if self.samples.len() >= KEPT
            && let Some(oldest) = self.samples.pop_front()
        {
            self.first += 1;
            for (name, rate) in &oldest.used {
                if let Entry::Occupied(mut sum) = self.sums.entry(Arc::clone(name)) {
                    *sum.get_mut() -= i128::from(rate.0);
                    if *sum.get() == 0 {
                        sum.remove();
                    }
                }
            }
        }
        for (name, rate) in &sample.used {
            *self.sums.entry(Arc::clone(name)).or_default() += i128::from(rate.0);
        }
        self.samples.push_back(Arc::new(sample));
    }

    /// The seconds that are there.
    pub fn seconds(&self) -> Seconds {
        Seconds::of(self.first, self.samples.iter().cloned().collect(), self.sums.iter())
    }

    /// The same of some groups only. What was made `before` for the same groups serves again.
    pub fn seconds_of(&self, before: Option<&Seconds>, is_seen: impl Fn(&str) -> bool) -> Seconds {
        let seen = |sample: &Sample| {
            let used = sample.used.iter().filter(|(name, _)| is_seen(name));
            Arc::new(Sample::of(sample.unix_ms, used.map(|(name, rate)| (Arc::clone(name), *rate)).collect()))
        };
        let made = |number| before.and_then(|before| before.numbered(number)).cloned();
        let samples = (self.first..).zip(&self.samples);
        let samples = samples.map(|(number, sample)| made(number).unwrap_or_else(|| seen(sample))).collect();
        Seconds::of(self.first, samples, self.sums.iter().filter(|(name, _)| is_seen(name)))
    }
}

/// The last seconds, as somebody sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seconds {
    /// The number of the oldest.
    first: usize,
    samples: Vec<Arc<Sample>>,
    by_use: Vec<Arc<str>>,
}

impl Seconds {
    fn of<'s>(
        first: usize,
        samples: Vec<Arc<Sample>>,
        sums: impl Iterator<Item = (&'s Arc<str>, &'s i128)>,
    ) -> Self {
        let mut sums: Vec<_> = sums.collect();
        sums.sort_by(|one, other| other.1.cmp(one.1).then_with(|| one.0.cmp(other.0)));
        Self { first, samples, by_use: sums.into_iter().map(|(name, _)| Arc::clone(name)).collect() }
    }

    fn numbered(&self, number: usize) -> Option<&Arc<Sample>> {
        self.samples.get(number.checked_sub(self.first)?)
    }

    /// All of them, oldest first.
    pub fn all(&self) -> &[Arc<Sample>] {
        &self.samples
    }

    /// When they ended, in Unix milliseconds.
    pub fn times(&self) -> Vec<u64> {
        self.samples.iter().map(|sample| sample.unix_ms).collect()
    }

    /// RU/s of a group, second by second.
    pub fn of_group(&self, name: &str) -> Vec<i64> {
        self.samples.iter().map(|sample| sample.of_group(name).0).collect()
    }

    /// The groups that used anything in them; first who used most.
    pub fn by_use(&self) -> &[Arc<str>] {
        &self.by_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(of: &[(&str, i64)]) -> Vec<(Arc<str>, Rate)> {
        of.iter().map(|(name, rate)| (Arc::from(*name), Rate::whole(*rate))).collect()
    }

    /// A second in which these groups used so much.
    fn second(number: u64, of: &[(&str, i64)]) -> Sample {
        Sample::of(number * 1_000, used(of))
    }

    #[test]
    fn seconds_make_room_and_keep_their_order() {
        let mut recent = Recent::default();
        for number in 0..KEPT as u64 + 7 {
            recent.push(second(number, &[("a", 1)]));
        }
        let seconds = recent.seconds();
        assert_eq!((seconds.all().len(), seconds.times()[0]), (KEPT, 7_000));
        assert!(seconds.times().is_sorted());
    }

    #[test]
    fn beyond_the_most_groups_the_smallest_are_in_the_total() {
        let names: Vec<String> = (0..MOST_GROUPS + 3).map(|at| format!("g{at:05}")).collect();
        let all: Vec<(Arc<str>, Rate)> =
            names.iter().zip(1..).map(|(name, rate)| (Arc::from(name.as_str()), Rate::whole(rate))).collect();
        let total = all.iter().map(|(_, rate)| rate.0).sum::<i64>();
        let sample = Sample::of(1, all);
        assert_eq!((sample.used.len(), sample.total.0), (MOST_GROUPS, total));
        assert_eq!((sample.of_group("g00002"), sample.of_group("g00003")), (Rate::ZERO, Rate::whole(4)));
    }

    #[test]
    fn who_used_most_over_all_seconds_comes_first_and_who_is_idle_is_left_out() {
        let mut recent = Recent::default();
        recent.push(second(1, &[("a", 5), ("b", 1), ("z", 0)]));
        recent.push(second(2, &[("b", 9), ("c", 3)]));
        let names: Vec<String> = recent.seconds().by_use().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["b", "a", "c"]);
        recent.push(second(3, &[("c", 2), ("0", 5)]));
        let names: Vec<String> = recent.seconds().by_use().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["b", "0", "a", "c"], "who used the same stand by their names");
        assert_eq!(recent.seconds().of_group("b"), [1_000_000, 9_000_000, 0]);
    }

    #[test]
    fn what_is_added_up_is_what_the_kept_seconds_hold() {
        let mut recent = Recent::default();
        for number in 0..2 * KEPT as u64 {
            let name = format!("g{}", number % 7);
            recent.push(second(
                number,
                &[(&name, 1 + (number % 11).cast_signed()), ("early", 400 - number.cast_signed())],
            ));
            let mut sums = Sums::new();
            for (name, rate) in recent.samples.iter().flat_map(|sample| &sample.used) {
                *sums.entry(Arc::clone(name)).or_default() += i128::from(rate.0);
            }
            assert_eq!(recent.sums, sums, "after second {number}");
        }
        for number in 0..KEPT as u64 {
            recent.push(second(number, &[]));
        }
        assert!(recent.sums.is_empty(), "{:?}", recent.sums);
    }

    #[test]
    fn seconds_of_some_groups_are_those_groups_alone_whatever_was_made_before() {
        let mut recent = Recent::default();
        let is_seen = |name: &str| name != "hidden";
        let mut before = None;
        for number in 0..KEPT as u64 + 20 {
            recent.push(second(number, &[("a", 1 + number.cast_signed()), ("hidden", 50), ("b", 2)]));
            // Not each second is looked at.
            if number % 3 == 0 {
                let seconds = recent.seconds_of(before.as_ref(), is_seen);
                assert_eq!(seconds, recent.seconds_of(None, is_seen));
                before = Some(seconds);
            }
        }
        let seconds = before.unwrap();
        assert!(seconds.all().iter().all(|sample| !sample.used.contains_key("hidden")));
        assert_eq!(seconds.all().last().unwrap().total, Rate::whole(1 + 318 + 2));
        assert_eq!(seconds.by_use().len(), 2);
    }
}
