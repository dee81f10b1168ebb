//! An index of the catalog: groups that gateways need for a rule against runaways or a longest wait, and the groups
//! they switch to, so that neither sending the rules nor deleting a group walks all groups.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tidegate_core::group::GroupId;

use crate::definitions::definition::Definition;
use crate::name::GroupName;

/// The index.
#[derive(Debug, Default, PartialEq)]
pub struct Limited {
    groups: BTreeSet<GroupId>,
    /// By the group that is the target.
    switching: BTreeMap<GroupName, BTreeSet<GroupId>>,
}

impl Limited {
    /// Adds a definition.
    pub fn insert(&mut self, id: GroupId, definition: &Definition) {
        if definition.rules_gateways() {
            self.groups.insert(id);
        }
        if let Some(target) = definition.switch_group() {
            self.switching.entry(target.clone()).or_default().insert(id);
        }
    }

    /// Removes a definition.
    pub fn remove(&mut self, id: GroupId, definition: &Definition) {
        self.groups.remove(&id);
        let Some(target) = definition.switch_group() else { return };
        if let Some(sources) = self.switching.get_mut(target) {
            sources.remove(&id);
            if sources.is_empty() {
                self.switching.remove(target);
            }
        }
    }

    /// Groups that gateways need, after one or all, in order of their ids.
    pub fn groups_after(&self, last: Option<GroupId>) -> impl Iterator<Item = GroupId> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.groups.range((from, Bound::Unbounded)).copied()
    }

    /// Groups that switch their runaways to this one.
    pub fn switching_to(&self, target: &GroupName) -> impl Iterator<Item = GroupId> {
        self.switching.get(target).into_iter().flatten().copied()
    }
}
