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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SOON: std::time::Duration = std::time::Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_group_is_looked_at_where_it_was_put_last_and_nowhere_else() {
        let schedule = Schedule::default();
        let put = |id, at, before: Option<u64>| {
            schedule.put(id, Look { at: Time(at), before: before.map(Time) });
        };
        put(1, 50, None);
        assert!(timeout(SOON, schedule.sooner()).await.is_ok(), "it is the first");
        put(2, 60, None);
        assert!(timeout(SOON, schedule.sooner()).await.is_err(), "it comes later");
        put(2, 40, Some(60));
        assert!(timeout(SOON, schedule.sooner()).await.is_ok(), "it comes before the first");
        assert_eq!(schedule.next(), Some(Time(40)));
        assert_eq!(schedule.take_due(Time(39)).count(), 0);
        assert_eq!(schedule.take_due(Time(50)).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((schedule.next(), schedule.take_due(Time(u64::MAX)).count()), (None, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn groups_that_are_due_come_in_turn_and_the_first_contacts_among_them_are_counted() {
        let due = DueSet::default();
        assert!(due.is_empty() && !due.has_first_contact());
        let [again, first] = [Contact::Again, Contact::First];
        for (id, contact) in [(3, again), (1, first), (4, first), (2, again)] {
            due.announce(id, contact);
        }
        assert!(timeout(SOON, due.added()).await.is_ok());
        assert!(!due.is_empty() && due.has_first_contact());
        assert_eq!(due.take(1).collect::<Vec<_>>(), [3]);
        assert!(due.has_first_contact());
        assert_eq!(due.take(2).collect::<Vec<_>>(), [1, 4]);
        assert!(!due.has_first_contact() && !due.is_empty());
        assert_eq!(due.take(9).collect::<Vec<_>>(), [2]);
        assert!(due.is_empty());
    }
}
