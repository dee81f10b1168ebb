//! When which group wants to be looked at: one ordered set for all groups of a client.
//!
//! Groups are kept weakly, so that the schedule keeps none of them alive.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError, Weak};

use tidegate_core::units::Time;

use crate::cell::GroupCell;
use crate::sync::{Mutex, MutexGuard, Notify};

/// The driver's agenda.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    entries: Mutex<BTreeMap<(Time, u64), Weak<GroupCell>>>,
    sooner: Notify,
}

impl Schedule {
    /// Puts `cell` at `at`, taking it from `before`.
    pub(crate) fn put(&self, cell: &Arc<GroupCell>, before: Option<Time>, at: Time) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = before {
            entries.remove(&(before, cell.id()));
        }
        entries.insert((at, cell.id()), Arc::downgrade(cell));
        if entries.first_key_value().is_some_and(|((first, id), _)| (*first, *id) == (at, cell.id())) {
            self.sooner.notify_one();
        }
    }

    /// Takes the groups whose time has come.
    pub(crate) fn take_due(&self, now: Time) -> Vec<Arc<GroupCell>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let later = entries.split_off(&(Time(now.0.saturating_add(1)), 0));
        let due = std::mem::replace(&mut *entries, later);
        due.into_values().filter_map(|cell| cell.upgrade()).collect()
    }

    /// The earliest time in the set.
    pub(crate) fn next(&self) -> Option<Time> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.first_key_value().map(|((at, _), _)| *at)
    }

    /// Completes when something was put before everything else.
    pub(crate) async fn sooner(&self) {
        self.sooner.notified().await;
    }
}

/// Groups whose renewal is due, waiting for the session to ask for them: first come, first asked. Each announces
/// itself once.
#[derive(Debug, Default)]
pub(crate) struct DueSet {
    waiting: Mutex<Due>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Due {
    /// Each with whether it has never asked, so that its operations wait for the first answer.
    cells: VecDeque<(Weak<GroupCell>, bool)>,
    first_contacts: usize,
}

impl DueSet {
    fn lock(&self) -> MutexGuard<'_, Due> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `cell`, which may never have asked before.
    pub(crate) fn announce(&self, cell: &Arc<GroupCell>, first_contact: bool) {
        let mut due = self.lock();
        due.cells.push_back((Arc::downgrade(cell), first_contact));
        due.first_contacts += usize::from(first_contact);
        drop(due);
        self.wake.notify_one();
    }

    /// Takes at most `limit` groups.
    pub(crate) fn take(&self, limit: usize) -> Vec<Arc<GroupCell>> {
        let mut due = self.lock();
        let count = limit.min(due.cells.len());
        let taken: Vec<_> = due.cells.drain(..count).collect();
        let first_contacts = taken.iter().filter(|(_, first_contact)| *first_contact).count();
        due.first_contacts = due.first_contacts.saturating_sub(first_contacts);
        taken.into_iter().filter_map(|(cell, _)| cell.upgrade()).collect()
    }

    /// Whether no group is due.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().cells.is_empty()
    }

    /// Whether one of those that are due has never asked.
    pub(crate) fn has_first_contact(&self) -> bool {
        self.lock().first_contacts > 0
    }

    /// Completes when a group was added.
    pub(crate) async fn added(&self) {
        self.wake.notified().await;
    }
}
