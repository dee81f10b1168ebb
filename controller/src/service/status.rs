//! The controller at a glance: status and the metrics page.

use tidegate_core::units::{Rate, Span};
use tidegate_tls::Watched as _;

use super::Service;
use crate::leasing::waits::Waits;
use crate::limits::MAX_GROUP_SERIES;
use crate::metrics::GroupSample;

/// Groups with claims counted apart that the status names. One false client may name all groups; without any name
/// nobody would look.
const MOST_WARNED: usize = 20;

/// The controller at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Leadership epoch.
    pub epoch: u64,
    /// Revision of the definitions.
    pub revision: u64,
    /// Time since start.
    pub uptime: Span,
    /// Time until all groups have recovered.
    pub recovery: Span,
    /// RU/s of the server.
    pub capacity: Option<Rate>,
    /// Groups defined.
    pub groups: usize,
    /// Bindings defined.
    pub bindings: usize,
    /// Nodes connected.
    pub clients: usize,
    /// Warnings for an operator.
    pub warnings: Vec<String>,
}

impl Service {
    /// The controller at a glance.
    pub fn status(&self) -> Status {
        let alarms = self.beside.alarms.get().map(|alarms| alarms.warnings()).unwrap_or_default();
        let state = self.lock();
        let recovery = state.leasing.recovery(self.clock.now());
        let mut warnings = Vec::new();
        if recovery.0 > 0 {
            warnings.push(format!(
                "recovering from an unclean stop for up to {recovery}: nodes keep what they prove to hold, or their \
                 fallback"
            ));
        }
        warnings.extend(state.leasing.lead().set_back().map(|epoch| {
            format!(
                "this store is a copy or was set back: nodes have seen a controller that it does not know; the epoch \
                 was raised to {epoch}, and definitions changed since the copy are lost"
            )
        }));
        warnings.extend(state.leasing.lead().twin(self.clock().now()).filter(|twin| !twin.leads).map(|twin| {
            format!(
                "another controller (instance {:016x}) runs on a copy of this store and began later: it falls silent \
                 when nodes tell it; stop it, or this one if the other shall lead",
                twin.instance
            )
        }));
        warnings.extend(
            state.leasing.fence().silence(self.clock().now()).map(|silence| format!("no grants: {silence}")),
        );
        let apart = state
            .accounts
            .apart()
            .filter_map(|(id, apart)| Some((state.definitions.catalog().name(id)?, apart)));
        warnings.extend(apart.take(MOST_WARNED).map(|(group, apart)| {
            format!(
                "group {group}: {} were reported beyond what any process can have used, and are counted apart; see \
                 `tidegate usage --group {group} --per-client` for the node that claims them",
                apart.ru()
            )
        }));
        let expiries = self.beside.tls.get().map(|tls| tls.expiries()).unwrap_or_default();
        warnings.extend(expiries.iter().filter_map(tidegate_listener::warning));
        let failures = self.metrics.commit_failures.get();
        if failures > 0 {
            warnings.push(format!(
                "{failures} store commits failed since start; check the disk and its free space, or in a cluster etcd"
            ));
        }
        warnings.extend(alarms);
        Status {
            epoch: state.leasing.lead().epoch(),
            revision: state.definitions.revision(),
            uptime: self.clock().uptime(),
            recovery,
            capacity: state.definitions.catalog().capacity(),
            groups: state.definitions.catalog().count(),
            bindings: state.definitions.bound(),
            clients: state.leasing.clients().connected(),
            warnings,
        }
    }

    /// The metrics page.
    pub fn metrics_page(&self) -> Result<String, std::fmt::Error> {
        self.metrics.watchers.set(i64::try_from(self.events().receiver_count()).unwrap_or(i64::MAX));
        for expiry in self.beside.tls.get().map(|tls| tls.expiries()).unwrap_or_default() {
            self.metrics.tls.expires(expiry.role, expiry.not_after);
        }
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.statements.set(count(self.statistics().len()));
        let samples: Vec<GroupSample> = {
            let (state, now) = (self.lock(), self.clock.now());
            self.metrics.watches.set(count(state.convictions.watches().len()));
            let views = state.leasing.leased().filter_map(|(id, view)| {
                let (committed, pool, demand) = (view.committed, view.pool, view.demand);
                let (name, limit) = (
                    state.definitions.catalog().name(id)?.to_string(),
                    state.definitions.catalog().effective_limit(id),
                );
                let waits = state.accounts.waits(id, now);
                let warm = Waits(&state.leasing).warmth(id, now).map(|view| view.rate);
                Some(GroupSample { name, committed, pool, demand, limit, warm, waits })
            });
            views.take(MAX_GROUP_SERIES).collect()
        };
        self.metrics.page(&samples)
    }
}
