//! The rooms of the controller, composed: definitions, leases, consumption and statements, and the order of their locks.
//!
//! Every adapter call is one method of a room: [`Service::leasing`] and its like. `state` is behind a mutex that is never
//! held during a disk write. A change of definitions is planned under it, stored without it, and then put in force, under
//! a second mutex that keeps changes in order. Methods that change definitions or flush block on the disk; adapters run
//! them on blocking threads.
//!
//! Locks are taken in the order of the fields of [`Service`], and none while a later one is held.

mod backup;
mod load;
pub(crate) mod meta;
mod status;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::engine::EngineConfig;
use tidegate_core::units::{Rate, Span};
use tokio::sync::{broadcast, watch as flag};

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::statements::Statistics;
use crate::store::Store;

pub use crate::accounts::usage::UsageRow;
pub use crate::definitions::apply::{Applied, Done, Outcome};
pub use crate::definitions::binding::{Bound, Resolved};
pub use crate::definitions::deletion::Deleted;
pub use crate::definitions::events::{Event, EventKind, SnapshotView, Subscription, WatchError};
pub use crate::definitions::groups::{GroupReply, Page};
pub use crate::leasing::fence::Silence;
pub use crate::leasing::renewal::{
    Answer, EntryIn, EntryOut, RefusedReport, RenewIn, Renewed, ReportIn, Sent,
};
pub use crate::leasing::sessions::{Push, Session, SessionError};
pub use crate::leasing::succession::{FARTHEST_EPOCH, Seen};
pub use crate::leasing::view::{ClientRow, GroupRow, LeaseRow, LeaseTable};
pub use crate::statements::rules::{GroupRule, RulesView, Told};
pub use status::Status;

use crate::accounts::fold::Folding;
use crate::accounts::prune::Pruned;
use crate::accounts::{AccountCalls, Accounts};
use crate::definitions::{DefinitionCalls, Definitions};
use crate::leasing::{Leasing, LeasingCalls};
use crate::statements::{Convictions, StatementCalls};
use crate::store::records::{META_CLEAN, META_EPOCH, SavedLeases, number, put_json};
use crate::store::{StoreError, Table, Write};

/// Settings the service needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceConfig {
    /// RU/s of the whole server.
    pub capacity: Option<Rate>,
    /// Settings of the grant engine.
    pub engine: EngineConfig,
    /// Nodes are not spoken to when the store could not be written to for this long; `None`: that does not matter.
    pub fence: Option<Span>,
}

/// The controller without its listeners.
pub struct Service {
    backing_up: Mutex<()>,
    pruned: Mutex<Pruned>,
    flushing: Mutex<Folding>,
    changes: Mutex<()>,
    statistics: Mutex<Statistics>,
    state: Mutex<State>,
    store: Arc<dyn Store>,
    clock: Clock,
    events: broadcast::Sender<Arc<Event>>,
    /// Grows with every change of the rules against runaways or of the watch list.
    rules: flag::Sender<u64>,
    /// Counters of everything that happens here.
    pub metrics: Arc<Metrics>,
}

/// Everything that changes: what each room owns.
pub(crate) struct State {
    pub(crate) leasing: Leasing,
    pub(crate) accounts: Accounts,
    pub(crate) definitions: Definitions,
    pub(crate) convictions: Convictions,
}

impl Service {
    /// Nodes and their leases.
    pub fn leasing(&self) -> LeasingCalls<'_> {
        LeasingCalls::of(self)
    }

    /// What was consumed.
    pub fn accounts(&self) -> AccountCalls<'_> {
        AccountCalls::of(self)
    }

    /// Groups, bindings and cost tables.
    pub fn definitions(&self) -> DefinitionCalls<'_> {
        DefinitionCalls::of(self)
    }

    /// What statements cost, and which are convicted.
    pub fn statements(&self) -> StatementCalls<'_> {
        StatementCalls::of(self)
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Why no node is spoken to, if so.
    pub fn silence(&self) -> Option<Silence> {
        self.lock().leasing.fence().silence(self.clock.now())
    }

    /// Leadership epoch.
    pub fn epoch(&self) -> u64 {
        self.lock().leasing.lead().epoch()
    }

    /// Which start of which controller this is: random, and new with every start.
    pub fn instance(&self) -> u64 {
        self.lock().leasing.lead().instance()
    }

    /// Checks the invariants of the grant engine, group by group: for tests, whose builds may not assert them.
    ///
    /// # Errors
    /// Says which one does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.lock().leasing.check()
    }

    /// Commits and counts.
    pub(crate) fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let before = self.clock.now();
        let suspect = self.lock().leasing.fence().has_failed();
        let ours = if suspect { self.still_ours() } else { Ok(()) };
        let result = ours.and_then(|()| self.store.commit(batch));
        let seconds = crate::clock::duration(self.clock.now().since(before)).as_secs_f64();
        self.metrics.committed(seconds);
        self.lock().leasing.fence_mut().committed(before, result.is_ok());
        if let Err(error) = &result {
            self.metrics.commit_failures.inc();
            tracing::error!(%error, "a commit failed");
        }
        result
    }

    /// Whether the store, which was away, still has the epoch of this controller.
    fn still_ours(&self) -> Result<(), StoreError> {
        let rows = self.store.get(Table::Meta, &[META_EPOCH.to_vec()])?;
        let epoch = rows.into_iter().flatten().next().map(|value| number(&value)).transpose()?;
        let ours = self.epoch();
        match epoch {
            Some(epoch) if epoch == ours => Ok(()),
            newer => Err(StoreError::TakenOver { ours, theirs: newer.unwrap_or(0) }),
        }
    }

    /// Stores everything, leases included, and marks the store clean. Nothing may be granted any more.
    pub fn shut_down(&self) -> Result<(), StoreError> {
        let _alone = self.flushing();
        self.accounts().flush_alone()?;
        // Otherwise it ends as unclean as it began.
        let Some(snapshot) = self.lock().leasing.stop(self.clock.now()) else { return Ok(()) };
        let seal = self.store.seal()?;
        let leases = SavedLeases::from(&snapshot).sealed(seal, self.clock.unix_ms());
        self.commit(&[put_json(Table::Meta, META_CLEAN.to_vec(), &leases)?])
    }

    /// The state. A panic elsewhere does not stop the service: every method leaves the state consistent before it calls
    /// anything that could panic.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One change after the other.
    pub(crate) fn in_order(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One flush after the other, with what is being folded.
    pub(crate) fn flushing(&self) -> MutexGuard<'_, Folding> {
        self.flushing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the history is pruned.
    pub(crate) fn pruned(&self) -> MutexGuard<'_, Pruned> {
        self.pruned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What statements cost: behind a mutex of its own, so that sorting rows never holds up a renewal.
    pub(crate) fn statistics(&self) -> MutexGuard<'_, Statistics> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Where changes of definitions are told.
    pub(crate) fn events(&self) -> &broadcast::Sender<Arc<Event>> {
        &self.events
    }

    /// Where changes of the rules are told.
    pub(crate) fn rules_flag(&self) -> &flag::Sender<u64> {
        &self.rules
    }
}
