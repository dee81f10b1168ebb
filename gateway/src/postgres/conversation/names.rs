//! Which statement a name stands for, as the server has it.
//!
//! A `Parse` may fail, most of all under a name that is in use: then the name stands for what it did before. Later
//! messages of the same unit are read as if it succeeded, since the server skips them otherwise.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::{Portal, Prepared};

/// Prepared statements and portals remembered per session, each; others are governed as of unknown kind.
const MAX_NAMES: usize = 4_096;

/// Names and what they stand for.
pub(super) type Map<V> = HashMap<Vec<u8>, V, RandomState>;

/// The names of prepared statements.
#[derive(Debug)]
pub(super) struct Names<O> {
    known: Map<Prepared<O>>,
    /// Those that the server has not confirmed, in the order of their messages.
    given: VecDeque<Given<O>>,
}

/// `Parse` messages in a row, one of a name or several without.
#[derive(Debug)]
struct Given<O> {
    unit: u64,
    times: u32,
    name: Vec<u8>,
    before: Option<Prepared<O>>,
}

impl<O> Default for Names<O> {
    fn default() -> Self {
        Self { known: HashMap::default(), given: VecDeque::new() }
    }
}

impl<O> Names<O> {
    pub(super) fn get(&self, name: &[u8]) -> Option<&Prepared<O>> {
        self.known.get(name)
    }

    /// What the gateway answers itself needs nobody's word.
    pub(super) fn set(&mut self, name: &[u8], prepared: Prepared<O>) {
        remember(&mut self.known, name, prepared);
    }

    /// A `Parse` is on its way to the server in this unit.
    pub(super) fn give(&mut self, unit: u64, name: &[u8], prepared: Prepared<O>) {
        let unnamed = self.given.back_mut().filter(|last| last.unit == unit && name.is_empty());
        match unnamed.filter(|last| last.name.is_empty() && last.times < u32::MAX) {
            Some(last) => last.times += 1,
            None => {
                let before = self.known.get(name).filter(|_| !name.is_empty()).cloned();
                self.given.push_back(Given { unit, times: 1, name: name.to_vec(), before });
            }
        }
        remember(&mut self.known, name, prepared);
    }

    /// How many the server has not confirmed, those without a name in a row counted once.
    pub(super) fn unconfirmed(&self) -> usize {
        self.given.len()
    }

    /// The server has taken the first that it had not.
    pub(super) fn confirm(&mut self) {
        if let Some(first) = self.given.front_mut() {
            first.times -= 1;
            if first.times == 0 {
                self.given.pop_front();
            }
        }
    }

    /// The server has failed in this unit: it takes no more of its statements.
    pub(super) fn take_back(&mut self, unit: u64) {
        let of_unit = self.given.iter().take_while(|given| given.unit == unit).count();
        let failed: Vec<Given<O>> = self.given.drain(..of_unit).collect();
        for Given { name, before, .. } in failed.into_iter().rev().filter(|given| !given.name.is_empty()) {
            match self.given.iter_mut().find(|later| later.name == name) {
                Some(later) => later.before = before,
                None => match before {
                    Some(before) => drop(self.known.insert(name, before)),
                    None => drop(self.known.remove(&name)),
                },
            }
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        self.known.remove(name);
    }
}

/// What a name stands for.
pub(super) trait Named {
    /// Whether the server's answers to it are the client's.
    fn is_theirs(&self) -> bool;
}

impl<O> Named for Prepared<O> {
    fn is_theirs(&self) -> bool {
        matches!(self, Self::Theirs(_))
    }
}

impl<O> Named for Portal<O> {
    fn is_theirs(&self) -> bool {
        self.prepared.is_theirs()
    }
}

/// Puts a name into a bounded map; another makes room, rather one that only its governing needs.
pub(super) fn remember<V: Named>(names: &mut Map<V>, name: &[u8], value: V) {
    if let Some(slot) = names.get_mut(name) {
        *slot = value;
        return;
    }
    if names.len() >= MAX_NAMES
        && let Some(other) = names.iter().find(|(_, value)| value.is_theirs()).or_else(|| names.iter().next())
        && let other = other.0.clone()
    {
        names.remove(&other);
    }
    names.insert(name.to_vec(), value);
}
