//! The groups directly below one group. Most groups have none, so that an empty set is one word.

use std::collections::BTreeSet;

use crate::group::GroupId;

/// Child groups, in order.
#[derive(Clone, Debug, Default, Hash)]
#[expect(clippy::box_collection, reason = "one word instead of three, in every group of a million")]
pub(crate) struct Children(Option<Box<BTreeSet<GroupId>>>);

impl Children {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn insert(&mut self, id: GroupId) {
        self.0.get_or_insert_default().insert(id);
    }

    pub(crate) fn remove(&mut self, id: GroupId) {
        if let Some(ids) = &mut self.0 {
            ids.remove(&id);
        }
        self.0.take_if(|ids| ids.is_empty());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &GroupId> {
        self.0.iter().flat_map(|ids| ids.iter())
    }
}
