//! Events for nodes about bindings, cost tables and changed groups.
//!
//! A watcher gets a snapshot unless it is current, then every change in order. Changes wait in one ring for all
//! watchers, so memory does not grow with their number; a watcher that falls out of the ring is dropped and resyncs.

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
    /// The revision after the change.
    pub revision: u64,
    /// The parts of the change, in order.
    pub kinds: Vec<EventKind>,
}

/// One part of a change.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// A binding changed.
    Bound(Rebound),
    /// Cost tables changed.
    Costs(Arc<CostTables>),
    /// Definitions of these groups changed.
    Groups(Vec<GroupName>),
    /// So much changed that a snapshot is shorter.
    Resync,
}

/// A principal that is bound to another group than before, of which a change has one each at most.
#[derive(Clone, Debug)]
pub struct Rebound {
    /// Who.
    pub principal: Principal,
    /// The group before, if any.
    pub before: Option<GroupName>,
    /// The group now, if any.
    pub after: Option<GroupName>,
    /// The groups of [`Bindings::below`], before the change.
    pub below: [Option<GroupName>; 2],
    /// Whether users may have bindings of their own that come before it.
    pub has_users: bool,
}

impl Rebound {
    /// What a change from these bindings means for a principal.
    pub(crate) fn from(bindings: &Bindings, principal: &Principal, after: Option<&GroupName>) -> Self {
        Self {
            principal: principal.clone(),
            before: bindings.get(principal).cloned(),
            after: after.cloned(),
            below: bindings.below(principal).map(|group| group.cloned()),
            has_users: match principal {
                Principal::Tenant(tenant) => bindings.has_users(tenant),
                Principal::User(_) => true,
                Principal::UserInTenant { .. } => false,
            },
        }
    }
}

/// The present state, for watchers.
#[derive(Clone, Debug)]
pub struct SnapshotView {
    /// All bindings.
    pub bindings: Arc<Bindings>,
    /// The cost tables.
    pub costs: Arc<CostTables>,
}

/// A watcher's view: its start, and the changes after it.
pub struct Subscription {
    /// The start of the controller that sends; a revision means nothing without it.
    pub instance: u64,
    /// Revision at which the changes begin.
    pub revision: u64,
    /// Whether the watcher needs no snapshot.
    pub is_current: bool,
    /// Changes after `revision`.
    pub events: broadcast::Receiver<Arc<Event>>,
}

/// Why a watcher is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// There are too many.
    #[error("the limit of {MAX_WATCHERS} watch streams is reached; close some")]
    TooMany,
}

impl DefinitionCalls<'_> {
    /// Starts watching from the revision that a node has and the controller's start that sent it; 0 for none.
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

    /// The same watcher's view from now on; it needs a snapshot.
    pub(crate) fn begin_again(&self, subscription: &mut Subscription) {
        let state = self.service.lock();
        subscription.events = self.service.events().subscribe();
        (subscription.revision, subscription.is_current) = (state.definitions.revision, false);
    }

    /// The present state, for watchers. While the result is alive, a change copies all bindings.
    pub fn told(&self) -> SnapshotView {
        let state = self.service.lock();
        SnapshotView {
            bindings: Arc::clone(&state.definitions.bindings),
            costs: Arc::clone(&state.definitions.costs),
        }
    }
}
