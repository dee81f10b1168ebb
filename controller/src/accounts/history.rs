//! Consumption per group over time: by the minute for a day, by the hour for 90 days.
//!
//! Keeps the open minute and hour of each active group and returns absolute amounts to store, so that storing one twice
//! is harmless. Time is the wall clock in seconds and never runs backwards here: after a step back, reports count in
//! the newest bucket.

use std::collections::BTreeMap;

use tidegate_core::group::GroupId;
use tidegate_core::usage::Total;

use crate::limits::{HOURS_KEPT_S, MINUTES_KEPT_S};
use crate::store::Table;

/// Length of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    /// 60 seconds.
    Minute,
    /// 3600 seconds.
    Hour,
}

impl Resolution {
    /// Both resolutions.
    pub const ALL: [Self; 2] = [Self::Minute, Self::Hour];

    /// Seconds in a bucket.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3_600,
        }
    }

    /// Seconds that buckets are kept.
    pub const fn kept_s(self) -> u64 {
        match self {
            Self::Minute => MINUTES_KEPT_S,
            Self::Hour => HOURS_KEPT_S,
        }
    }

    /// The table that stores the buckets.
    pub const fn table(self) -> Table {
        match self {
            Self::Minute => Table::Minutes,
            Self::Hour => Table::Hours,
        }
    }

    /// Start of the bucket of a moment.
    pub const fn start(self, unix_s: u64) -> u64 {
        unix_s - unix_s % self.seconds()
    }
}

/// A bucket of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket {
    /// Its length.
    pub resolution: Resolution,
    /// Its start, in seconds since the Unix epoch.
    pub start_unix_s: u64,
    /// The group.
    pub group: GroupId,
}

/// An open bucket of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    start_unix_s: u64,
    amount: Total,
    /// Whether it changed since it was last returned to be stored.
    dirty: bool,
}

/// The open buckets of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Buckets {
    minute: Open,
    hour: Open,
}

impl Buckets {
    fn of(&mut self, resolution: Resolution) -> &mut Open {
        match resolution {
            Resolution::Minute => &mut self.minute,
            Resolution::Hour => &mut self.hour,
        }
    }
}

/// The open buckets.
#[derive(Debug, Default)]
pub struct History {
    open: BTreeMap<GroupId, Buckets>,
    /// Groups with a changed open bucket; a group may be listed more than once.
    dirty: Vec<GroupId>,
    /// Closed buckets that are not stored yet.
    closed: BTreeMap<Bucket, Total>,
    newest_unix_s: u64,
    /// The hour of the open buckets.
    hour_unix_s: u64,
}

impl History {
    /// Resumes a stored bucket that is still open.
    pub fn resume(&mut self, bucket: Bucket, amount: Total) {
        self.newest_unix_s = self.newest_unix_s.max(bucket.start_unix_s);
        let open = self.open.entry(bucket.group).or_default().of(bucket.resolution);
        *open = Open { start_unix_s: bucket.start_unix_s, amount, dirty: false };
    }

    /// Counts consumption reported at `unix_s`.
    pub fn add(&mut self, group: GroupId, unix_s: u64, delta: &Total) {
        self.newest_unix_s = self.newest_unix_s.max(unix_s);
        let buckets = self.open.entry(group).or_default();
        if !(buckets.minute.dirty || buckets.hour.dirty) {
            self.dirty.push(group);
        }
        for resolution in Resolution::ALL {
            let open = buckets.of(resolution);
            let start_unix_s = resolution.start(self.newest_unix_s);
            if open.start_unix_s != start_unix_s {
                if open.dirty {
                    let bucket = Bucket { resolution, start_unix_s: open.start_unix_s, group };
                    self.closed.insert(bucket, open.amount);
                }
                *open = Open { start_unix_s, ..Open::default() };
            }
            open.amount.add(delta);
            open.dirty = true;
        }
    }

