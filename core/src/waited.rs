//! How long operations waited for admission: numbers of waits by their length, which add up over times, nodes and groups.
//!
//! Four lengths to each power of two, from 64 µs to more than an hour: what is read off is never below the truth, and at
//! most a quarter above it from 64 µs on. Numbers of 32 bits stand still at their end: no group ends that many waits
//! between two reports.

use std::hash::{Hash, Hasher};

use crate::units::Span;

/// Number of lengths.
pub const LENGTHS: usize = 105;
/// The bits of the first length: 64 µs. Shorter waits are those for a lock, of which nobody can see anything in a limit.
const FIRST_BITS: u32 = 6;
/// The bits that divide each power of two. With one fewer a p99 is off by half; with one more a report is twice as long.
const PARTS_BITS: u32 = 2;

/// Waits that ended, by length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    counts: [u32; LENGTHS],
    /// Those of them that ended without admission.
    in_vain: u32,
}

/// What people look at of waits. Times are in microseconds, and at most a quarter above the true ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many.
    pub ended: u64,
    /// Of these, without admission.
    pub in_vain: u64,
    /// Half of them, 99 of 100, and all were no longer.
    pub p50_us: u64,
    /// See `p50_us`.
    pub p99_us: u64,
    /// See `p50_us`.
    pub max_us: u64,
}

impl Default for Waited {
    fn default() -> Self {
        Self { counts: [0; LENGTHS], in_vain: 0 }
    }
}

impl Waited {
    /// Counts a wait. One that took no time is none.
    pub fn count(&mut self, wait: Span, is_in_vain: bool) {
        if let Some(count) = self.counts.get_mut(length(wait)).filter(|_| wait.0 > 0) {
            *count = count.saturating_add(1);
            self.in_vain = self.in_vain.saturating_add(u32::from(is_in_vain));
        }
    }

    /// Counts so many waits of the length of this number; false when there is no such length.
    pub fn put(&mut self, length: usize, waits: u32) -> bool {
        let count = self.counts.get_mut(length);
        count.map(|count| *count = count.saturating_add(waits)).is_some()
    }

    /// Counts so many of the waits as ended without admission.
    pub fn put_in_vain(&mut self, waits: u32) {
        self.in_vain = self.in_vain.saturating_add(waits);
    }

    /// Adds others.
    pub fn add(&mut self, more: &Self) {
        for (count, more) in self.counts.iter_mut().zip(more.counts) {
            *count = count.saturating_add(more);
        }
        self.put_in_vain(more.in_vain);
    }

    /// How many they are.
    pub fn ended(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// How many of them ended without admission.
    pub fn in_vain(&self) -> u32 {
        self.in_vain
    }

    /// Lengths of which there are waits, by their numbers, from the shortest; and how many waits.
    pub fn counts(&self) -> impl DoubleEndedIterator<Item = (usize, u32)> {
        self.counts.iter().copied().enumerate().filter(|(_, waits)| *waits > 0)
    }

    /// The wait that so many of a hundred waits do not exceed; `None` when nothing waited.
    pub fn within(&self, percent: u64) -> Option<Span> {
        let wanted = self.ended().saturating_mul(percent).div_ceil(100);
        let mut sum = 0_u64;
        let reached = |(_, waits): &(usize, u32)| {
            sum = sum.saturating_add((*waits).into());
            sum >= wanted
        };
        self.counts().find(reached).map(|(length, _)| at_most(length))
    }

    /// The wait that none exceeds; `None` when nothing waited.
    pub fn longest(&self) -> Option<Span> {
        self.counts().next_back().map(|(length, _)| at_most(length))
    }

    /// What people look at; times are 0 when nothing waited.
    pub fn summary(&self) -> Summary {
        let us = |wait: Option<Span>| wait.unwrap_or_default().0;
        Summary {
            ended: self.ended(),
            in_vain: self.in_vain.into(),
            p50_us: us(self.within(50)),
            p99_us: us(self.within(99)),
            max_us: us(self.longest()),
        }
    }

    /// The time that they took together, at least.
    pub fn at_least(&self) -> u128 {
        let shortest = |length: usize| length.checked_sub(1).map_or(0, |before| at_most(before).0) + 1;
        self.counts().map(|(length, waits)| u128::from(shortest(length)) * u128::from(waits)).sum()
    }
}

/// Waits of a group on a node that were not reported yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreported {
    /// The time that operations of the group had waited before, in microseconds: from it a reader sees which waits it
    /// has.
    pub since_us: u128,
    /// The waits.
    pub waited: Waited,
}

