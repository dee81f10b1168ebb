//! The roll of a client: which of its groups are awake, and what those that sleep have used.
//!
//! Whatever looks at groups again and again looks at the roll, so that a group that sleeps costs nothing. Groups are
//! kept weakly: the roll keeps none of them alive.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};

use crate::cell::GroupCell;
use crate::sync::{Mutex, MutexGuard};

/// Groups that are awake.
#[derive(Debug, Default)]
pub(crate) struct Roll(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    awake: BTreeMap<u64, Weak<GroupCell>>,
    /// CPU metered in groups that sleep, in nanoseconds.
    asleep_cpu_ns: u128,
}

impl Names {
    fn awake(&self) -> Vec<Arc<GroupCell>> {
        self.awake.values().filter_map(Weak::upgrade).collect()
    }
}

impl Roll {
    fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `cell` wakes, or is new; until now it used this much CPU.
    pub(crate) fn woke(&self, cell: &Arc<GroupCell>, cpu_ns: u128) {
        let mut names = self.lock();
        names.asleep_cpu_ns = names.asleep_cpu_ns.saturating_sub(cpu_ns);
        names.awake.insert(cell.id(), Arc::downgrade(cell));
    }

    /// `cell` sleeps.
    pub(crate) fn slept(&self, cell: &GroupCell, cpu_ns: u128) {
        let mut names = self.lock();
        names.asleep_cpu_ns = names.asleep_cpu_ns.saturating_add(cpu_ns);
        names.awake.remove(&cell.id());
    }

    /// The group of this number is no more.
    pub(crate) fn forget(&self, id: u64) {
        self.lock().awake.remove(&id);
    }

    /// The groups that are awake, in the order in which they were made.
    pub(crate) fn awake(&self) -> Vec<Arc<GroupCell>> {
        self.lock().awake()
    }

    /// How many groups there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().awake.len()
    }

    /// CPU time metered in all groups, in nanoseconds.
    pub(crate) fn metered_cpu_ns(&self) -> u64 {
        let names = self.lock();
        let (awake, asleep) = (names.awake(), names.asleep_cpu_ns);
        // Groups change the roll under their own locks.
        drop(names);
        let awake = awake.iter().map(|cell| cell.consumption(false).usage.cpu_ns);
        // 584 years of one processor: the operating system's count for the process has 64 bits, too.
        u64::try_from(awake.fold(asleep, u128::saturating_add)).unwrap_or(u64::MAX)
    }
}
