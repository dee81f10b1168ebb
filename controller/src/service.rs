//! The rooms of the controller, composed: definitions, leases, consumption and statements; and the order of their
//! locks.
//!
//! Every adapter call is one method of a room: [`Service::leasing`] and its like. A mutex guards `state` and is never
//! held during a disk write. A change of definitions is planned under it, stored without it, and then put in force,
//! under a second mutex that keeps changes in order. Methods that change definitions or flush block on the disk;
//! adapters run them on blocking threads.
//!
//! Locks are taken in the order of the fields of [`Service`]; none is taken while a later one is held.

mod backup;
mod beside;
mod load;
pub(crate) mod meta;
mod status;
#[cfg(test)]
mod stored_tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::engine::EngineConfig;
use tidegate_core::units::{Rate, Span};
use tidegate_traces::Open;
use tokio::sync::{Semaphore, broadcast, watch as flag};

use crate::clock::Clock;
use crate::cluster::ClusterCalls;
use crate::metrics::Metrics;
use crate::spans;
use crate::statements::Statistics;
use crate::store::Store;

pub use crate::accounts::usage::UsageRow;
pub use crate::accounts::waited::WaitedIn;
pub use crate::definitions::apply::{Applied, Done, Outcome};
pub use crate::definitions::binding::{Bound, Resolved};
pub use crate::definitions::deletion::Deleted;
pub use crate::definitions::events::{Event, EventKind, Rebound, SnapshotView, Subscription, WatchError};
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

use beside::Beside;

use crate::accounts::flush::flush_last;
use crate::accounts::fold::Folding;
use crate::accounts::prune::Pruned;
use crate::accounts::{AccountCalls, Accounts, Upkeep};
use crate::definitions::{DefinitionCalls, Definitions};
use crate::identity::TokenCalls;
use crate::identity::tokens::Tokens;
use crate::leasing::{Leasing, LeasingCalls};
use crate::statements::{Convictions, StatementCalls};
use crate::store::records::{META_EPOCH, number};
use crate::store::{StoreError, Table, Write};

/// Settings of the service.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceConfig {
    /// RU/s of the whole server.
    pub capacity: Option<Rate>,
    /// Settings of the grant engine.
    pub engine: EngineConfig,
    /// Time without a successful write to the store after which the controller falls silent; `None`: it never does.
    pub fence: Option<Span>,
    /// The number of this start, by which controllers on copies of one store tell each other apart; `None`: random. A
    /// simulation that repeats a run sets it.
    pub instance: Option<u64>,
    /// How this controller came to its store.
    pub succession: Succession,
    /// A start builds the grant engine, stores that it has begun, and reads consumption side by side. Otherwise one comes
    /// after the other, so that how fast threads are decides nothing.
    pub side_by_side: bool,
}

/// How a controller comes to its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Succession {
    /// Its machine has the store to itself: a predecessor on another machine may still be granting.
    #[default]
    Alone,
    /// It took the store over within a cluster, whose beats keep its fence open.
    Cluster {
        /// Whether the predecessor is silent by now: it counted as dead, or resigned.
        silent: bool,
    },
}

/// The controller without its listeners.
pub struct Service {
    backing_up: Mutex<()>,
    pruned: Mutex<Pruned>,
    /// Room for replays of history.
    replays: Semaphore,
    flushing: Mutex<Folding>,
    changes: Mutex<()>,
    statistics: Mutex<Statistics>,
    state: Mutex<State>,
    store: Arc<dyn Store>,
    clock: Clock,
    events: broadcast::Sender<Arc<Event>>,
    /// Grows with every change of the rules against runaways or of the watch list.
    rules: flag::Sender<u64>,
    beside: Beside,
    /// Counters of all that happens here.
    pub metrics: Arc<Metrics>,
}

/// All changing state: what each room owns.
pub(crate) struct State {
    pub(crate) leasing: Leasing,
    pub(crate) accounts: Accounts,
    pub(crate) definitions: Definitions,
    pub(crate) convictions: Convictions,
    pub(crate) tokens: Tokens,
}

