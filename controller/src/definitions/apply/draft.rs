//! The definitions as a change would leave them: the catalog itself, with edits that are taken back, and the
//! differences in bindings, watches and cost tables.
//!
//! With a million groups a copy of the catalog would take a gigabyte. So the draft changes the catalog in place, under
//! the lock, and takes everything back when it is dropped, for whatever reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_core::group::GroupId;

use crate::definitions::audit::Change;
use crate::definitions::bindings::Principal;
use crate::definitions::cost_tables::CostTables;
use crate::definitions::definition::Definition;
use crate::definitions::deletion::Users;
use crate::name::GroupName;
use crate::service::State;
use crate::statements::watches::Watch;

/// Definitions as a change would leave them.
pub(crate) struct Draft<'s> {
    pub(crate) state: &'s mut State,
    /// What each step in the catalog replaced, in order.
    undo: Vec<(GroupId, Option<Definition>)>,
    next_group: u32,
    /// Groups that the change deletes, which use nothing behind it.
    pub(crate) going: BTreeSet<GroupId>,
    /// By principal: its group, or no binding.
    pub(crate) bindings: BTreeMap<Principal, Option<GroupName>>,
    /// By id: the watch, or `None`.
    pub(crate) watches: BTreeMap<u64, Option<Watch>>,
    pub(crate) costs: Option<Arc<CostTables>>,
    pub(crate) next_watch: u64,
    /// Groups and watches that are altered because another group is deleted, for the log.
    pub(crate) altered: Vec<Change>,
}

impl<'s> Draft<'s> {
    pub(crate) fn new(state: &'s mut State) -> Self {
        Self {
            undo: Vec::new(),
            next_group: state.definitions.catalog.upcoming(),
            going: BTreeSet::new(),
            bindings: BTreeMap::new(),
            watches: BTreeMap::new(),
            costs: None,
            next_watch: state.convictions.watches().next_id(),
            altered: Vec::new(),
            state,
        }
    }

    /// Puts a group into the catalog.
    pub(crate) fn put(&mut self, id: GroupId, definition: Definition) {
        self.undo.push((id, self.state.definitions.catalog.get(id).cloned()));
        self.state.definitions.catalog.put(id, definition);
    }

    /// Resolves the parent of every group that was put, since the parent may have come after it.
    pub(crate) fn settle(&mut self) {
        for id in self.touched().into_keys() {
            if let Some(definition) = self.state.definitions.catalog.get(id).cloned() {
                self.state.definitions.catalog.put(id, definition);
            }
        }
    }

    /// Removes a group from the catalog.
    pub(crate) fn remove(&mut self, id: GroupId) {
        self.undo.push((id, self.state.definitions.catalog.get(id).cloned()));
        self.state.definitions.catalog.remove(id);
    }

    /// Takes back all edits of the catalog.
    pub(crate) fn rewind(&mut self) {
        while let Some((id, before)) = self.undo.pop() {
            match before {
                Some(definition) => self.state.definitions.catalog.put(id, definition),
                None => self.state.definitions.catalog.remove(id),
            }
        }
        let catalog = &mut self.state.definitions.catalog;
        catalog.begin(catalog.capacity(), self.next_group);
    }

    /// Groups that were put or removed, with their definitions before.
    pub(crate) fn touched(&self) -> BTreeMap<GroupId, Option<Definition>> {
        let mut touched = BTreeMap::new();
        for (id, before) in &self.undo {
            touched.entry(*id).or_insert_with(|| before.clone());
        }
        touched
    }

    /// The group that a principal is bound to.
    pub(crate) fn bound(&self, principal: &Principal) -> Option<&GroupName> {
        match self.bindings.get(principal) {
            Some(group) => group.as_ref(),
            None => self.state.definitions.bindings.get(principal),
        }
    }

    /// Number of bindings.
    pub(crate) fn binding_count(&self) -> usize {
        let was = |principal: &Principal| self.state.definitions.bindings.get(principal).is_some();
        let added = self.bindings.iter().filter(|(principal, group)| group.is_some() && !was(principal));
        let removed = self.bindings.iter().filter(|(principal, group)| group.is_none() && was(principal));
        (self.state.definitions.bindings.len() + added.count()).saturating_sub(removed.count())
    }

    /// All watches.
    pub(crate) fn all_watches(&self) -> impl Iterator<Item = &Watch> {
        let live =
            self.state.convictions.watches().iter().filter(|watch| !self.watches.contains_key(&watch.id));
        live.map(Arc::as_ref).chain(self.watches.values().flatten())
    }

    /// The watch with this id.
    pub(crate) fn watch(&self, id: u64) -> Option<&Watch> {
        match self.watches.get(&id) {
            Some(watch) => watch.as_ref(),
            None => self.state.convictions.watches().get(id).map(Arc::as_ref),
        }
    }

    /// The watch of the same statement. No two steps concern the same one.
    pub(crate) fn same_watch(&self, other: &Watch) -> Option<&Watch> {
        let live = self.state.convictions.watches().find(&other.group, other.matching, &other.digest);
        live.filter(|watch| !self.watches.contains_key(&watch.id)).map(Arc::as_ref)
    }

    /// The users of a group that stay.
    pub(crate) fn users(&self, id: GroupId, name: &GroupName) -> Users {
        let catalog = &self.state.definitions.catalog;
        let live =
            self.state.definitions.bindings.of_group(name).filter(|user| !self.bindings.contains_key(*user));
        let bound = self.bindings.iter().filter(|(_, group)| group.as_ref() == Some(name));
        let stays = |user: &GroupId| !self.going.contains(user);
        let switches = |watch: &&Watch| {
            watch.switch_group() == Some(name) && catalog.id(&watch.group).is_some_and(|of| stays(&of))
        };
        Users {
            principals: live.chain(bound.map(|(principal, _)| principal)).cloned().collect(),
            children: catalog.children(id).collect(),
            switching: catalog.limited().switching_to(name).filter(stays).collect(),
            demoting: catalog.demoting.to(name).filter(stays).collect(),
            watches: self.all_watches().filter(switches).cloned().map(Arc::new).collect(),
        }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.rewind();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::testing::{Stage, actor};

    /// Near the limit a change that moves principals must not be refused as one that adds them.
    #[test]
    fn a_draft_has_as_many_bindings_as_there_will_be() {
        let stage = Stage::new();
        let service = &stage.service;
        for user in ["ann", "bob", "eve"] {
            service.definitions().bind(&actor(), "acme", user, "default").unwrap();
        }
        let mut state = service.lock();
        let mut draft = Draft::new(&mut state);
        let group = GroupName::parse("default").unwrap();
        for (user, bound, count) in [
            ("ann", true, 3),
            ("new", true, 4),
            ("bob", false, 3),
            ("none", false, 3),
            ("bob", true, 4),
            ("new", false, 3),
            ("eve", false, 2),
        ] {
            let principal = Principal::parse("acme", user).unwrap();
            draft.bindings.insert(principal, bound.then(|| group.clone()));
            assert_eq!(draft.binding_count(), count, "{user} {bound}");
        }
    }
}
