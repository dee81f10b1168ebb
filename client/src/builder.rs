//! How a client is made: endpoints, identity, limits, journal.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::group::Fallback;
use tidegate_core::node::NodeConfig;
use tidegate_tls::{ClientFiles, TlsError};
use tokio::sync::mpsc;
use tonic::transport::Endpoint;

use crate::client::Client;
use crate::clock::{duration, span, wall_micros, within};
use crate::groups::driver;
use crate::hub::Hub;
use crate::journal::{Journal, JournalError};
use crate::known::Known;
use crate::names::{Identity, NameError};
use crate::reports::Reports;
use crate::session::Session;
use crate::shared::Shared;
use crate::token::{Token, TokenError};
use crate::transport::{Grpc, Transport};
use crate::{lending, watch};

/// Longest description of the software, in characters; the controller cuts or refuses longer ones.
const MAX_AGENT: usize = 64;

/// How much a client holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Groups known at once; about 2.6 KB each in use, 0.3 KB asleep.
    pub groups: usize,
    /// Operations waiting in one group; more are refused with `TooManyWaiters`.
    pub waiters: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { groups: 10_000, waiters: NodeConfig::default().max_waiters }
    }
}

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The list is empty.
    #[error("no endpoint given; name at least one controller, such as http://127.0.0.1:7420")]
    NoEndpoint,
    /// An endpoint is not a URI.
    #[error("endpoint {endpoint:?} cannot be used: {reason}; write it like http://127.0.0.1:7420")]
    Endpoint {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The identity of the node.
    #[error(transparent)]
    Identity(#[from] NameError),
    /// The files of TLS, for an endpoint that begins with `https://`.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Called outside of a tokio runtime.
    #[error("a client needs a tokio runtime for its tasks; make it inside one")]
    NoRuntime,
    /// No controller welcomed this node in time.
    #[error(
        "no controller answered within {waited:?}{}; check the endpoints and that one is running, or begin without \
         one: ClientBuilder::start",
        because(.last_error)
    )]
    Unreachable {
        /// How long the client waited.
        waited: Duration,
        /// Why the last attempt failed; empty while the first goes on.
        last_error: String,
    },
}

fn because(last_error: &str) -> String {
    if last_error.is_empty() { String::new() } else { format!(" ({last_error})") }
}

/// Options of a client.
#[derive(Clone)]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    identity: String,
    agent: String,
    limits: Limits,
    journal_dir: Option<PathBuf>,
    patience: Duration,
    drift_ppm: u32,
    idle_after: Duration,
    fallback: Fallback,
    tls: ClientFiles,
    token: Option<Token>,
    transport: Option<Arc<dyn Transport>>,
}

