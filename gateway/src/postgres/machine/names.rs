//! Which statement a name stands for, as the server has it.
//!
//! The protocol's `Parse` and SQL's `PREPARE` give names of one kind: each finds what the other has prepared. Either may
//! fail, most of all under a name that is in use: then the name stands for what it did before. Later messages of the
//! same unit are read as if it succeeded, since the server skips them otherwise. So it is with `DEALLOCATE`.
//!
//! What the server has done with names it says in the tags of its commands. Where the text was not read, as one of
//! several statements, a name that it gave stays unknown, and what it took away may have been any.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_sql::Naming;

use super::{Portal, Prepared};
use crate::govern::Known;
use crate::postgres::frame::looked_up;

/// Prepared statements and portals remembered per session, each; others are governed as of unknown kind.
const MAX_NAMES: usize = 4_096;
/// Most names that stand for an `EXECUTE` of another name, and that for another; the server gives up some time, too.
const MAX_HOPS: usize = 8;

/// Names and what they stand for.
pub(super) type Map<V> = HashMap<Vec<u8>, V, RandomState>;

/// The names of prepared statements.
#[derive(Debug)]
pub(super) struct Names<O> {
    known: Map<Prepared<O>>,
    /// Those that the server has not confirmed, in the order of their messages.
    given: VecDeque<Given<O>>,
}

/// What changes a name, or several such messages in a row about no name.
#[derive(Debug)]
struct Given<O> {
    unit: u64,
    by: By,
    times: u32,
    name: Vec<u8>,
    before: Option<Prepared<O>>,
}

/// How a name changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Parse,
    Close,
    Prepare,
    Deallocate,
    /// One of the gateway's own, of which the server hears nothing.
    Own,
}

impl<O> Default for Names<O> {
    fn default() -> Self {
        Self { known: HashMap::default(), given: VecDeque::new() }
    }
}

impl<O> Names<O> {
    pub(super) fn get(&self, name: &[u8]) -> Option<&Prepared<O>> {
        self.known.get(looked_up(name))
    }

    /// The statement that runs where this one does: another that it names, or itself.
    pub(super) fn behind<'k>(&'k self, known: &'k Known) -> &'k Known {
        known.naming.as_deref().and_then(|naming| self.executed(naming)).unwrap_or(known)
    }

    /// The statement that an `EXECUTE` names, if it is known.
    pub(super) fn executed(&self, naming: &Naming<Known>) -> Option<&Known> {
        let (mut found, mut next) = (None, Some(naming));
        for _ in 0..MAX_HOPS {
            let Some(Naming::Execute { name }) = next else { return found };
            let (Prepared::Theirs(known) | Prepared::Explained(known)) = self.get(name.as_bytes())? else {
                return None;
            };
            (found, next) = (Some(known), known.naming.as_deref());
        }
        None
    }

    /// A statement that the gateway answers itself is given a name in this unit. It has it, unless the server fails
    /// before it in the unit.
    pub(super) fn give_own(&mut self, unit: u64, name: &[u8], statement: Arc<O>) {
        let name = looked_up(name);
        if !self.given.is_empty() {
            self.await_word(unit, By::Own, name);
        }
        remember(&mut self.known, name, Prepared::Ours(statement));
    }

    /// A `Parse` is on its way to the server in this unit.
    pub(super) fn give(&mut self, unit: u64, name: &[u8], prepared: Prepared<O>) {
        let name = looked_up(name);
        self.await_word(unit, By::Parse, name);
        remember(&mut self.known, name, prepared);
    }

    /// A `Close` is, of a statement or, without a name, of a portal.
    pub(super) fn close(&mut self, unit: u64, name: Option<&[u8]>) {
        let name = name.map(looked_up);
        self.await_word(unit, By::Close, name.unwrap_or_default());
        name.map(|name| self.known.remove(name));
    }

    /// A statement that may give a name, or take one, is on its way to the server in this unit.
    pub(super) fn change(&mut self, unit: u64, naming: Option<&Naming<Known>>) {
        let Some(naming) = naming else { return };
        match naming {
            Naming::Prepare { name, statement: Some(known) } => {
                let name = looked_up(name.as_bytes());
                self.await_word(unit, By::Prepare, name);
                remember(&mut self.known, name, Prepared::Theirs(known.clone()));
            }
            Naming::Forget { name } => {
                let name = looked_up(name.as_bytes());
                self.await_word(unit, By::Deallocate, name);
                self.known.remove(name);
            }
            // The gateway forgets all of them when the server says so.
            Naming::Prepare { .. }
            | Naming::Execute { .. }
            | Naming::Immediate { .. }
            | Naming::ForgetAll => {}
        }
    }