impl Service {
    /// Nodes and their leases.
    pub fn leasing(&self) -> LeasingCalls<'_> {
        LeasingCalls::of(self)
    }

    /// Consumption.
    pub fn accounts(&self) -> AccountCalls<'_> {
        AccountCalls::of(self)
    }

    /// Storing consumption, and removing what is too old.
    pub fn upkeep(&self) -> Upkeep<'_> {
        Upkeep::of(self)
    }

    /// Groups, bindings and cost tables.
    pub fn definitions(&self) -> DefinitionCalls<'_> {
        DefinitionCalls::of(self)
    }

    /// Statistics and rules of statements, and convictions.
    pub fn statements(&self) -> StatementCalls<'_> {
        StatementCalls::of(self)
    }

    /// Tokens of callers.
    pub fn tokens(&self) -> TokenCalls<'_> {
        TokenCalls::of(self)
    }

    /// The controllers of its cluster.
    pub fn cluster(&self) -> ClusterCalls<'_> {
        ClusterCalls::of(self)
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Why the controller is silent towards nodes, if it is.
    pub fn silence(&self) -> Option<Silence> {
        self.lock().leasing.fence().silence(self.clock.now())
    }

    /// Leadership epoch.
    pub fn epoch(&self) -> u64 {
        self.lock().leasing.lead().epoch()
    }

    /// The start of this controller: random, and new with every start.
    pub fn instance(&self) -> u64 {
        self.lock().leasing.lead().instance()
    }

    /// Checks the invariants of the grant engine, group by group: for tests, whose builds may not assert them.
    ///
    /// # Errors
    /// Names the one that does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.lock().leasing.check()
    }

    /// Commits a batch, and counts it.
    pub(crate) fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        committed(self, batch, |store| store.commit(batch))
    }

    /// Stores everything, leases included, and marks the store clean, in one batch, with which a log is left to the next
    /// owner. Nothing is granted from the moment at which these leases were read.
    pub fn shut_down(&self) -> Result<(), StoreError> {
        shut_down_from(self, || ())
    }

    /// The state. A panic elsewhere does not stop the service: every method leaves the state consistent before it calls
    /// anything that could panic.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one change run at a time.
    pub(crate) fn in_order(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one flush run at a time, with what is being folded.
    pub(crate) fn flushing(&self) -> MutexGuard<'_, Folding> {
        self.flushing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The beginning of the history.
    pub(crate) fn pruned(&self) -> MutexGuard<'_, Pruned> {
        self.pruned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for replays of history.
    pub(crate) fn replays(&self) -> &Semaphore {
        &self.replays
    }

    /// Statistics of statements: behind a mutex of their own, so that sorting rows never holds up a renewal.
    pub(crate) fn statistics(&self) -> MutexGuard<'_, Statistics> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// What is beside the service.
    pub(crate) fn beside(&self) -> &Beside {
        &self.beside
    }

    /// The sender of events about changed definitions.
    pub(crate) fn events(&self) -> &broadcast::Sender<Arc<Event>> {
        &self.events
    }

    /// The sender of changes of the rules.
    pub(crate) fn rules_flag(&self) -> &flag::Sender<u64> {
        &self.rules
    }
}

/// Stores everything as [`Service::shut_down`] does; `begin` is called once nothing holds it up any more, just before
/// leases are read.
pub(crate) fn shut_down_from(service: &Service, begin: impl FnOnce()) -> Result<(), StoreError> {
    let _alone = service.flushing();
    // Nor are definitions changed behind the leases.
    let _in_order = service.in_order();
    begin();
    flush_last(service)
}

/// Commits the last batch, and counts it.
pub(crate) fn commit_last(service: &Service, batch: &[Write]) -> Result<(), StoreError> {
    committed(service, batch, |store| store.commit_last(batch))
}

fn committed(
    service: &Service,
    batch: &[Write],
    commit: impl FnOnce(&dyn Store) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let (span, before) = (spans::commit(service), service.clock.now());
    let suspect = service.lock().leasing.fence().has_failed();
    let ours = if suspect { still_ours(service) } else { Ok(()) };
    let result = ours.and_then(|()| commit(&*service.store));
    let seconds = crate::clock::duration(service.clock.now().since(before)).as_secs_f64();
    service.metrics.committed(seconds, span.as_ref().map(Open::trace));
    service.lock().leasing.fence_mut().committed(before, result.is_ok());
    match &result {
        Ok(()) => {}
        // What is done behind the last commit comes to nothing, as it should.
        Err(error @ StoreError::Left) => tracing::debug!(%error, "nothing is stored any more"),
        Err(error) => {
            service.metrics.commit_failures.inc();
            tracing::error!(%error, "a commit failed");
        }
    }
    if let Some(span) = span {
        spans::committed(span, batch, service.clock.now().since(before), result.as_ref().err());
    }
    result
}

/// Checks that the store, which was away, still has the epoch of this controller.
fn still_ours(service: &Service) -> Result<(), StoreError> {
    let rows = service.store.get(Table::Meta, &[META_EPOCH.to_vec()])?;
    let epoch = rows.into_iter().flatten().next().map(|value| number(&value)).transpose()?;
    let ours = service.epoch();
    match epoch {
        Some(epoch) if epoch == ours => Ok(()),
        newer => Err(StoreError::TakenOver { ours, theirs: newer.unwrap_or(0) }),
    }
}
