//! The groups in use on this node, by name.
//!
//! A group stays until the client ends: its consumption is a running total that must not start over. Of a sleeping
//! group that no handle holds, only what it remembers stays.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use foldhash::fast::RandomState;
use tidegate_core::usage::Total;

use super::{Agenda, GroupCell};
use crate::cell::Notice;
use crate::group::GroupError;
use crate::names::GroupName;
use crate::shared::Shared;
use crate::sync::RwLock;

/// All groups of one client.
#[derive(Debug)]
// The groups are where the registry is: elsewhere each look-up keeps two addresses, six instructions more.
#[repr(C)]
pub(crate) struct Registry {
    groups: RwLock<Groups>,
    limit: usize,
    shared: Arc<Shared>,
    agenda: Arc<Agenda>,
}

#[derive(Debug, Default)]
struct Groups {
    by_name: HashMap<GroupName, Entry, RandomState>,
    next_id: u64,
}

#[derive(Debug)]
enum Entry {
    Whole(Arc<GroupCell>),
    /// The memory of a sleeping group that no handle holds.
    Rest(Box<[u8]>),
}

impl Entry {
    /// The group, made from its rest if need be.
    fn whole(&mut self, from_rest: impl FnOnce(Box<[u8]>) -> Arc<GroupCell>) -> Arc<GroupCell> {
        match self {
            Self::Whole(cell) => Arc::clone(cell),
            Self::Rest(rest) => {
                let cell = from_rest(std::mem::take(rest));
                *self = Self::Whole(Arc::clone(&cell));
                cell
            }
        }
    }
}

impl Registry {
    /// Holds at most `limit` groups.
    pub(crate) fn new(shared: Arc<Shared>, agenda: Arc<Agenda>, limit: usize) -> Self {
        Self { groups: RwLock::default(), limit, shared, agenda }
    }