/// Left out: nothing is decided by it, and the time waited is in the consumption.
impl Hash for Unreported {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The longest wait of a length. The last length has all that are longer, too.
pub fn at_most(length: usize) -> Span {
    let Some(above) = length.checked_sub(1) else { return Span(1 << FIRST_BITS) };
    let parts = 1 << PARTS_BITS;
    let (doublings, part) = (above >> PARTS_BITS, above & (parts - 1));
    let doublings = u32::try_from(doublings).unwrap_or(u32::MAX);
    let step = 1_u64.checked_shl(doublings.saturating_add(FIRST_BITS - PARTS_BITS)).unwrap_or(u64::MAX);
    Span(step.saturating_mul((parts + part + 1) as u64))
}

/// The number of the length of a wait.
fn length(wait: Span) -> usize {
    let before = wait.0.saturating_sub(1);
    let Some(doublings) = before.checked_ilog2().and_then(|bits| bits.checked_sub(FIRST_BITS)) else {
        return 0;
    };
    let part = (before >> (doublings + FIRST_BITS - PARTS_BITS)) & ((1 << PARTS_BITS) - 1);
    let above = (u64::from(doublings) << PARTS_BITS) + part;
    usize::try_from(above + 1).unwrap_or(usize::MAX).min(LENGTHS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_follow_each_other_without_a_gap_in_quarters_of_powers_of_two() {
        let edges: Vec<u64> = (0..LENGTHS).map(|length| at_most(length).0).collect();
        assert_eq!(edges[..10], [64, 80, 96, 112, 128, 160, 192, 224, 256, 320]);
        assert_eq!(edges[LENGTHS - 1], 1 << 32, "4295 s");
        assert_eq!((at_most(300), at_most(usize::MAX)), (Span(u64::MAX), Span(u64::MAX)), "no such lengths");
        for (at, edge) in edges.iter().enumerate() {
            assert_eq!(length(Span(*edge)), at, "{edge}");
            assert_eq!(length(Span(edge + 1)), (at + 1).min(LENGTHS - 1), "{edge}");
        }
        assert_eq!((length(Span(0)), length(Span(1)), length(Span(u64::MAX))), (0, 0, LENGTHS - 1));
    }

    #[test]
    fn what_took_no_time_is_no_wait_and_counts_stand_still_at_their_end() {
        let mut waited = Waited::default();
        waited.count(Span(0), true);
        assert_eq!(waited, Waited::default());
        assert_eq!((waited.within(99), waited.longest(), waited.at_least()), (None, None, 0));
        waited.count(Span(u64::MAX), true);
        assert_eq!((waited.ended(), waited.in_vain(), waited.longest()), (1, 1, Some(Span(1 << 32))));
        assert!(waited.put(LENGTHS - 1, u32::MAX) && !waited.put(LENGTHS, 1));
        waited.put_in_vain(u32::MAX);
        waited.add(&waited.clone());
        assert_eq!((waited.ended(), waited.in_vain()), (u64::from(u32::MAX), u32::MAX));
        assert_eq!(waited.within(1), Some(Span(1 << 32)));
    }

    /// The wait at a rank of a sorted list, which is what `within` is about.
    fn exact(sorted: &[u64], percent: usize) -> u64 {
        sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
    }

    proptest! {
        /// Compares with the list of all waits: how many, in vain, and each percentile within a quarter.
        #[test]
        fn percentiles_are_those_of_the_list_and_at_most_a_quarter_more(
            waits in proptest::collection::vec((0_u32..33, any::<u64>(), any::<bool>()), 1..200),
            split in 0_usize..200,
        ) {
            let waits: Vec<(u64, bool)> =
                waits.into_iter().map(|(bits, of, vain)| (1 + of % (1 << bits), vain)).collect();
            let (mut first, mut second) = (Waited::default(), Waited::default());
            for (at, (wait, vain)) in waits.iter().enumerate() {
                if at < split { &mut first } else { &mut second }.count(Span(*wait), *vain);
            }
            first.add(&second);
            let mut sorted: Vec<u64> = waits.iter().map(|(wait, _)| *wait).collect();
            sorted.sort_unstable();
            prop_assert_eq!(first.ended(), sorted.len() as u64);
            prop_assert_eq!(first.in_vain() as usize, waits.iter().filter(|(_, vain)| *vain).count());
            let near = |told: Option<Span>, exact: u64| {
                told.is_some_and(|told| told.0 >= exact && told.0 <= (exact + exact / 4 + 1).max(64))
            };
            for percent in [1, 50, 90, 99, 100] {
                let (told, exact) = (first.within(percent as u64), exact(&sorted, percent));
                prop_assert!(near(told, exact), "{percent}: {told:?} for {exact}");
            }
            prop_assert!(near(first.longest(), *sorted.last().unwrap()));
            let (sum, least) = (sorted.iter().map(|wait| u128::from(*wait)).sum::<u128>(), first.at_least());
            prop_assert!(least <= sum && sum <= least + least / 4 + 64 * sorted.len() as u128, "{least} of {sum}");
            let mut again = Waited::default();
            prop_assert!(first.counts().all(|(length, waits)| again.put(length, waits)));
            again.put_in_vain(first.in_vain());
            prop_assert_eq!(again, first);
        }
    }
}
