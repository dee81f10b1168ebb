//! What groups used in each of the last seconds, for charts of the present.

use std::collections::{BTreeMap, VecDeque};
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
    /// RU/s of all groups beyond [`MOST_GROUPS`].
    pub others: Rate,
}

impl Sample {
    /// Of all these groups, of which those are kept that used most.
    pub fn of(unix_ms: u64, mut used: Vec<(Arc<str>, Rate)>) -> Self {
        used.retain(|(_, rate)| *rate > Rate::ZERO);
        if used.len() > MOST_GROUPS {
            used.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        }
        let rest = used.split_off(used.len().min(MOST_GROUPS));
        let others = rest.into_iter().map(|(_, rate)| rate).fold(Rate::ZERO, sum);
        Self { unix_ms, used: used.into_iter().collect(), others }
    }

    /// RU/s of all groups.
    pub fn total(&self) -> Rate {
        self.used.values().copied().fold(self.others, sum)
    }

    /// RU/s of one group.
    pub fn of_group(&self, name: &str) -> Rate {
        self.used.get(name).copied().unwrap_or(Rate::ZERO)
    }
}

/// Both together; there is no rate above the largest number.
fn sum(one: Rate, other: Rate) -> Rate {
    Rate(one.0.saturating_add(other.0))
}

/// The last seconds, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Recent(VecDeque<Arc<Sample>>);

impl Recent {
    /// Takes the newest second; the oldest one makes room.
    pub fn push(&mut self, sample: Sample) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Arc::new(sample));
    }

    /// The seconds that are there.
    pub fn samples(&self) -> Vec<Arc<Sample>> {
        self.0.iter().cloned().collect()
    }
}

/// The groups that used most over these seconds, largest first, at most `most` of them.
pub fn largest(samples: &[Arc<Sample>], most: usize) -> Vec<Arc<str>> {
    let mut sums: BTreeMap<&Arc<str>, i128> = BTreeMap::new();
    for (name, rate) in samples.iter().flat_map(|sample| &sample.used) {
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(rate.0.into());
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
    sums.into_iter().take(most).map(|(name, _)| Arc::clone(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(of: &[(&str, i64)]) -> Vec<(Arc<str>, Rate)> {
        of.iter().map(|(name, rate)| (Arc::from(*name), Rate::whole(*rate))).collect()
    }

    #[test]
    fn seconds_make_room_and_keep_their_order() {
        let mut recent = Recent::default();
        for second in 0..KEPT as u64 + 7 {
            recent.push(Sample::of(second * 1_000, used(&[("a", 1)])));
        }
        let samples = recent.samples();
        assert_eq!((samples.len(), samples[0].unix_ms), (KEPT, 7_000));
        assert!(samples.is_sorted_by_key(|sample| sample.unix_ms));
    }

    #[test]
    fn beyond_the_most_groups_the_smallest_are_one_sum() {
        let names: Vec<String> = (0..MOST_GROUPS + 3).map(|at| format!("g{at:05}")).collect();
        let all: Vec<(Arc<str>, Rate)> =
            names.iter().zip(1..).map(|(name, rate)| (Arc::from(name.as_str()), Rate::whole(rate))).collect();
        let total = all.iter().map(|(_, rate)| rate.0).sum::<i64>();
        let sample = Sample::of(1, all);
        assert_eq!((sample.used.len(), sample.others), (MOST_GROUPS, Rate::whole(1 + 2 + 3)));
        assert_eq!(sample.total(), Rate(total));
        assert_eq!((sample.of_group("g00003"), sample.of_group("g00002")), (Rate::whole(4), Rate::ZERO));
        assert!(Sample::of(1, used(&[("idle", 0)])).used.is_empty());
    }

    #[test]
    fn the_largest_are_those_of_all_seconds_together() {
        let samples = [used(&[("a", 9), ("b", 5)]), used(&[("b", 5), ("c", 1)])];
        let samples: Vec<_> = samples.into_iter().map(|used| Arc::new(Sample::of(1, used))).collect();
        let names: Vec<String> = largest(&samples, 2).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["b", "a"]);
    }
}
