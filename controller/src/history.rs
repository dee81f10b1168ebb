//! Consumption per group over time: by the minute for a day, by the hour for 90 days.
//!
//! Keeps the open minute and hour of each active group and hands out absolute amounts to be stored, so that storing
//! one twice is harmless. Time is the wall clock in seconds and never runs backwards here: what arrives after a step
//! back is counted in the newest bucket.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::group::GroupId;
use tidegate_core::usage::Consumption;

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
    /// Both.
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

    /// Where the buckets are stored.
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

/// The open buckets.
#[derive(Debug, Default)]
pub struct History {
    open: BTreeMap<Bucket, Consumption>,
    /// The open ones that changed, and closed ones that could not be stored.
    dirty: BTreeSet<Bucket>,
    newest_unix_s: u64,
}

impl History {
    /// Takes up a stored bucket that is still open.
    pub fn resume(&mut self, bucket: Bucket, amount: Consumption) {
        self.newest_unix_s = self.newest_unix_s.max(bucket.start_unix_s);
        self.open.insert(bucket, amount);
    }

    /// Counts consumption that was reported at `unix_s`.
    pub fn add(&mut self, group: GroupId, unix_s: u64, delta: &Consumption) {
        self.newest_unix_s = self.newest_unix_s.max(unix_s);
        for resolution in Resolution::ALL {
            let start_unix_s = resolution.start(self.newest_unix_s);
            let bucket = Bucket { resolution, start_unix_s, group };
            let amount = self.open.entry(bucket).or_default();
            *amount = amount.plus(delta);
            self.dirty.insert(bucket);
        }
    }

    /// Takes back what `take_dirty` gave, because storing it failed. What changed since then is newer and stays.
    pub fn mark_dirty(&mut self, buckets: BTreeMap<Bucket, Consumption>) {
        for (bucket, amount) in buckets {
            self.open.entry(bucket).or_insert(amount);
            self.dirty.insert(bucket);
        }
    }

    /// Buckets that changed since the last call, with their amounts; closed buckets are let go.
    pub fn take_dirty(&mut self) -> BTreeMap<Bucket, Consumption> {
        let newest = self.newest_unix_s;
        let dirty = std::mem::take(&mut self.dirty);
        let changed =
            dirty.into_iter().filter_map(|bucket| Some((bucket, *self.open.get(&bucket)?))).collect();
        self.open.retain(|bucket, _| bucket.start_unix_s >= bucket.resolution.start(newest));
        changed
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Ru;
    use tidegate_core::usage::RuParts;

    use super::*;

    fn ru(micro: i64) -> Consumption {
        Consumption { charged: RuParts::flat(Ru(micro)), ..Consumption::default() }
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
        assert_eq!(history.open.len(), 2);
    }

    #[test]
    fn a_step_back_of_the_clock_never_rewrites_an_older_bucket() {
        let mut history = History::default();
        history.resume(bucket(Resolution::Minute, 120), ru(5));
        history.add(GroupId(2), 10, &ru(1));
        assert_eq!(history.take_dirty().get(&bucket(Resolution::Minute, 120)), Some(&ru(6)));
    }
}