    /// The group of this name; `None`, too, when only its rest is kept.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<GroupCell>> {
        match self.groups.read().unwrap_or_else(PoisonError::into_inner).by_name.get(name)? {
            Entry::Whole(cell) => Some(Arc::clone(cell)),
            Entry::Rest(_) => None,
        }
    }

    /// The group of this name, made when it is not in use yet; its first renewal is due at once.
    #[inline]
    pub(crate) fn get_or_make(&self, name: &str) -> Result<Arc<GroupCell>, GroupError> {
        match self.get(name) {
            Some(cell) => Ok(cell),
            None => self.make(name),
        }
    }

    // Apart: the many who look a group up need not make room for what making one needs.
    #[inline(never)]
    fn make(&self, name: &str) -> Result<Arc<GroupCell>, GroupError> {
        let (shared, agenda) = (Arc::clone(&self.shared), Arc::clone(&self.agenda));
        let name = GroupName::new(name)?;
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        // A number of its own, also for one that was there before: its former self may still be on an agenda.
        let id = groups.next_id;
        groups.next_id = id.saturating_add(1);
        if let Some(entry) = groups.by_name.get_mut(&name) {
            return Ok(entry.whole(|rest| GroupCell::asleep(id, name, shared, agenda, rest)));
        }
        if shared.is_closing() {
            return Err(GroupError::ShutDown { group: name });
        }
        if groups.by_name.len() >= self.limit {
            return Err(GroupError::TooMany { group: name, limit: self.limit });
        }
        let slot = shared.journal.as_ref().map(|journal| journal.claim(&name)).transpose()?;
        let cell = GroupCell::new(id, name.clone(), shared, agenda, slot);
        groups.by_name.insert(name, Entry::Whole(Arc::clone(&cell)));
        drop(groups);
        cell.heed(Notice::Renew);
        Ok(cell)
    }

    /// Forgets a group that the controller does not know, unless someone uses it or it has counted anything.
    pub(crate) fn forget_unknown(&self, cell: &Arc<GroupCell>) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        // Two: the map's and the caller's. No thread can add one, as the map is locked.
        if Arc::strong_count(cell) == 2 && cell.consumption() == Total::default() {
            groups.by_name.remove(cell.name());
            if let Some(journal) = &self.shared.journal {
                cell.if_awake(|state, _| state.kept().0.release(journal));
            }
        }
    }

    /// Reduces a sleeping group to what it remembers, unless a handle holds it.
    pub(crate) fn put_away(&self, name: &GroupName) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = groups.by_name.get_mut(name) else { return };
        // One: the map's. The map is locked, and those who find a group by a weak reference wake none.
        if let Entry::Whole(cell) = entry
            && Arc::strong_count(cell) == 1
            && let Some(rest) = cell.take_rest()
        {
            *entry = Entry::Rest(rest);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).by_name.len()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use tidegate_core::exchange::Grant;
    use tidegate_core::group::Fallback;
    use tidegate_core::node::{Heard, NodeConfig};
    use tidegate_core::units::{Ru, RuTotal, Span};
    use tidegate_core::usage::{Consumption, RuParts, Usage};

    use super::*;
    use crate::cell::Passing;

    /// Has a group forget its debt and give its lease up, in these messages.
    fn go_idle(cell: &Arc<GroupCell>, messages: [u64; 2]) {
        let unlimited =
            Grant::Unlimited { ttl: Span::secs(60), renew_after: Span(0), fallback: Fallback::Stop };
        for seq in messages {
            cell.heed(Notice::Renew);
            assert!(cell.if_awake(|state, now| state.ask(now, seq)).flatten().is_some());
            assert_eq!(cell.grant(seq, &unlimited, Vec::new(), None), Heard::Applied);
        }
        // The agenda has it for the time when the answer would be late.
        cell.if_awake(|state, _| state.looked());
    }

    /// The same, and sleep.
    fn fall_asleep(cell: &Arc<GroupCell>) {
        go_idle(cell, [1, 2]);
        assert!(cell.try_sleep(&cell.consumption()));
    }

    #[test]
    fn only_a_sleeping_group_that_nobody_holds_is_put_away_and_goes_on_where_it_was() {
        let config = NodeConfig { idle_after: Span(0), ..NodeConfig::default() };
        let agenda: Arc<Agenda> = Arc::default();
        let registry = Registry::new(Shared::new(config, None), Arc::clone(&agenda), 1);
        let cell = registry.get_or_make("g").unwrap();
        let (name, used) = (cell.name().clone(), Consumption { operations: 1, ..Consumption::default() });
        let charge = |cell: &Arc<GroupCell>, ru| {
            cell.with(|state, now| {
                state.charge(now, &Consumption { charged: RuParts::flat(Ru(ru)), ..used })
            });
        };
        charge(&cell, 7);
        registry.put_away(&name);
        assert!(registry.get("g").is_some(), "awake");
        fall_asleep(&cell);
        registry.put_away(&name);
        assert!(registry.get("g").is_some(), "held");
        let gone = Arc::downgrade(&cell);
        drop(cell);
        registry.put_away(&name);
        assert!(registry.get("g").is_none() && gone.upgrade().is_none());
        assert_eq!((registry.len(), agenda.awake.len()), (1, 0));

        let again = registry.get_or_make("G").unwrap();
        assert_eq!((again.consumption().ru(), agenda.awake.len()), (RuTotal(7), 0), "looking wakes nobody");
        charge(&again, 5);
        let total = again.consumption();
        assert_eq!((total.ru(), total.operations, agenda.awake.len()), (RuTotal(12), 2, 1));
        assert!(Arc::ptr_eq(&again, &registry.get("g").unwrap()));
    }

    #[test]
    fn a_group_does_not_sleep_while_anything_is_to_come_and_one_that_woke_stays() {
        let config = NodeConfig { idle_after: Span(0), ..NodeConfig::default() };
        let registry = Registry::new(Shared::new(config, None), Arc::default(), 1);
        let cell = registry.get_or_make("g").unwrap();
        let charge = |ru| {
            let charged = RuParts::flat(Ru(ru));
            let actual = Consumption { charged, operations: 1, ..Consumption::default() };
            cell.with(|state, now| state.charge(now, &actual));
        };
        let before = cell.consumption();
        charge(7);
        go_idle(&cell, [1, 2]);
        assert!(!cell.try_sleep(&before), "less is confirmed than was consumed");
        let listener = cell.if_awake(|state, _| Passing(state).next_answer());
        assert!(!cell.try_sleep(&cell.consumption()), "someone waits for an answer");
        drop(listener);
        go_idle(&cell, [3, 4]);
        assert!(cell.try_sleep(&cell.consumption()));
        cell.with(|state, now| state.check(now, Ru(1))).unwrap_err();
        assert!(!cell.try_sleep(&cell.consumption()), "it is to ask for a lease");
        charge(5);
        let name = cell.name().clone();
        drop(cell);
        registry.put_away(&name);
        let cell = registry.get("g").expect("it is awake");
        assert_eq!(cell.consumption().ru(), RuTotal(12), "its total goes on");
    }

    #[test]
    fn what_was_metered_counts_once_asleep_and_awake() {
        let config = NodeConfig { idle_after: Span(0), ..NodeConfig::default() };
        let agenda: Arc<Agenda> = Arc::default();
        let registry = Registry::new(Shared::new(config, None), Arc::clone(&agenda), 2);
        let cells = ["a", "b"].map(|name| registry.get_or_make(name).unwrap());
        let used = |cell: &Arc<GroupCell>, cpu_ns| {
            let usage = Usage { cpu_ns, ..Usage::default() };
            let charged = RuParts::flat(Ru(1));
            let actual = Consumption { charged, usage, operations: 1, ..Consumption::default() };
            cell.with(|state, now| state.charge(now, &actual));
            agenda.awake.metered_cpu_ns()
        };
        assert_eq!((used(&cells[0], 7), used(&cells[1], 20)), (7, 27));
        fall_asleep(&cells[0]);
        assert_eq!((agenda.awake.len(), agenda.awake.metered_cpu_ns()), (1, 27));
        assert_eq!((used(&cells[0], 100), agenda.awake.len()), (127, 2));
    }

    #[test]
    fn a_group_that_is_unknown_is_forgotten_unless_it_is_held_or_has_charged() {
        let agenda: Arc<Agenda> = Arc::default();
        let shared = Shared::new(NodeConfig::default(), None);
        let registry = Registry::new(shared, Arc::clone(&agenda), 2);
        let (cell, held) = (registry.get_or_make("g").unwrap(), registry.get_or_make("g").unwrap());
        registry.forget_unknown(&cell);
        assert_eq!(registry.len(), 1, "somebody holds it");
        drop(held);
        registry.forget_unknown(&cell);
        assert_eq!(registry.len(), 0);
        drop(cell);
        assert_eq!(agenda.awake.len(), 0, "and it is looked at no more");
        let cell = registry.get_or_make("g").unwrap();
        cell.with(|state, now| state.charge(now, &Consumption { operations: 1, ..Consumption::default() }));
        registry.forget_unknown(&cell);
        assert_eq!(registry.len(), 1, "its total must not begin again");
    }
}