    fn await_word(&mut self, unit: u64, by: By, name: &[u8]) {
        let same = self.given.back_mut().filter(|last| name.is_empty() && last.name.is_empty());
        match same.filter(|last| (last.unit, last.by) == (unit, by) && last.times < u32::MAX) {
            Some(last) => last.times += 1,
            None => {
                let before = self.known.get(name).filter(|_| !name.is_empty()).cloned();
                self.given.push_back(Given { unit, by, times: 1, name: name.to_vec(), before });
            }
        }
    }

    /// How many the server has not confirmed, those without a name in a row counted once.
    pub(super) fn unconfirmed(&self) -> usize {
        self.given.len()
    }

    /// The server has taken a `Parse`.
    pub(super) fn parsed(&mut self, unit: u64) {
        self.confirm(unit, By::Parse);
    }

    /// The server has taken a `Close`.
    pub(super) fn closed(&mut self, unit: u64) {
        self.confirm(unit, By::Close);
    }

    /// Whether it is what the server was to come to next.
    fn confirm(&mut self, unit: u64, by: By) -> bool {
        let Some(first) = self.given.front_mut().filter(|first| (first.unit, first.by) == (unit, by)) else {
            return false;
        };
        first.times -= 1;
        if first.times == 0 {
            self.given.pop_front();
        }
        self.confirm_own();
        true
    }

    /// No word of the server's is awaited before these.
    fn confirm_own(&mut self) {
        while self.given.pop_front_if(|first| first.by == By::Own).is_some() {}
    }

    /// The server has done a command of this tag in this unit.
    pub(super) fn done(&mut self, unit: u64, tag: &[u8]) {
        let forgets = match tag.split_last() {
            Some((0, b"PREPARE")) => {
                self.confirm(unit, By::Prepare);
                false
            }
            Some((0, b"DEALLOCATE")) => !self.confirm(unit, By::Deallocate),
            Some((0, tag)) => matches!(tag, b"DEALLOCATE ALL" | b"DISCARD ALL"),
            _ => false,
        };
        if forgets {
            self.forget_all();
        }
    }

    /// Any name that the server had may be gone. Names that it has not come to yet, and those it does not know of,
    /// stay.
    fn forget_all(&mut self) {
        let mut later: HashSet<&[u8], RandomState> = HashSet::default();
        for Given { name, before, .. } in &mut self.given {
            let first = later.insert(name.as_slice());
            if first && !before.as_ref().is_some_and(Prepared::is_ours) {
                *before = None;
            }
        }
        // The one without a name is not among those that are given up.
        self.known.retain(|name, prepared| {
            name.is_empty() || prepared.is_ours() || later.contains(name.as_slice())
        });
    }

    /// The server takes no more of the statements of this unit: it has failed, or is done.
    pub(super) fn take_back(&mut self, unit: u64) {
        let of_unit = self.given.iter().take_while(|given| given.unit == unit).count();
        let failed: Vec<Given<O>> = self.given.drain(..of_unit).collect();
        for Given { name, before, .. } in failed.into_iter().rev().filter(|given| !given.name.is_empty()) {
            match self.given.iter_mut().find(|later| later.name == name) {
                Some(later) => later.before = before,
                None => match before {
                    Some(before) => remember(&mut self.known, &name, before),
                    None => drop(self.known.remove(&name)),
                },
            }
        }
        self.confirm_own();
    }
}

/// What a name stands for.
pub(super) trait Named {
    /// Whether the server's answers to it are the client's.
    fn is_theirs(&self) -> bool;
}

impl<O> Prepared<O> {
    fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Theirs(bool);

    impl Named for Theirs {
        fn is_theirs(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn names_of_the_server_make_room_before_those_of_the_gateway() {
        let mut names = Map::<Theirs>::default();
        let ours: Vec<String> = (0..64).map(|number| format!("ours {number}")).collect();
        ours.iter().for_each(|name| remember(&mut names, name.as_bytes(), Theirs(false)));
        for number in 0..2 * MAX_NAMES {
            remember(&mut names, format!("theirs {number}").as_bytes(), Theirs(true));
        }
        assert_eq!(names.len(), MAX_NAMES);
        assert!(ours.iter().all(|name| names.contains_key(name.as_bytes())));
        // Where all are the gateway's, one of them goes.
        let mut names = Map::<Theirs>::default();
        for number in 0..MAX_NAMES + 9 {
            remember(&mut names, format!("ours {number}").as_bytes(), Theirs(false));
        }
        assert_eq!(names.len(), MAX_NAMES);
        assert!(names.contains_key(format!("ours {}", MAX_NAMES + 8).as_bytes()));
    }
}