impl ClientBuilder {
    /// A client called `identity` that tries these controllers in turn. The identity must be the same from start to
    /// start and no other process's.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>, identity: impl Into<String>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            identity: identity.into(),
            agent: concat!("tidegate-client/", env!("CARGO_PKG_VERSION")).to_owned(),
            limits: Limits::default(),
            journal_dir: None,
            patience: Duration::from_secs(5),
            drift_ppm: NodeConfig::default().drift_ppm,
            idle_after: duration(NodeConfig::default().idle_after),
            fallback: NodeConfig::default().fallback,
            tls: ClientFiles::default(),
            token: None,
            transport: None,
        }
    }

    /// Software and version shown to operators; cut to 64 characters.
    #[must_use]
    pub fn agent(mut self, agent: &str) -> Self {
        self.agent = agent.chars().take(MAX_AGENT).collect();
        self
    }

    /// How much the client holds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Keeps consumption in a file in this directory, so that it survives `kill -9`; and in another the fallbacks of the
    /// groups in use, for a process that starts while no controller is there.
    #[must_use]
    pub fn journal_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.journal_dir = Some(dir.into());
        self
    }

    /// How long `connect`, `group`, `resolve` and `shutdown` wait for the controller; 5 s by default.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How much faster than the controller's this node's clock may run, in millionths; at most half. 1000 by default, a
    /// hundred times the drift of a quartz.
    #[must_use]
    pub fn drift_ppm(mut self, drift_ppm: u32) -> Self {
        self.drift_ppm = drift_ppm.min(500_000);
        self
    }

    /// A group without operations for this long gives its lease up and goes to sleep, in a few bytes; its next
    /// operation waits for an answer of the controller. 60 s by default, at least 100 ms.
    #[must_use]
    pub fn idle_after(mut self, idle_after: Duration) -> Self {
        self.idle_after = idle_after.max(Duration::from_millis(100));
        self
    }

    /// The fallback of each group from a second after its first use until the controller answers for it, for a process
    /// that starts while the controller is away; by default `Fallback::Stop`, which refuses. Each such process may
    /// admit so much in each of its groups; the fallback in the group's definition replaces it with the first answer.
    /// With a journal, the fallback that the definition had when this node heard of it last comes first.
    #[must_use]
    pub fn fallback_until_connected(mut self, fallback: Fallback) -> Self {
        self.fallback = fallback;
        self
    }

    /// The authorities that sign the controllers' certificates, and the certificate that this node shows them, for
    /// endpoints that begin with `https://`; by default the authorities of the machine, and none. The files are read for
    /// each connection, so that renewed ones count from the next one on.
    #[must_use]
    pub fn tls(mut self, files: ClientFiles) -> Self {
        self.tls = files;
        self
    }

    /// Shows the controllers this token, in place of a certificate. A file is read for each connection, so that another
    /// token in it counts from the next one on. It is sent under TLS, or to this machine; the identity has to be the name
    /// of its node, or begin with that and a full stop.
    #[must_use]
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Reaches the controller otherwise than by gRPC over TCP.
    #[must_use]
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Starts the client without waiting for a controller, which may come later. Until one answers, groups are
    /// `Unavailable`, or admit by [`fallback_until_connected`](Self::fallback_until_connected).
    pub fn start(self) -> Result<Client, ConnectError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| ConnectError::NoRuntime)?;
        if self.endpoints.is_empty() {
            return Err(ConnectError::NoEndpoint);
        }
        let transport = match self.transport {
            Some(transport) => transport,
            None => {
                self.endpoints.iter().try_for_each(|endpoint| check_endpoint(endpoint))?;
                if self.endpoints.iter().any(|endpoint| endpoint.starts_with("https://")) {
                    // A wrong setting ends the start; files that break later end an attempt to connect.
                    self.tls.load()?;
                }
                if let Some(token) = &self.token {
                    self.endpoints.iter().try_for_each(|endpoint| Token::check_endpoint(endpoint))?;
                    token.bearer()?;
                }
                Arc::new(Grpc { tls: self.tls, token: self.token, ..Grpc::default() })
            }
        };
        let identity = Identity::new(&self.identity)?;
        let wall_us = wall_micros().max(1);
        let (journal, inherited) = match &self.journal_dir {
            Some(dir) => {
                let (journal, inherited) = Journal::open(dir, &identity, wall_us)?;
                (Some(journal), inherited)
            }
            None => (None, Vec::new()),
        };
        let incarnation = journal.as_ref().map_or(wall_us, Journal::incarnation);
        let config = NodeConfig {
            drift_ppm: self.drift_ppm,
            max_waiters: self.limits.waiters,
            idle_after: span(self.idle_after),
            fallback: self.fallback,
            ..NodeConfig::default()
        };
        // The first thread in a busy group would wait for it, with the group's lock in hand.
        lending::will_prepare();
        drop(runtime.spawn_blocking(lending::prepare));
        let known = self.journal_dir.as_ref().map(|dir| Known::open(dir, &identity));
        let shared = Shared::with_known(config, journal, known);
        let reports = Reports::new(inherited);
        let hub = Hub::new(shared, identity, incarnation, self.limits.groups, reports);
        let (orders, received) = mpsc::channel(1);
        let session = Session::new(
            Arc::clone(&hub),
            Arc::clone(&transport),
            self.endpoints.clone(),
            self.agent,
            received,
        );
        let tasks = [
            runtime.spawn(session.run()),
            runtime.spawn(watch::run(Arc::clone(&hub), transport, self.endpoints)),
            runtime.spawn(driver::run(hub.shared.clock, Arc::clone(&hub.agenda))),
        ];
        Ok(Client::new(hub, orders, tasks, self.patience))
    }

    /// Starts the client and waits until a controller has welcomed it and sent the bindings. Fails when none does in
    /// time, unless there is a fallback until then, or the journal's directory has one.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let (waited, fallback) = (self.patience, self.fallback);
        let client = self.start()?;
        let (mut link, mut turn) = (client.hub().link.subscribe(), client.hub().turn.subscribe());
        // The bindings, too: until they are here, everyone would be charged to the default group.
        let ready = async {
            link.wait_for(|link| link.connected).await.is_ok() && turn.wait_for(|n| *n > 0).await.is_ok()
        };
        let ready = within(waited, ready).await.unwrap_or(false);
        if ready {
            return Ok(client);
        }
        if client.is_connected() {
            tracing::warn!("no bindings yet; everyone is charged to the default group until they arrive");
            return Ok(client);
        }
        let last_error = client.hub().link.borrow().last_error.clone();
        let known = client.hub().shared.known.as_ref().is_some_and(|known| !known.is_empty());
        if fallback != Fallback::Stop || known {
            tracing::warn!(
                ?waited,
                ?fallback,
                known,
                last_error,
                "no controller yet; until one answers, groups admit by their last known fallback, or this one"
            );
            return Ok(client);
        }
        Err(ConnectError::Unreachable { waited, last_error })
    }
}

fn check_endpoint(endpoint: &str) -> Result<(), ConnectError> {
    let unusable = |reason: String| ConnectError::Endpoint { endpoint: endpoint.to_owned(), reason };
    Endpoint::from_shared(endpoint.to_owned()).map_err(|error| unusable(error.to_string()))?;
    tidegate_tls::check_scheme(endpoint).map_err(unusable)
}