    /// Takes back the result of `take_dirty`, because storing it failed. Newer changes stay.
    pub fn mark_dirty(&mut self, buckets: BTreeMap<Bucket, Total>) {
        for (bucket, amount) in buckets {
            match self.open.get_mut(&bucket.group).map(|buckets| buckets.of(bucket.resolution)) {
                Some(open) if open.start_unix_s == bucket.start_unix_s => {
                    open.dirty = true;
                    self.dirty.push(bucket.group);
                }
                _ => drop(self.closed.entry(bucket).or_insert(amount)),
            }
        }
    }

    /// Returns the buckets that changed since the last call, with their amounts, and drops closed ones.
    pub fn take_dirty(&mut self) -> BTreeMap<Bucket, Total> {
        let mut changed = std::mem::take(&mut self.closed);
        for group in std::mem::take(&mut self.dirty) {
            let Some(buckets) = self.open.get_mut(&group) else { continue };
            for resolution in Resolution::ALL {
                let open = buckets.of(resolution);
                if std::mem::take(&mut open.dirty) {
                    let bucket = Bucket { resolution, start_unix_s: open.start_unix_s, group };
                    changed.insert(bucket, open.amount);
                }
            }
        }
        let hour = Resolution::Hour.start(self.newest_unix_s);
        if std::mem::replace(&mut self.hour_unix_s, hour) != hour {
            self.open.retain(|_, buckets| buckets.hour.start_unix_s == hour);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Ru;
    use tidegate_core::usage::{Consumption, RuParts};

    use super::*;

    fn ru(micro: i64) -> Total {
        Consumption { charged: RuParts::flat(Ru(micro)), ..Consumption::default() }.into()
    }

    fn bucket(resolution: Resolution, start_unix_s: u64) -> Bucket {
        Bucket { resolution, start_unix_s, group: GroupId(2) }
    }

    #[test]
    fn amounts_are_absolute_per_bucket() {
        let mut history = History::default();
        history.add(GroupId(2), 3_601, &ru(1));
        history.add(GroupId(2), 3_659, &ru(2));
        history.take_dirty();
        history.add(GroupId(2), 3_660, &ru(4));
        let dirty: Vec<_> = history.take_dirty().into_iter().collect();
        assert_eq!(
            dirty,
            [(bucket(Resolution::Minute, 3_660), ru(4)), (bucket(Resolution::Hour, 3_600), ru(7))]
        );
        assert!(history.take_dirty().is_empty());
        history.add(GroupId(3), 7_200, &ru(1));
        history.take_dirty();
        assert_eq!(history.open.keys().collect::<Vec<_>>(), [&GroupId(3)], "the hour of the other is over");
    }

    #[test]
    fn what_could_not_be_stored_is_kept_also_when_its_bucket_has_closed() {
        let mut history = History::default();
        history.add(GroupId(2), 3_600, &ru(1));
        let lost = history.take_dirty();
        history.add(GroupId(2), 3_601, &ru(2));
        history.add(GroupId(2), 3_660, &ru(4));
        history.mark_dirty(lost);
        let minute = |start| bucket(Resolution::Minute, start);
        let all = [(minute(3_600), ru(3)), (minute(3_660), ru(4)), (bucket(Resolution::Hour, 3_600), ru(7))];
        let lost = history.take_dirty();
        assert_eq!(lost, BTreeMap::from(all));
        history.mark_dirty(lost);
        assert_eq!(history.take_dirty(), BTreeMap::from(all));
        assert!(history.take_dirty().is_empty());
    }

    #[test]
    fn a_step_back_of_the_clock_never_rewrites_an_older_bucket() {
        let mut history = History::default();
        history.resume(bucket(Resolution::Minute, 120), ru(5));
        history.add(GroupId(2), 10, &ru(1));
        assert_eq!(history.take_dirty().get(&bucket(Resolution::Minute, 120)), Some(&ru(6)));
    }
}
