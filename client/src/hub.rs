//! What the tasks and the handles of one client share beyond its groups: bindings, reports, the state of the link.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tokio::sync::watch;

use crate::bindings::{Bindings, DEFAULT_GROUP};
use crate::cell::GroupCell;
use crate::group::GroupError;
use crate::groups::Registry;
use crate::names::Identity;
use crate::process::ProcessSampler;
use crate::reports::Reports;
use crate::shared::Shared;
use crate::sync::{Mutex, MutexGuard, RwLock};

/// One client, as its tasks see it.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) shared: Arc<Shared>,
    pub(crate) identity: Identity,
    pub(crate) incarnation: u64,
    pub(crate) registry: Registry,
    pub(crate) process: ProcessSampler,
    pub(crate) link: watch::Sender<Link>,
    /// Revision of the controller's definitions that the bindings reflect; 0 before the first.
    pub(crate) revision: watch::Sender<u64>,
    /// The start of the controller that sent this revision, without which it means nothing. Written by the watch alone.
    pub(crate) told_by: AtomicU64,
    /// Number of changes of the bindings, sent to those that wait for one; 0 before the watch has received any.
    pub(crate) turn: watch::Sender<u64>,
    /// The same number for handles that look at every operation.
    turn_now: AtomicU64,
    bindings: RwLock<Bindings>,
    reports: Mutex<Reports>,
}

/// The state of the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether a session is open now.
    pub connected: bool,
    /// The endpoint in use, or tried last.
    pub endpoint: String,
    /// Software and version of the controller.
    pub server: String,
    /// Newest leadership epoch seen.
    pub epoch: u64,
    /// Protocol version in use.
    pub protocol: u32,
    /// Why the last session or attempt ended; empty while connected.
    pub last_error: String,
}

impl Hub {
    pub(crate) fn new(
        shared: Arc<Shared>,
        identity: Identity,
        incarnation: u64,
        max_groups: usize,
        reports: Reports,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared,
            identity,
            incarnation,
            registry: Registry::new(max_groups),
            process: ProcessSampler::new(),
            link: watch::Sender::new(Link::default()),
            revision: watch::Sender::new(0),
            told_by: AtomicU64::new(0),
            turn: watch::Sender::new(0),
            turn_now: AtomicU64::new(0),
            bindings: RwLock::default(),
            reports: Mutex::new(reports),
        })
    }

    pub(crate) fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of bindings.
    pub(crate) fn bindings(&self) -> usize {
        self.bindings.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Changes the bindings and notifies those that follow them.
    pub(crate) fn change_bindings(&self, change: impl FnOnce(&mut Bindings)) {
        change(&mut self.bindings.write().unwrap_or_else(PoisonError::into_inner));
        self.turn.send_modify(|turn| *turn = turn.saturating_add(1));
        // Release: who reads the number finds the bindings.
        self.turn_now.fetch_max(*self.turn.borrow(), Ordering::Release);
    }

    /// Number of changes of the bindings.
    pub(crate) fn turn(&self) -> u64 {
        self.turn_now.load(Ordering::Acquire)
    }

    /// The group that pays for `user` of `tenant`.
    pub(crate) fn resolve(&self, tenant: &str, user: &str) -> Result<Arc<GroupCell>, GroupError> {
        let bindings = self.bindings.read().unwrap_or_else(PoisonError::into_inner);
        let Some(bound) = bindings.resolve(tenant, user) else {
            return self.registry.get_or_make(&self.shared, DEFAULT_GROUP);
        };
        if let Some(cell) = bound.cell.get() {
            return Ok(Arc::clone(cell));
        }
        let cell = self.registry.get_or_make(&self.shared, &bound.name)?;
        Ok(Arc::clone(bound.cell.get_or_init(|| cell)))
    }

    /// Completes when no permit is open in any group; only once the client is closing.
    pub(crate) async fn permits_settled(&self) {
        loop {
            let settled = self.shared.settled.notified();
            tokio::pin!(settled);
            // Listens before it looks, so that no permit slips through between.
            settled.as_mut().enable();
            if self.shared.awake.all().iter().all(|cell| cell.open() == 0) {
                return;
            }
            settled.await;
        }
    }

    /// Ends all admission: refuses waiters and gives up every lease.
    pub(crate) fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        for cell in self.shared.awake.all() {
            cell.release();
        }
    }
}
