//! What the tasks and the handles of one client share beyond its groups: bindings, reports, the state of the link.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tidegate_core::units::{Span, Time};
use tokio::sync::watch;

use crate::bindings::{Bindings, DEFAULT_GROUP};
use crate::cell::Notice;
use crate::group::GroupError;
use crate::groups::{Agenda, GroupCell, Registry};
use crate::names::Identity;
use crate::process::ProcessSampler;
use crate::reports::Reports;
use crate::shared::Shared;
use crate::sync::{Mutex, MutexGuard, RwLock};

/// Time between two warnings that a handle cannot follow its binding. With half of it a log has twice the lines, with
/// twice of it somebody who watches one waits twenty seconds to learn that it goes on.
const WARNED_EVERY: Span = Span::secs(10);

/// One client, as its tasks see it.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) shared: Arc<Shared>,
    pub(crate) agenda: Arc<Agenda>,
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
    /// When a handle that cannot follow its binding is warned of again.
    warns_at: AtomicU64,
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
        let agenda: Arc<Agenda> = Arc::default();
        Arc::new(Self {
            registry: Registry::new(Arc::clone(&shared), Arc::clone(&agenda), max_groups),
            shared,
            agenda,
            identity,
            incarnation,
            process: ProcessSampler::new(),
            link: watch::Sender::new(Link::default()),
            revision: watch::Sender::new(0),
            told_by: AtomicU64::new(0),
            turn: watch::Sender::new(0),
            turn_now: AtomicU64::new(0),
            bindings: RwLock::default(),
            warns_at: AtomicU64::new(0),
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
            return self.registry.get_or_make(DEFAULT_GROUP);
        };
        if let Some(cell) = bound.cell.get() {
            return Ok(Arc::clone(cell));
        }
        let cell = self.registry.get_or_make(&bound.name)?;
        Ok(Arc::clone(bound.cell.get_or_init(|| cell)))
    }

    /// Whether a handle that cannot follow its binding is warned of now: each of them comes by at every operation.
    pub(crate) fn warns(&self) -> bool {
        let now = self.shared.clock.now();
        let due = self.warns_at.load(Ordering::Relaxed);
        let next = now.after(WARNED_EVERY).0;
        due <= now.0
            && self.warns_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Compares the clock with the machine's raw one. When that shows more drift than the leases in hand allow for, all
    /// groups ask for new ones.
    pub(crate) fn compare_clocks(&self, clocks: (Time, Time)) {
        if self.shared.compare_clocks(clocks) {
            self.agenda.awake.all().iter().for_each(|cell| cell.heed(Notice::Renew));
        }
    }

    /// Completes when no permit is open in any group; only once the client is closing.
    pub(crate) async fn permits_settled(&self) {
        loop {
            let settled = self.agenda.settled.notified();
            tokio::pin!(settled);
            // Listens before it looks, so that no permit slips through between.
            settled.as_mut().enable();
            if self.agenda.awake.all().iter().all(|cell| cell.open() == 0) {
                return;
            }
            settled.await;
        }
    }

    /// Ends all admission: refuses waiters and gives up every lease.
    pub(crate) fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        for cell in self.agenda.awake.all() {
            cell.heed(Notice::Release);
        }
        // Those that wait for the first bindings look again.
        self.turn.send_modify(|_| {});
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use tidegate_core::exchange::{Grant, LeaseTerms};
    use tidegate_core::node::{Heard, NodeConfig};
    use tidegate_core::units::{Rate, Ru, Span};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slewed_clock_has_leases_asked_for_again_and_cut() {
        let config = NodeConfig { drift_ppm: 1_000, ..NodeConfig::default() };
        let node = Identity::new("node").unwrap();
        let hub = Hub::new(Shared::new(config, None), node, 1, 1, Reports::default());
        let cell = hub.registry.get_or_make("g").unwrap();
        let terms = LeaseTerms {
            rate: Rate::whole(10),
            cap: Ru::whole(10),
            ttl: Span::secs(10),
            renew_after: Span::secs(5),
            ..LeaseTerms::default()
        };
        let granted = |seq| {
            assert!(cell.if_awake(|state, now| state.ask(now, seq)).flatten().is_some(), "nothing is due");
            cell.grant(seq, &Grant::Leased(terms), Vec::new(), None);
            cell.node_state().expires_in.unwrap()
        };
        let true_clock = granted(1);
        assert_eq!(true_clock, Span::secs(10));
        hub.compare_clocks((Time(0), Time(0)));
        hub.compare_clocks((Time(1_000_500), Time(1_000_000)));
        assert_eq!(hub.shared.slewed_by(), None, "500 ppm are allowed");
        assert!(cell.if_awake(|state, now| state.ask(now, 2)).flatten().is_none(), "nothing is asked for it");
        // Slow by 2,000 ppm, and then by a twelfth: a lease of ten seconds would be used for almost eleven.
        hub.compare_clocks((Time(1_998_500), Time(2_000_000)));
        assert!(hub.shared.slewed_by().is_some_and(|ppm| (2_000..=2_200).contains(&ppm)));
        let little = granted(2);
        assert!((Span::millis(9_979)..Span::millis(9_990)).contains(&little), "{little}");
        hub.compare_clocks((Time(2_915_167), Time(3_000_000)));
        assert!(hub.shared.slewed_by().is_some_and(|ppm| (83_333..84_000).contains(&ppm)));
        assert_eq!(crate::stats::ClientStats::read(&hub).clock_slew_ppm, hub.shared.slewed_by());
        let cut = granted(3);
        assert!((Span::millis(9_160)..=Span::millis(9_167)).contains(&cut), "{cut}");
        let in_half_a_second = async || {
            let all = cell.node_state().available;
            cell.with(|state, now| state.try_acquire(now, all)).unwrap();
            tokio::time::advance(Duration::from_millis(500)).await;
            cell.node_state().available
        };
        let slow = in_half_a_second().await;
        assert!((Ru(4_579_000)..Ru(4_584_000)).contains(&slow), "{slow}");
        // Two minutes later no lease began in it.
        hub.compare_clocks((Time(63_915_167), Time(64_000_000)));
        hub.compare_clocks((Time(124_915_167), Time(125_000_000)));
        assert_eq!(hub.shared.slewed_by(), None);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(granted(4), Span::secs(10));
        assert_eq!(in_half_a_second().await, Ru(4_995_000), "the allowed 1,000 ppm less than 5 RU");
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_shows_the_proof_of_the_lease_that_it_has() {
        let node = Identity::new("node").unwrap();
        let hub = Hub::new(Shared::new(NodeConfig::default(), None), node, 1, 1, Reports::default());
        let cell = hub.registry.get_or_make("g").unwrap();
        let (rate, cap) = (Rate::whole(10), Ru::whole(10));
        let (ttl, renew_after) = (Span::secs(10), Span::secs(1));
        let terms = LeaseTerms { rate, cap, ttl, renew_after, ..LeaseTerms::default() };
        let heard = |seq, proof: &str| cell.grant(seq, &Grant::Leased(terms), proof.into(), None);
        let shown = async |seq| {
            cell.heed(Notice::Renew);
            tokio::time::advance(Duration::from_secs(2)).await;
            let (_, proof, _) = cell.if_awake(|state, now| state.ask(now, seq)).flatten().unwrap();
            String::from_utf8(proof).unwrap()
        };
        assert_eq!(shown(1).await, "", "there is none yet");
        assert_eq!(heard(1, "one"), Heard::Applied);
        assert_eq!(shown(2).await, "one");
        assert_eq!(shown(3).await, "one", "the second has no answer yet");
        assert_eq!(heard(2, "two"), Heard::Extended);
        assert_eq!(heard(1, "one again"), Heard::Ignored);
        assert_eq!(shown(4).await, "one", "a late answer lengthens the lease in hand and is no other");
        assert_eq!(heard(4, "four"), Heard::Applied);
        assert_eq!(heard(3, "three"), Heard::Ignored);
        assert_eq!(shown(5).await, "four");
    }
}
