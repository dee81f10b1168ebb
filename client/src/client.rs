//! The client of one node: handles for groups, statistics, and the graceful end.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::group::Fallback;
use tidegate_core::node::LeaseState;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::builder::{ClientBuilder, ConnectError};
use crate::clock::{duration, span, within};
use crate::group::{Group, GroupError};
use crate::groups::GroupCell;
use crate::hub::{Hub, Link};
use crate::reports::Unconfirmed;
use crate::resolved::Resolved;
use crate::session::Farewell;
use crate::shared::Counts;
use crate::stats::ClientStats;

/// A node's connection to the controller. Cheap to clone; when the last clone is dropped, the leases end as if the
/// process had died, so call [`Client::shutdown`] first.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    hub: Arc<Hub>,
    orders: mpsc::Sender<Farewell>,
    tasks: [JoinHandle<()>; 3],
    patience: Duration,
}

/// How a shutdown went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "what the controller did not confirm is lost unless there is a journal"]
pub struct Shutdown {
    /// Consumption that the controller did not confirm to have on disk. With a journal it is reported at the next
    /// start; without one it may be lost.
    pub unconfirmed: Vec<Unconfirmed>,
    /// Permits that were not settled in time; what they cost is not in any report.
    pub open_permits: usize,
}

impl Client {
    pub(crate) fn new(
        hub: Arc<Hub>,
        orders: mpsc::Sender<Farewell>,
        tasks: [JoinHandle<()>; 3],
        patience: Duration,
    ) -> Self {
        Self { inner: Arc::new(Inner { hub, orders, tasks, patience }) }
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.inner.hub
    }

    /// Options of a client.
    pub fn builder(
        endpoints: impl IntoIterator<Item = impl Into<String>>,
        identity: impl Into<String>,
    ) -> ClientBuilder {
        ClientBuilder::new(endpoints, identity)
    }

    /// Connects the node `identity` to the first of `endpoints` that answers.
    pub async fn connect(
        endpoints: impl IntoIterator<Item = impl Into<String>>,
        identity: impl Into<String>,
    ) -> Result<Self, ConnectError> {
        ClientBuilder::new(endpoints, identity).connect().await
    }

    /// The group `name`. Asks the controller unless the group is in use already; with a fallback until one is there,
    /// waits a second at most.
    pub async fn group(&self, name: &str) -> Result<Group, GroupError> {
        let cell = self.hub().registry.get_or_make(name)?;
        self.answered(cell).await
    }

    /// As [`Client::group`] for one operation, without waiting for anything: a group that is new to this node has no
    /// lease yet, so acquire with a timeout.
    pub fn group_now(&self, name: &str) -> Result<Group, GroupError> {
        self.hub().registry.get_or_make(name).map(|cell| Group { cell })
    }

    /// The group that pays for `user` of `tenant`, now and after every re-binding: user in tenant, else user, else
    /// tenant, else the group `default`. With a fallback until the controller is there it is `default` until then, after
    /// a second.
    pub async fn resolve(&self, tenant: &str, user: &str) -> Result<Resolved, GroupError> {
        let hub = self.hub();
        let mut turns = hub.turn.subscribe();
        let (waited, alone) = self.patience(self.hub().shared.config.fallback);
        // Charging the default group before the bindings are known would be wrong, unless work is to go on alone.
        let known = turns.wait_for(|turn| *turn > 0 || hub.shared.is_closing());
        if !matches!(within(waited, known).await, Some(Ok(_))) && !alone {
            return Err(GroupError::NoBindings { waited, last_error: self.last_error() });
        }
        let turn = hub.turn();
        let cell = hub.resolve(tenant, user)?;
        if cell.name().is_not_given() {
            return Err(GroupError::NotGiven { tenant: tenant.to_owned(), user: user.to_owned() });
        }
        let group = self.answered(cell).await?;
        Ok(Resolved::new(Arc::clone(hub), tenant, user, turn, group))
    }

