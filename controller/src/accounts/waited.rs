//! Waits for admission that ended within the last minute, by group, from the reports of nodes. A restart forgets them.
//!
//! A ring of sums over ten seconds each. Only groups with such waits have one; a sum is made when something is counted in
//! it, so that a group takes 0.4 to 2.6 KB.

use std::collections::BTreeMap;

use tidegate_core::group::GroupId;
use tidegate_core::units::{MICRO, Time};
use tidegate_core::waited::Waited;

/// Waits that a node reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitedIn {
    /// What operations of the group had waited on the node before, in microseconds.
    pub since_us: u128,
    /// How many there are, by the number of the length. A sum has all lengths, of which most reports have few.
    pub waits: Vec<(usize, u32)>,
    /// Of these, without admission.
    pub in_vain: u32,
}

/// Length of a sum, in seconds. Half of it takes twice the memory; with twice of it waits are shown for up to 80 s.
const EACH_S: u64 = 10;
/// The sum under way, and the five before it: 50 to 60 s.
const SUMS: usize = 6;

/// Of all groups.
#[derive(Debug, Default)]
pub(crate) struct RecentWaits(BTreeMap<GroupId, Ring>);

/// Each sum with the number of its ten seconds.
#[derive(Debug, Default)]
struct Ring([Option<(u64, Box<Waited>)>; SUMS]);

impl Ring {
    /// The sums that are not over.
    fn recent(&self, now: Time) -> impl Iterator<Item = &Waited> {
        let first = number(now).saturating_sub(SUMS as u64 - 1);
        self.0.iter().flatten().filter(move |(number, _)| *number >= first).map(|(_, waited)| &**waited)
    }
}

impl RecentWaits {
    /// Counts waits.
    pub(crate) fn add(&mut self, now: Time, group: GroupId, more: &WaitedIn) {
        if more.waits.is_empty() {
            return;
        }
        let number = number(now);
        let ring = self.0.entry(group).or_default();
        let Some(place) = usize::try_from(number % SUMS as u64).ok().and_then(|at| ring.0.get_mut(at)) else {
            return;
        };
        if place.as_ref().is_none_or(|(of, _)| *of != number) {
            *place = Some((number, Box::default()));
        }
        if let Some((_, sum)) = place {
            more.waits.iter().for_each(|(length, waits)| {
                // Lengths that there are not were refused with their report.
                sum.put(*length, *waits);
            });
            sum.put_in_vain(more.in_vain);
        }
    }

    /// The waits of a group within the last minute; `None` when there was none.
    pub(crate) fn of(&self, now: Time, group: GroupId) -> Option<Waited> {
        let mut recent = self.0.get(&group)?.recent(now);
        let mut sum = recent.next()?.clone();
        recent.for_each(|more| sum.add(more));
        Some(sum)
    }

    /// Groups that have, or lately had, such waits.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.0.keys().copied()
    }

    /// Drops groups without such waits.
    pub(crate) fn tidy(&mut self, now: Time) {
        self.0.retain(|_, ring| ring.recent(now).next().is_some());
    }

    /// Drops a group that was deleted.
    pub(crate) fn forget_group(&mut self, group: GroupId) {
        self.0.remove(&group);
    }
}

/// The number of the ten seconds of a moment.
fn number(now: Time) -> u64 {
    now.0 / MICRO.unsigned_abs() / EACH_S
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Span;

    use super::*;

    fn at(second: u64) -> Time {
        Time(second * 1_000_000)
    }

    fn waited(us: u64) -> WaitedIn {
        let mut waited = Waited::default();
        waited.count(Span(us), false);
        WaitedIn { since_us: 0, waits: waited.counts().collect(), in_vain: 0 }
    }

    /// Compares with a list of all waits and when each was counted.
    #[test]
    fn the_last_minute_has_its_waits_and_no_older_ones() {
        let mut recent = RecentWaits::default();
        let mut all = Vec::new();
        for second in (0..400).filter(|second| second % 7 < 3 && !(150..260).contains(second)) {
            recent.add(at(second), GroupId(1), &waited(100 + second));
            all.push(second);
            for look in [second, second + 45, second + 59, second + 60, second + 200] {
                let since = (look / 10).saturating_sub(5) * 10;
                let expected = all.iter().filter(|at| **at >= since).count() as u64;
                let found = recent.of(at(look), GroupId(1)).map_or(0, |waited| waited.ended());
                assert_eq!(found, expected, "counted at {second} s, looked at {look} s");
            }
        }
        assert_eq!(recent.of(at(400), GroupId(2)), None);
    }

    #[test]
    fn groups_without_recent_waits_take_no_memory() {
        let mut recent = RecentWaits::default();
        for group in 0..100 {
            recent.add(at(u64::from(group)), GroupId(group), &waited(1_000));
        }
        recent.tidy(at(100));
        assert_eq!(recent.0.len(), 50, "those from 50 s on");
        recent.forget_group(GroupId(99));
        assert!(recent.0.len() == 49 && recent.of(at(100), GroupId(99)).is_none());
        recent.tidy(at(200));
        assert!(recent.0.is_empty());
    }
}
