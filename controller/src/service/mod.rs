//! The controller's one owner of state: definitions, bindings, leases, consumption and nodes.
//!
//! Every adapter call is one method here. `state` is behind a mutex that is never held during a disk write. A change of
//! definitions is planned under the lock, stored without it, and then put in force, under a second mutex that keeps
//! changes in order. Methods that change definitions or flush block on the disk; adapters run them on blocking threads.

mod apply;
mod backup;
mod bindings;
mod change;
mod costs;
mod deletion;
mod expiry;
mod fence;
mod flush;
mod fold;
mod grants;
mod groups;
mod lineage;
mod load;
mod longest;
mod meta;
mod prune;
mod rivals;
mod rules;
mod sessions;
mod statements;
mod succession;
mod usage;
mod watch;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::ledger::Ledger;
use tidegate_core::units::{Rate, Span, Time};
use tokio::sync::{broadcast, watch as flag};

use crate::audit::Audit;
use crate::bindings::Bindings;
use crate::catalog::Catalog;
use crate::clients::Clients;
use crate::clock::Clock;
use crate::cost_tables::CostTables;
use crate::history::History;
use crate::lag::Shed;
use crate::live::Live;
use crate::metrics::{Charges, Metrics};
use crate::proof::Prover;
use crate::runaways::Runaways;
use crate::statements::Statements;
use crate::store::Store;
use crate::watches::Watches;

pub use apply::{Applied, Done, Outcome};
pub use bindings::{Bound, Resolved};
pub use deletion::Deleted;
pub use fence::Silence;
pub use grants::{Answer, EntryIn, EntryOut, RefusedReport, RenewIn, Renewed, ReportIn, Sent};
pub use groups::{GroupReply, Page};
pub use rules::{GroupRule, RulesView, Told};
pub use sessions::{Push, Session, SessionError};
pub use succession::{FARTHEST_EPOCH, Seen};
pub use usage::{ClientRow, GroupRow, LeaseRow, LeaseTable, Status, UsageRow};
pub use watch::{Event, EventKind, SnapshotView, Subscription, WatchError};

pub(crate) use lineage::Lineage;

use fence::Fence;
use longest::Longest;
use rivals::Rivals;
use sessions::Slot;

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
    state: Mutex<State>,
    changes: Mutex<()>,
    flushing: Mutex<fold::Folding>,
    backing_up: Mutex<()>,
    pruned: Mutex<prune::Pruned>,
    store: Arc<dyn Store>,
    clock: Clock,
    prover: Prover,
    /// Which start of which controller this is.
    instance: u64,
    events: broadcast::Sender<Arc<Event>>,
    /// Grows with every change of the rules against runaways or of the watch list.
    rules: flag::Sender<u64>,
    statements: Mutex<Statements>,
    /// Counters of everything that happens here.
    pub metrics: Arc<Metrics>,
}

/// Everything that changes.
struct State {
    engine: Engine,
    ledger: Ledger,
    catalog: Catalog,
    bindings: Arc<Bindings>,
    costs: Arc<CostTables>,
    clients: Clients,
    sessions: BTreeMap<ClientId, Slot>,
    next_session: u64,
    history: History,
    /// Groups that have, or lately had, leases: reading never walks the idle ones.
    active: BTreeSet<GroupId>,
    /// When a claim that is counted apart was logged last.
    said_apart: Option<Time>,
    /// Groups that were ever charged.
    charged: BTreeSet<GroupId>,
    /// Of groups that were charged lately.
    live: BTreeMap<GroupId, (Live, Charges)>,
    live_clients: BTreeMap<(GroupId, ClientId), Live>,
    /// Newest renewal of each client whose reports are counted and not yet on disk, by stream: numbers of an older
    /// stream say nothing about a newer one.
    unstored: BTreeMap<ClientId, (u64, u64)>,
    watches: Watches,
    runaways: Runaways,
    audit: Audit,
    revision: u64,
    /// Leadership epoch. It is raised when a node has seen one that is as high, of a controller on a copy of the store.
    epoch: u64,
    lineage: Lineage,
    rivals: Rivals,
    /// No controller had used the store before this one.
    is_new: bool,
    /// The one before this stopped in order, and its leases were taken up.
    began_clean: bool,
    /// The epoch that was raised to because this store is a copy, or was set back.
    set_back: Option<u64>,
    /// Longest lease that may be out, whatever the definitions say now: in all, and of each group.
    longest_ttl: Span,
    longest: Longest,
    fence: Fence,
    shed: Shed,
}

impl Service {
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

    /// The state. A panic elsewhere does not stop the service: every method leaves the state consistent before it calls
    /// anything that could panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Time until all groups have recovered from an unclean stop; zero when none recovers.
    fn recovery(&self, clock: &Clock) -> Span {
        self.engine.recovering_until().since(clock.now())
    }
}
