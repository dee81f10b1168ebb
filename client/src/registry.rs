//! The groups in use on this node, by name.
//!
//! A group stays until the client ends: its consumption is a running total that must not start over.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use foldhash::fast::RandomState;

use crate::cell::GroupCell;
use crate::group::GroupError;
use crate::names::GroupName;
use crate::shared::Shared;
use crate::sync::RwLock;

/// All groups of one client.
#[derive(Debug)]
pub(crate) struct Registry {
    groups: RwLock<Groups>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Groups {
    by_name: HashMap<GroupName, Arc<GroupCell>, RandomState>,
    next_id: u64,
}

impl Registry {
    /// Holds at most `limit` groups.
    pub(crate) fn new(limit: usize) -> Self {
        Self { groups: RwLock::default(), limit }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<GroupCell>> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).by_name.get(name).cloned()
    }

    /// The group of this name, made when it is not in use yet; its first renewal is due at once.
    pub(crate) fn get_or_make(&self, shared: &Arc<Shared>, name: &str) -> Result<Arc<GroupCell>, GroupError> {
        if let Some(cell) = self.get(name) {
            return Ok(cell);
        }
        let name = GroupName::new(name)?;
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = groups.by_name.get(&name) {
            return Ok(Arc::clone(cell));
        }
        if shared.is_closing() {
            return Err(GroupError::ShutDown { group: name });
        }
        if groups.by_name.len() >= self.limit {
            return Err(GroupError::TooMany { group: name, limit: self.limit });
        }
        let slot = shared.journal.as_ref().map(|journal| journal.claim(&name)).transpose()?;
        let id = groups.next_id;
        groups.next_id = id.saturating_add(1);
        let cell = GroupCell::new(id, name.clone(), Arc::clone(shared), slot);
        groups.by_name.insert(name, Arc::clone(&cell));
        drop(groups);
        cell.renew_now();
        Ok(cell)
    }

    /// Forgets a group that the controller does not know, unless someone uses it.
    pub(crate) fn forget_unknown(&self, cell: &Arc<GroupCell>) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        // Two: the map's and the caller's. Nobody can add one, as the map is locked.
        if Arc::strong_count(cell) == 2 && cell.consumption(false).operations == 0 {
            groups.by_name.remove(cell.name());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).by_name.len()
    }
}
