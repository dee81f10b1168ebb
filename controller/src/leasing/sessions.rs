//! Open grant streams: the connected nodes, and the stream for a push.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::{Rate, Span};
use tokio::sync::mpsc;

use crate::identity::Scope;
use crate::leasing::clients::ClientError;
use crate::leasing::lag::Lag;
use crate::leasing::standing::Standing;
use crate::leasing::{Leasing, LeasingCalls};
use crate::limits::SESSION_QUEUE;
use crate::name::GroupName;
use crate::service::{Silence, State};

/// A message that the controller sends unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// The node lowers these leases at once.
    Lower(Vec<(GroupName, Rate)>),
}

/// The receiver of pushes for a client. Dropping it ends the stream.
pub(crate) struct Slot {
    pushes: mpsc::Sender<Push>,
    pub(crate) session: u64,
    /// The standing that the node got last.
    pub(crate) told: Standing,
    lag: Lag,
    /// The groups that the node was given.
    scope: Scope,
}

/// An accepted stream.
pub struct Session {
    /// The node.
    pub client: ClientId,
    /// Distinguishes this stream from later ones of the same node.
    pub session: u64,
    /// Leadership epoch.
    pub epoch: u64,
    /// The standing that the node brings to the next controller.
    pub standing: Vec<u8>,
    /// Time left of the recovery; zero without one.
    pub recovery: Span,
    /// Closed when a newer stream of the node takes over.
    pub pushes: mpsc::Receiver<Push>,
}

/// Why a stream cannot begin or go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The node is refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The node has a newer stream.
    #[error("a newer session of this client has taken over")]
    Replaced,
    /// The controller is silent towards all nodes.
    #[error(transparent)]
    Silent(#[from] Silence),
    /// A node has seen a higher epoch than this controller's, and storing a still higher one failed.
    #[error(
        "epoch {seen} was seen, and this controller cannot raise its own above it: {error}; leases stay valid until \
         they end, connect again"
    )]
    Behind {
        /// The newest epoch that the node has seen.
        seen: u64,
        /// The error of the store.
        error: String,
    },
}

impl LeasingCalls<'_> {
    /// Accepts a stream, and ends an older one of the same node.
    pub fn hello(&self, name: &str, incarnation: u64, agent: &str) -> Result<Session, SessionError> {
        let unix_ms = self.service.clock().unix_ms();
        let mut state = self.service.lock();
        state.leasing.fence.may_speak(self.service.clock().now())?;
        let client = state.leasing.clients.hello(name, incarnation, agent, unix_ms)?;
        for older in state.leasing.clients.connected_siblings(client) {
            state.leasing.sessions.remove(&older);
            state.leasing.clients.disconnect(older);
        }
        // A process under the identity of another replaces it.
        for older in state.leasing.clients.older_siblings(client) {
            state.leasing.engine.free_parts(older);
            state.leasing.store_replaced(older);
        }
        state.leasing.heard(client, self.service.clock().now(), unix_ms);
        let (sender, pushes) = mpsc::channel(SESSION_QUEUE);
        state.leasing.next_session += 1;
        let session = state.leasing.next_session;
        let told = self.standing(&state);
        let standing = told.sign(&state.leasing.prover);
        let slot = Slot { pushes: sender, session, told, lag: Lag::default(), scope: None };
        state.leasing.sessions.insert(client, slot);
        self.count_clients(&state);
        let recovery = state.leasing.recovery(self.service.clock().now());
        tracing::info!(client = name, incarnation, agent, "node connected");
        Ok(Session { client, session, epoch: state.leasing.lead.epoch, standing, recovery, pushes })
    }

    /// Lets a stream ask for these groups only, and report these only.
    pub fn confine(&self, client: ClientId, session: u64, groups: Arc<BTreeSet<GroupName>>) {
        let mut state = self.service.lock();
        if let Some(slot) = state.leasing.sessions.get_mut(&client).filter(|slot| slot.session == session) {
            slot.scope = Some(groups);
        }
    }

    /// Notes the end of a stream. Its leases run on until they expire.
    pub fn disconnect(&self, client: ClientId, session: u64) {
        let mut state = self.service.lock();
        if state.leasing.is_current(client, session) {
            state.leasing.sessions.remove(&client);
            state.leasing.clients.disconnect(client);
            self.count_clients(&state);
        }
    }

    /// The standing for a node to keep in place of the one it has, if it changed.
    pub(crate) fn new_standing(&self, state: &mut State, client: ClientId) -> Option<Vec<u8>> {
        let now = self.standing(state);
        let slot = state.leasing.sessions.get_mut(&client)?;
        if now.says_the_same(&slot.told) {
            return None;
        }
        let standing = now.sign(&state.leasing.prover);
        slot.told = now;
        Some(standing)
    }

    /// Sends the engine's orders to lower to the streams, those of the groups too that a change has `removed` and that
    /// their holders know by their names. A lost order only costs time: the lease expires.
    pub(crate) fn push_lowers(&self, state: &mut State, removed: &BTreeMap<GroupId, GroupName>) {
        let mut by_client: BTreeMap<ClientId, Vec<(GroupName, Rate)>> = BTreeMap::new();
        for order in state.leasing.engine.take_lowers() {
            let name = state.definitions.catalog().name(order.group);
            if let Some(name) = name.or_else(|| removed.get(&order.group)) {
                by_client.entry(order.client).or_default().push((name.clone(), order.rate_at_most));
            }
        }
        for (client, lowers) in by_client {
            let count = u64::try_from(lowers.len()).unwrap_or(u64::MAX);
            let slot = state.leasing.sessions.get(&client);
            if slot.is_some_and(|slot| slot.pushes.try_send(Push::Lower(lowers)).is_ok()) {
                self.service.metrics.lowers.inc_by(count);
            } else {
                self.service.metrics.lowers_dropped.inc_by(count);
            }
        }
    }

    fn count_clients(&self, state: &State) {
        self.service
            .metrics
            .clients
            .set(i64::try_from(state.leasing.clients.connected()).unwrap_or(i64::MAX));
    }
}

impl Leasing {
    /// Whether `session` is the newest stream of its node.
    pub(crate) fn is_current(&self, client: ClientId, session: u64) -> bool {
        self.sessions.get(&client).is_some_and(|slot| slot.session == session)
    }

    /// Lets the next flush store that an incarnation was replaced, unless its row says so.
    fn store_replaced(&mut self, older: ClientId) {
        if self.clients.unstored(older).is_some_and(|stored| stored.replaced) {
            self.unstored.entry(older).or_default();
        }
    }

    /// The groups that a node was given; `None` where it may ask for all.
    pub(crate) fn scope(&self, client: ClientId) -> Option<&BTreeSet<GroupName>> {
        self.sessions.get(&client)?.scope.as_deref()
    }

    /// The lag of a node's messages.
    pub(crate) fn lag(&mut self, client: ClientId) -> Option<&mut Lag> {
        self.sessions.get_mut(&client).map(|slot| &mut slot.lag)
    }
}