    /// As [`Client::resolve`] for one operation, without waiting for anything: before the bindings are known the
    /// group is `default`, and a group that is new to this node has no lease yet, so acquire with a timeout.
    pub fn resolve_now(&self, tenant: &str, user: &str) -> Result<Group, GroupError> {
        self.hub().resolve(tenant, user).map(|cell| Group { cell })
    }

    /// A handle once the controller has said whether the group exists.
    async fn answered(&self, cell: Arc<GroupCell>) -> Result<Group, GroupError> {
        if cell.last_word.is_known() {
            return Ok(Group { cell });
        }
        // Apart, as callers of a group in use would carry its state about.
        Box::pin(self.first_answer(cell)).await
    }

    async fn first_answer(&self, cell: Arc<GroupCell>) -> Result<Group, GroupError> {
        let (waited, alone) = self.patience(self.hub().shared.fallback_of(cell.name()));
        if let Some(answer) = cell.if_awake(|state, now| state.ask_first(now)).flatten()
            && !matches!(within(waited, answer).await, Some(Ok(())))
            && !alone
        {
            let group = cell.name().clone();
            if self.hub().shared.is_closing() {
                return Err(GroupError::ShutDown { group });
            }
            return Err(GroupError::Unavailable { group, waited, last_error: self.last_error() });
        }
        if cell.node_state().lease == LeaseState::Unknown {
            let group = cell.name().clone();
            self.hub().registry.forget_unknown(&cell);
            return Err(GroupError::UnknownGroup { group });
        }
        Ok(Group { cell })
    }

    /// How long the controller is waited for, and whether work goes on without it then: with a fallback no longer than
    /// until that applies.
    fn patience(&self, fallback: Fallback) -> (Duration, bool) {
        let config = &self.hub().shared.config;
        match fallback {
            Fallback::Stop => (self.inner.patience, false),
            _ => (self.inner.patience.min(duration(config.reply_timeout)), true),
        }
    }

    fn last_error(&self) -> String {
        self.hub().link.borrow().last_error.clone()
    }

    /// Whether a controller is there.
    pub fn is_connected(&self) -> bool {
        self.hub().link.borrow().connected
    }

    /// The session, as in [`Client::stats`], at the cost of a lock: to be asked often.
    pub fn link(&self) -> Link {
        self.hub().link.borrow().clone()
    }

    /// Events since the client started, as in [`Client::stats`], at the cost of reading them: to be asked often.
    pub fn counts(&self) -> Counts {
        self.hub().shared.counters.read()
    }

    /// A look at the client. It has every group that is awake count what threads hold: for metrics, not for a loop.
    pub fn stats(&self) -> ClientStats {
        ClientStats::read(self.hub())
    }

    /// Ends gracefully: admits nothing more, refuses waiters, gives leases back, waits for permits in flight and for
    /// the controller to have every report on disk. Takes at most the builder's patience.
    pub async fn shutdown(&self) -> Shutdown {
        let hub = self.hub();
        let clock = hub.shared.clock;
        let end = clock.now().after(span(self.inner.patience));
        hub.close();
        // The last word to the controller must not be spent on an operation that never ends.
        let half = self.inner.patience.checked_div(2).unwrap_or_default();
        within(half, hub.permits_settled()).await;
        let (farewell, confirmed) = oneshot::channel();
        let left = duration(end.since(clock.now()));
        let told = async { self.inner.orders.send(farewell).await.is_ok() && confirmed.await.is_ok() };
        within(left, told).await;
        self.inner.stop();
        hub.link.send_modify(|link| link.connected = false);
        let cells = hub.agenda.awake.all();
        let reports = hub.reports();
        reports.forget_confirmed(&cells);
        Shutdown {
            unconfirmed: reports.unconfirmed(&cells),
            open_permits: cells.iter().map(|cell| cell.open()).sum(),
        }
    }
}

impl Inner {
    fn stop(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Waiters would wait for a driver that is gone.
        self.hub.close();
        self.stop();
    }
}
