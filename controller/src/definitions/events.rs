//! Telling nodes about bindings, cost tables and changed groups.
//!
//! A watcher gets a snapshot unless it is current, then every change in order. Changes wait in one ring for all
//! watchers, so memory does not grow with their number; who falls out of the ring is dropped and resyncs.

use std::sync::Arc;

use tokio::sync::broadcast;

use crate::definitions::DefinitionCalls;
use crate::definitions::bindings::{Bindings, Principal};
use crate::definitions::cost_tables::CostTables;
use crate::limits::MAX_WATCHERS;
use crate::name::GroupName;

/// One change of definitions.
#[derive(Clone, Debug)]
pub struct Event {
    /// The revision after it.
    pub revision: u64,
    /// What changed, in order.
    pub kinds: Vec<EventKind>,
}

/// One part of a change.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// A principal is bound to this group now, or to none.
    Bound(Principal, Option<GroupName>),
    /// Cost tables changed.
    Costs(Arc<CostTables>),
    /// Definitions of these groups changed.
    Groups(Vec<GroupName>),
    /// So much changed that a snapshot is shorter.
    Resync,
}

/// What watchers are told, as it is now.
#[derive(Clone, Debug)]
pub struct SnapshotView {
    /// All bindings.
    pub bindings: Arc<Bindings>,
    /// The cost tables.
    pub costs: Arc<CostTables>,
}

/// A watcher's view: where it starts, and what comes after.
pub struct Subscription {
    /// Which start of which controller tells; a revision says nothing without it.
    pub instance: u64,
    /// Revision from which the changes lead on.
    pub revision: u64,
    /// The watcher needs no snapshot.
    pub is_current: bool,
    /// Changes after `revision`.
    pub events: broadcast::Receiver<Arc<Event>>,
}

/// Why a watcher is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// Too many.
    #[error("the limit of {MAX_WATCHERS} watch streams is reached; close some")]
    TooMany,
}

impl DefinitionCalls<'_> {
    /// Starts watching from the revision a node has, and the start that told it so; 0 for none.
    pub fn subscribe(&self, have_instance: u64, have_revision: u64) -> Result<Subscription, WatchError> {
        let state = self.service.lock();
        if self.service.events().receiver_count() >= MAX_WATCHERS {
            return Err(WatchError::TooMany);
        }
        // Under the lock, so that no change falls between the revision and the stream.
        let events = self.service.events().subscribe();
        let is_current = state.leasing.lead().knows(have_instance, have_revision, state.definitions.revision);
        Ok(Subscription {
            instance: state.leasing.lead().instance(),
            revision: state.definitions.revision,
            is_current,
            events,
        })
    }

    /// What watchers are told, as it is now. While it is held, a change copies all bindings.
    pub fn told(&self) -> SnapshotView {
        let state = self.service.lock();
        SnapshotView {
            bindings: Arc::clone(&state.definitions.bindings),
            costs: Arc::clone(&state.definitions.costs),
        }
    }
}
