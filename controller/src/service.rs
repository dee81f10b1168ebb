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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::{Rate, Span};
use tokio::sync::{broadcast, watch as flag};

use crate::clock::Clock;
use crate::definitions::audit::Audit;
use crate::definitions::bindings::Bindings;
use crate::definitions::catalog::Catalog;
use crate::definitions::cost_tables::CostTables;
use crate::leasing::clients::Clients;
use crate::leasing::lag::Shed;
use crate::leasing::proof::Prover;
use crate::metrics::Metrics;
use crate::statements::Statements;
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
use crate::definitions::DefinitionCalls;
use crate::leasing::LeasingCalls;
use crate::leasing::fence::Fence;
use crate::leasing::lineage::Lineage;
use crate::leasing::longest::Longest;
use crate::leasing::rivals::Rivals;
use crate::leasing::sessions::Slot;
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
    statistics: Mutex<Statements>,
    state: Mutex<State>,
    store: Arc<dyn Store>,
    clock: Clock,
    prover: Prover,
    /// Which start of which controller this is.
    instance: u64,
    events: broadcast::Sender<Arc<Event>>,
    /// Grows with every change of the rules against runaways or of the watch list.
    rules: flag::Sender<u64>,
    /// Counters of everything that happens here.
    pub metrics: Arc<Metrics>,
}

/// Everything that changes.
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) accounts: Accounts,
    pub(crate) convictions: Convictions,
    pub(crate) catalog: Catalog,
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) costs: Arc<CostTables>,
    pub(crate) clients: Clients,
    pub(crate) sessions: BTreeMap<ClientId, Slot>,
    pub(crate) next_session: u64,
    /// Groups that have, or lately had, leases: reading never walks the idle ones.
    pub(crate) active: BTreeSet<GroupId>,
    /// Newest renewal of each client whose reports are counted and not yet on disk, by stream: numbers of an older
    /// stream say nothing about a newer one.
    pub(crate) unstored: BTreeMap<ClientId, (u64, u64)>,
    pub(crate) audit: Audit,
    pub(crate) revision: u64,
    /// Leadership epoch. It is raised when a node has seen one that is as high, of a controller on a copy of the store.
    pub(crate) epoch: u64,
    pub(crate) lineage: Lineage,
    pub(crate) rivals: Rivals,
    /// No controller had used the store before this one.
    pub(crate) is_new: bool,
    /// The one before this stopped in order, and its leases were taken up.
    pub(crate) began_clean: bool,
    /// The epoch that was raised to because this store is a copy, or was set back.
    pub(crate) set_back: Option<u64>,
    /// Longest lease that may be out, whatever the definitions say now: in all, and of each group.
    pub(crate) longest_ttl: Span,
    pub(crate) longest: Longest,
    pub(crate) fence: Fence,
    pub(crate) shed: Shed,
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
        self.lock().fence.silence(self.clock.now())
    }

    /// Leadership epoch.
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Which start of which controller this is: random, and new with every start.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Checks the invariants of the grant engine, group by group: for tests, whose builds may not assert them.
    ///
    /// # Errors
    /// Says which one does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.lock().engine.check()
    }

    /// Commits and counts.
    pub(crate) fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let before = self.clock.now();
        let suspect = self.lock().fence.has_failed();
        let ours = if suspect { self.still_ours() } else { Ok(()) };
        let result = ours.and_then(|()| self.store.commit(batch));
        let seconds = crate::clock::duration(self.clock.now().since(before)).as_secs_f64();
        self.metrics.committed(seconds);
        match &result {
            Ok(()) => self.lock().fence.confirm(before),
            Err(error) => {
                self.lock().fence.fail();
                self.metrics.commit_failures.inc();
                tracing::error!(%error, "a commit failed");
            }
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
        let snapshot = {
            let mut state = self.lock();
            state.sessions.clear();
            let now = self.clock.now();
            if state.fence.silence(now).is_some() {
                // Unclean as it began: a controller before this one may still be granting.
                return Ok(());
            }
            state.engine.snapshot(now)
        };
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
    pub(crate) fn statistics(&self) -> MutexGuard<'_, Statements> {
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

    /// Signs and checks what nodes keep.
    pub(crate) fn prover(&self) -> &Prover {
        &self.prover
    }
}

impl State {
    /// Time until all groups have recovered from an unclean stop; zero when none recovers.
    pub(crate) fn recovery(&self, clock: &Clock) -> Span {
        self.engine.recovering_until().since(clock.now())
    }
}
