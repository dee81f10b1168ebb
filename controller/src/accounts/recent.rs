//! Consumption by the second, of the last ten minutes, in memory: a restart forgets it.
//!
//! It is read off the minutes that are about to be stored, so that counting a report costs nothing more. Reports come
//! about once a second from each node and are stored twice a second; what comes later counts in the second in which it
//! is stored, together with the seconds in which nothing could be.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use tidegate_core::group::GroupId;
use tidegate_core::usage::Total;

use super::brief::Brief;
use super::history::{Bucket, Resolution};
use crate::limits::{MAX_SECOND_GROUPS, SECONDS_KEPT_S};

/// Some seconds of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seconds {
    /// The first, since the Unix epoch.
    pub(crate) start_unix_s: u64,
    /// How many.
    pub(crate) length_s: u64,
    pub(crate) amount: Brief,
}

impl Seconds {
    fn end(&self) -> u64 {
        self.start_unix_s.saturating_add(self.length_s)
    }
}

/// A group.
#[derive(Debug, Default)]
struct Kept {
    /// The minute that was seen last, and what it had.
    minute_unix_s: u64,
    seen: Brief,
    seconds: VecDeque<Seconds>,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    groups: BTreeMap<GroupId, Kept>,
    /// The second after those that were looked at.
    next_unix_s: u64,
    /// The newest minute in which a group had no room. What it had of that minute, some seconds later, is not of those
    /// seconds.
    full_unix_s: Option<u64>,
}

impl Recent {
    /// Goes on with a minute that was open when the controller stopped.
    pub(crate) fn resume(&mut self, bucket: &Bucket, amount: &Total) {
        if bucket.resolution != Resolution::Minute {
            return;
        }
        if self.groups.len() < MAX_SECOND_GROUPS {
            self.groups.insert(bucket.group, Kept::from(bucket.start_unix_s, amount));
        } else {
            self.full_unix_s = self.full_unix_s.max(Some(bucket.start_unix_s));
        }
    }

    /// Sees what changed, in the order of buckets. A bucket that is seen again, because it could not be stored, adds
    /// only what it has more.
    pub(crate) fn see(&mut self, unix_s: u64, changed: &BTreeMap<Bucket, Total>) {
        // A clock that steps back goes on in the newest second.
        let second = unix_s.max(self.next_unix_s.saturating_sub(1));
        let first = if self.next_unix_s == 0 { second } else { self.next_unix_s.min(second) };
        let first = first.max((second + 1).saturating_sub(SECONDS_KEPT_S));
        self.next_unix_s = second + 1;
        self.make_room(second);
        for (bucket, amount) in changed.iter().filter(|(of, _)| of.resolution == Resolution::Minute) {
            let has_room = self.groups.len() < MAX_SECOND_GROUPS;
            let kept = match self.groups.entry(bucket.group) {
                Entry::Occupied(kept) => kept.into_mut(),
                Entry::Vacant(place) if has_room && self.full_unix_s == Some(bucket.start_unix_s) => {
                    place.insert(Kept::from(bucket.start_unix_s, amount))
                }
                Entry::Vacant(place) if has_room => place.insert(Kept::default()),
                Entry::Vacant(_) => {
                    self.full_unix_s = self.full_unix_s.max(Some(bucket.start_unix_s));
                    continue;
                }
            };
            kept.see(bucket.start_unix_s, Brief::of(amount), first, second);
        }
    }

    /// Groups without recent seconds make room for others, where all of it is taken: once for all that changed.
    fn make_room(&mut self, second: u64) {
        if self.groups.len() >= MAX_SECOND_GROUPS {
            let oldest = second.saturating_sub(SECONDS_KEPT_S);
            self.groups.retain(|_, kept| kept.end() > oldest);
        }
    }

    /// Seconds of a group, in order; those without consumption are left out.
    pub(crate) fn of(&self, group: GroupId) -> impl Iterator<Item = &Seconds> {
        self.groups.get(&group).into_iter().flat_map(|kept| kept.seconds.iter())
    }

    /// Drops a group that was deleted.
    pub(crate) fn forget_group(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }
}

impl Kept {
    /// One that goes on with a minute of which nothing is known by the second.
    fn from(minute_unix_s: u64, amount: &Total) -> Self {
        Self { minute_unix_s, seen: Brief::of(amount), seconds: VecDeque::new() }
    }

    /// The end of what is known of it: without seconds, of the minute with which it goes on.
    fn end(&self) -> u64 {
        let minute = self.minute_unix_s.saturating_add(Resolution::Minute.seconds());
        self.seconds.back().map_or(minute, Seconds::end)
    }

