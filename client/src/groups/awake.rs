//! The groups of a client that are awake, and what those that sleep have used.
//!
//! Whatever looks at groups again and again looks at these, so that a group that sleeps costs nothing. Groups are kept
//! weakly: the list keeps none of them alive.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};

use super::GroupCell;
use crate::sync::{Mutex, MutexGuard};

/// Groups that are awake.
#[derive(Debug, Default)]
pub(crate) struct Awake(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    awake: BTreeMap<u64, Weak<GroupCell>>,
    /// CPU metered in groups that sleep, in nanoseconds.
    asleep_cpu_ns: u128,
}

impl Groups {
    fn all(&self) -> Vec<Arc<GroupCell>> {
        self.awake.values().filter_map(Weak::upgrade).collect()
    }
}

impl Awake {
    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `cell` wakes, or is new; until now it used this much CPU.
    pub(crate) fn woke(&self, cell: &Arc<GroupCell>, cpu_ns: u128) {
        let mut groups = self.lock();
        groups.asleep_cpu_ns = groups.asleep_cpu_ns.saturating_sub(cpu_ns);
        groups.awake.insert(cell.id(), Arc::downgrade(cell));
    }

    /// `cell` sleeps.
    pub(crate) fn slept(&self, cell: &GroupCell, cpu_ns: u128) {
        let mut groups = self.lock();
        groups.asleep_cpu_ns = groups.asleep_cpu_ns.saturating_add(cpu_ns);
        groups.awake.remove(&cell.id());
    }

    /// The group of this number is no more.
    pub(crate) fn forget(&self, id: u64) {
        self.lock().awake.remove(&id);
    }

    /// The groups that are awake, in the order in which they were made.
    pub(crate) fn all(&self) -> Vec<Arc<GroupCell>> {
        self.lock().all()
    }

    /// The groups of these numbers, in their order; those that are no more are left out.
    pub(super) fn those(&self, ids: impl IntoIterator<Item = u64>) -> Vec<Arc<GroupCell>> {
        let groups = self.lock();
        ids.into_iter().filter_map(|id| groups.awake.get(&id)?.upgrade()).collect()
    }

    /// How many groups are awake.
    pub(crate) fn len(&self) -> usize {
        self.lock().awake.len()
    }

    /// CPU time metered in all groups, in nanoseconds.
    pub(crate) fn metered_cpu_ns(&self) -> u64 {
        let groups = self.lock();
        let (awake, asleep) = (groups.all(), groups.asleep_cpu_ns);
        // Groups change this list under their own locks.
        drop(groups);
        let awake = awake.iter().map(|cell| cell.consumption().usage.cpu_ns);
        // 584 years of one processor: the operating system's count for the process has 64 bits, too.
        u64::try_from(awake.fold(asleep, u128::saturating_add)).unwrap_or(u64::MAX)
    }
}
