//! When which group wants to be looked at, and which are to be asked for: by number, for all groups of a client.

use std::collections::{BTreeSet, VecDeque};
use std::sync::PoisonError;

use tidegate_core::units::Time;

use crate::cell::{Contact, Look};
use crate::sync::{Mutex, MutexGuard, Notify};

/// When the driver looks at which group.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    entries: Mutex<BTreeSet<(Time, u64)>>,
    sooner: Notify,
}

impl Schedule {
    /// Puts the group `id` where it is to be looked at, taking it from where it was.
    pub(super) fn put(&self, id: u64, Look { at, before }: Look) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = before {
            entries.remove(&(before, id));
        }
        entries.insert((at, id));
        if entries.first().is_some_and(|first| *first == (at, id)) {
            self.sooner.notify_one();
        }
    }

    /// Takes the groups whose time has come.
    pub(super) fn take_due(&self, now: Time) -> impl Iterator<Item = u64> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let later = entries.split_off(&(Time(now.0.saturating_add(1)), 0));
        let due = std::mem::replace(&mut *entries, later);
        due.into_iter().map(|(_, id)| id)
    }

    /// The earliest time in the set.
    pub(crate) fn next(&self) -> Option<Time> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.first().map(|(at, _)| *at)
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
    groups: VecDeque<(u64, Contact)>,
    first_contacts: usize,
}

impl DueSet {
    fn lock(&self) -> MutexGuard<'_, Due> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the group `id`.
    pub(super) fn announce(&self, id: u64, contact: Contact) {
        let mut due = self.lock();
        due.groups.push_back((id, contact));
        due.first_contacts += usize::from(contact == Contact::First);
        drop(due);
        self.wake.notify_one();
    }

    /// Takes at most `limit` groups.
    pub(super) fn take(&self, limit: usize) -> impl Iterator<Item = u64> {
        let mut due = self.lock();
        let count = limit.min(due.groups.len());
        let taken: Vec<_> = due.groups.drain(..count).collect();
        let first_contacts = taken.iter().filter(|(_, contact)| *contact == Contact::First).count();
        due.first_contacts = due.first_contacts.saturating_sub(first_contacts);
        taken.into_iter().map(|(id, _)| id)
    }

    /// Whether no group is due.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().groups.is_empty()
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