    fn see(&mut self, minute_unix_s: u64, amount: Brief, first: u64, second: u64) {
        // A minute before the last one was counted when it was the last.
        if minute_unix_s < self.minute_unix_s {
            return;
        }
        let before = if minute_unix_s == self.minute_unix_s { self.seen } else { Brief::default() };
        (self.minute_unix_s, self.seen) = (minute_unix_s, amount);
        let more = amount.since(&before);
        if more.is_nothing() {
            return;
        }
        match self.seconds.back_mut() {
            Some(last) if last.end() > second => last.amount.add(&more),
            last => {
                let start_unix_s = first.max(last.map_or(0, |last| last.end())).min(second);
                let length_s = second + 1 - start_unix_s;
                self.seconds.push_back(Seconds { start_unix_s, length_s, amount: more });
            }
        }
        let oldest = (second + 1).saturating_sub(SECONDS_KEPT_S);
        while self.seconds.front().is_some_and(|old| old.end() <= oldest) {
            self.seconds.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Ru;
    use tidegate_core::usage::{Consumption, RuParts};

    use super::*;

    fn seen(recent: &mut Recent, unix_s: u64, minutes: &[(u64, i64)]) {
        seen_of(recent, unix_s, 2, minutes);
    }

    fn seen_of(recent: &mut Recent, unix_s: u64, group: u32, minutes: &[(u64, i64)]) {
        let changed = minutes.iter().map(|(start_unix_s, micro)| {
            let resolution = Resolution::Minute;
            let bucket = Bucket { resolution, start_unix_s: *start_unix_s, group: GroupId(group) };
            let charged = RuParts::flat(Ru(*micro));
            (bucket, Consumption { charged, ..Consumption::default() }.into())
        });
        recent.see(unix_s, &changed.collect());
    }

    fn kept(recent: &Recent) -> Vec<(u64, u64, u128)> {
        let seconds = recent.of(GroupId(2));
        seconds.map(|s| (s.start_unix_s, s.length_s, s.amount.total().ru().0)).collect()
    }

    #[test]
    fn each_second_has_what_its_minute_gained() {
        let mut recent = Recent::default();
        seen(&mut recent, 100, &[(60, 5)]);
        seen(&mut recent, 100, &[(60, 7)]);
        seen(&mut recent, 101, &[(60, 8)]);
        seen(&mut recent, 118, &[]);
        // Nothing could be stored for two seconds, and the minute ended meanwhile.
        seen(&mut recent, 120, &[(60, 10), (120, 4)]);
        // The minutes come again, as the commit failed; the clock steps back.
        seen(&mut recent, 119, &[(60, 10), (120, 5)]);
        assert_eq!(kept(&recent), [(100, 1, 7), (101, 1, 1), (119, 2, 7)]);
    }

    #[test]
    fn seconds_and_groups_are_bounded() {
        let mut recent = Recent::default();
        for second in 0..2 * SECONDS_KEPT_S {
            let minute = 6_000 + second - second % 60;
            seen(&mut recent, 6_000 + second, &[(minute, 10 + (second % 60).cast_signed())]);
        }
        let seconds = kept(&recent);
        assert_eq!(u64::try_from(seconds.len()), Ok(SECONDS_KEPT_S));
        let now = 6_000 + 2 * SECONDS_KEPT_S;
        for group in 0..u32::try_from(2 * MAX_SECOND_GROUPS).unwrap() {
            seen_of(&mut recent, now, 10 + group, &[(now - now % 60, 1)]);
        }
        assert_eq!(recent.groups.len(), MAX_SECOND_GROUPS);
        // Who is silent makes room.
        seen_of(&mut recent, now + SECONDS_KEPT_S + 1, 9, &[(now + 600, 1)]);
        assert!(recent.groups.len() == 1 && recent.of(GroupId(9)).count() == 1);
    }

    /// However long nothing could be stored, and wherever the clock steps, a point is not longer than what is kept, does
    /// not begin before the one before it ends, and ends with the second in which it is seen.
    #[test]
    fn what_comes_late_is_of_the_seconds_since_the_last_point_as_far_as_they_are_kept() {
        let mut recent = Recent::default();
        seen(&mut recent, 6_000, &[(6_000, 1)]);
        seen(&mut recent, 6_001, &[]);
        // The group is silent for a while; what it uses then is of the seconds since anything was looked at.
        seen(&mut recent, 6_010, &[(6_000, 3)]);
        assert_eq!(kept(&recent), [(6_000, 1, 1), (6_002, 9, 2)]);
        // A step back of the clock is no time.
        seen(&mut recent, 5_000, &[(6_000, 4)]);
        assert_eq!(kept(&recent), [(6_000, 1, 1), (6_002, 9, 3)]);
        let late = 6_010 + 3 * SECONDS_KEPT_S;
        seen(&mut recent, late, &[(late - late % 60, 9)]);
        assert_eq!(kept(&recent), [(late + 1 - SECONDS_KEPT_S, SECONDS_KEPT_S, 9)]);
        recent.forget_group(GroupId(2));
        assert_eq!(kept(&recent), []);
        seen(&mut recent, late + 1, &[(late - late % 60, 9)]);
        assert_eq!(kept(&recent), [(late + 1, 1, 9)], "a group that is there again has used all of it");
    }

    #[test]
    fn hours_are_no_seconds_and_a_start_goes_on_with_no_more_groups_than_are_kept() {
        let mut recent = Recent::default();
        let amount = Consumption { charged: RuParts::flat(Ru(40)), ..Consumption::default() }.into();
        let hour = Bucket { resolution: Resolution::Hour, start_unix_s: 0, group: GroupId(2) };
        recent.resume(&hour, &amount);
        recent.see(100, &BTreeMap::from([(hour, amount)]));
        assert!(recent.groups.is_empty());
        for group in 0..u32::try_from(MAX_SECOND_GROUPS).unwrap() + 1 {
            let bucket =
                Bucket { resolution: Resolution::Minute, start_unix_s: 60, group: GroupId(10 + group) };
            recent.resume(&bucket, &amount);
        }
        assert_eq!(recent.groups.len(), MAX_SECOND_GROUPS);
    }

    /// Consumption of a minute in one of its seconds would be a peak that never was.
    #[test]
    fn a_group_without_room_so_far_begins_with_what_it_uses_from_then_on() {
        let mut recent = Recent::default();
        let groups = u32::try_from(MAX_SECOND_GROUPS).unwrap();
        (0..groups).for_each(|group| seen_of(&mut recent, 6_000, 10 + group, &[(6_000, 1)]));
        let later = 6_000 + SECONDS_KEPT_S;
        let minute = later - later % 60;
        // All have room for a last time.
        seen(&mut recent, later - 1, &[(minute - 60, 7)]);
        seen(&mut recent, later, &[(minute - 60, 8), (minute, 40)]);
        assert_eq!(kept(&recent), []);
        seen(&mut recent, later + 1, &[(minute, 50)]);
        assert_eq!(kept(&recent), [], "some seconds of it are not known");
        seen(&mut recent, later + 2, &[(minute, 53)]);
        seen_of(&mut recent, later + 2, 3, &[(minute, 5)]);
        seen(&mut recent, later + 60, &[]);
        seen_of(&mut recent, later + 61, 4, &[(minute + 60, 6)]);
        assert_eq!(kept(&recent), [(later + 2, 1, 3)]);
        let other = recent.of(GroupId(4)).map(|s| (s.start_unix_s, s.amount.total().ru().0));
        assert_eq!(other.collect::<Vec<_>>(), [(later + 61, 6)], "in the next minute all is known");
    }

    #[test]
    fn as_many_groups_as_are_kept_go_on_after_a_restart_with_what_they_use_from_then_on() {
        let mut recent = Recent::default();
        let groups = 0..=u32::try_from(MAX_SECOND_GROUPS).unwrap();
        let amount = Consumption { charged: RuParts::flat(Ru(40)), ..Consumption::default() }.into();
        for group in groups.clone() {
            let (resolution, group) = (Resolution::Minute, GroupId(group));
            recent.resume(&Bucket { resolution, start_unix_s: 60, group }, &amount);
        }
        groups.for_each(|group| seen_of(&mut recent, 100, group, &[(60, 45)]));
        assert_eq!(kept(&recent), [(100, 1, 5)]);
        let all = recent.groups.values().flat_map(|kept| &kept.seconds);
        assert!(all.clone().count() == MAX_SECOND_GROUPS);
        assert!(all.map(|seconds| seconds.amount.total().ru().0).all(|ru| ru == 5));
    }

    #[test]
    fn what_was_counted_before_a_restart_is_not_counted_again() {
        let mut recent = Recent::default();
        let bucket = Bucket { resolution: Resolution::Minute, start_unix_s: 60, group: GroupId(2) };
        let charged = RuParts::flat(Ru(40));
        recent.resume(&bucket, &Consumption { charged, ..Consumption::default() }.into());
        seen(&mut recent, 100, &[(60, 45)]);
        assert_eq!(kept(&recent), [(100, 1, 5)]);
    }
}
