//! A controller of a cluster: it stands by, leads, and stands by again when another one has taken over.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use tidegate_consensus::Consensus;
use tidegate_consensus::etcd::Etcd;
use tidegate_core::units::Span;
use tidegate_listener::{Bodies, Door, Failures, Hosts, PROTOCOLS, Surface, Upkeep};
use tidegate_tls::Server;
use tokio::sync::watch as flag;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout_at};

use super::leadership::{Leadership, leave};
use super::presence::{Namesake, Presence, Shown};
use super::roster::Roster;
use super::standby::{Before, Standby, Taken, look_every};
use super::waiting::{View, Waiting};
use crate::clock::{Clock, duration};
use crate::config::{ClusterSettings, Config, FENCE_OF_A_CLUSTER};
use crate::limits::{MAX_GRPC_CONNECTIONS, MAX_REST_CONNECTIONS};
use crate::metrics::Metrics;
use crate::server::{Controller, Described, Running, StartError, StopError, check, settings};
use crate::service::{Service, ServiceConfig, Succession};
use crate::sockets::Sockets;
use crate::store::StoreError;
use crate::store::replicated::{FilePlace, MemberRecord, Members, Owner, ReplicatedStore, Settings};

/// Time for connections of a standby to end when it begins to lead.
const CLOSE_WITHIN: Span = Span::millis(500);
/// In which a successor loads 10,000 leases and answers the first nodes, twice: so long one that has left the log does
/// nothing. To free its state and read its file again takes a processor some 40 ms, which on one machine is the
/// successor's.
const SUCCESSOR_LOADS: Span = Span::millis(250);

/// A running controller of a cluster.
pub struct Member {
    /// Address of the gRPC listener.
    pub grpc_addr: SocketAddr,
    /// Address of the REST listener.
    pub rest_addr: SocketAddr,
    stopping: flag::Sender<bool>,
    life: JoinHandle<Result<(), EndError>>,
}

/// Why a controller of a cluster ended.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// It could not lead, or not stand by any more.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It did not stop cleanly.
    #[error(transparent)]
    Stop(#[from] StopError),
}

/// What all turns of a controller share.
struct Turns {
    config: Config,
    cluster: ClusterSettings,
    consensus: Arc<dyn Consensus>,
    stopped: flag::Receiver<bool>,
    /// The last leadership of this process.
    before: Option<Before>,
    roster: Arc<Roster>,
    /// What this process calls itself among controllers.
    record: MemberRecord,
}

/// How a turn ended.
enum Ended {
    /// This process is to stop.
    Stopped,
    /// Others may lead.
    Deposed,
    /// Others are to lead.
    Drained,
}

impl Member {
    /// Starts a controller of the cluster in the settings.
    ///
    /// # Errors
    /// The settings are wrong, or the addresses cannot be listened on.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        check(&config)?;
        let cluster = config.cluster.clone();
        let internal = |reason: String| StartError::Internal(reason);
        let cluster = cluster.ok_or_else(|| internal("no cluster is configured".to_owned()))?;
        let etcd = cluster.etcd.clone();
        let connected = spawn_blocking(move || Etcd::new(etcd));
        let consensus = connected.await.map_err(|error| internal(error.to_string()))??;
        Self::start_on(config, cluster, Arc::new(consensus)).await
    }

    /// Starts a controller of a cluster around a shared store.
    pub(crate) async fn start_on(
        mut config: Config,
        cluster: ClusterSettings,
        consensus: Arc<dyn Consensus>,
    ) -> Result<Self, StartError> {
        let (stopping, stopped) = flag::channel(false);
        let sockets = Sockets::open(&config)?;
        [config.grpc_listen, config.http_listen] = sockets.addresses();
        config.fence = config.fence.or(Some(FENCE_OF_A_CLUSTER));
        let calls = Settings::new(Clock::start(), FENCE_OF_A_CLUSTER);
        let members = Members::new(Arc::clone(&consensus), &cluster.prefix, calls)?;
        let roster = Arc::new(Roster::new(&cluster.name, members, Clock::start()));
        let record = MemberRecord {
            controller: cluster.name.clone(),
            instance: rand::random::<u64>().max(1),
            addresses: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unix_ms: 0,
        };
        let mut turns = Turns { config, cluster, consensus, stopped, before: None, roster, record };
        let doors = turns.open(&sockets).await?;
        turns.record.addresses = vec![turns.address()];
        let (grpc_addr, rest_addr) = (turns.config.grpc_listen, turns.config.http_listen);
        let (shown, namesake) = turns.show(stopping.clone())?;
        let life = tokio::spawn(async move {
            let ended = turns.live(doors, sockets).await;
            shown.end().await;
            match namesake.get() {
                Some(namesake) => Err(StartError::from(namesake.clone()).into()),
                None => ended,
            }
        });
        Ok(Self { grpc_addr, rest_addr, stopping, life })
    }

    /// Stops: a leader saves its leases and leaves the log to others.
    ///
    /// # Errors
    /// The state was not saved; the next leader recovers.
    pub async fn shutdown(self) -> Result<(), EndError> {
        self.stopping.send_replace(true);
        ended(self.life.await)
    }

    /// Ends when the controller cannot go on, which is an error; otherwise when `signal` is ready, after a clean stop.
    ///
    /// # Errors
    /// The controller cannot go on, or did not stop cleanly.
    pub async fn run_until(mut self, signal: impl Future<Output = ()>) -> Result<(), EndError> {
        tokio::select! {
            over = &mut self.life => ended(over),
            () = signal => self.shutdown().await,
        }
    }
}

fn ended(life: Result<Result<(), EndError>, tokio::task::JoinError>) -> Result<(), EndError> {
    life.map_err(|error| StopError::Task(error.to_string()))?
}

/// The listeners of a standby, while they are open.
struct Doors {
    view: flag::Sender<View>,
    closing: flag::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
}

impl Doors {
    /// Ends the listeners. Streams of nodes end first, since the view closes.
    async fn close(self) {
        drop(self.view);
        self.closing.send_replace(true);
        let until = Instant::now() + duration(CLOSE_WITHIN);
        for mut server in self.servers {
            if timeout_at(until, &mut server).await.is_err() {
                server.abort();
            }
        }
    }
}

/// Saves leases, and leaves the log with them. What need not be over before another one leads ends afterwards.
async fn hand_over(
    running: Running,
    leadership: Leadership,
    store: Arc<ReplicatedStore>,
    has_successor: bool,
) -> Result<(), EndError> {
    let service = Arc::clone(running.service());
    let loads = || if has_successor && store.has_left() { SUCCESSOR_LOADS } else { Span(0) };
    let saved = running.hand_over(loads).await;
    leadership.end().await;
    if saved.is_err() {
        // Where only an answer was lost, the log is left all the same, of which a beat hears.
        let asked = Arc::clone(&store);
        let _ = spawn_blocking(move || asked.beat()).await;
    }
    if store.has_left() {
        if let Err(error) = saved {
            tracing::warn!(%error, "the log is left in order all the same");
        }
        return Ok(());
    }
    if store.is_deposed() {
        // It had not heard of it: what it could not save, its successor has.
        tracing::warn!("the log has another owner; nothing is left to hand over");
        return Ok(());
    }
    let left = spawn_blocking(move || leave(&store, &service)).await;
    if let Ok(Err(error)) = left {
        tracing::warn!(%error, "the log was not left in order; a successor waits for the fence");
    }
    Ok(saved?)
}

impl Turns {
    /// Where this controller is reached.
    fn address(&self) -> String {
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        let address = self.cluster.address.clone();
        address.unwrap_or_else(|| format!("{scheme}://{}", self.config.grpc_listen))
    }

    /// Shows other controllers that this one runs. It stops if another process has its name, which is then known.
    fn show(&self, stopping: flag::Sender<bool>) -> Result<(Shown, Arc<OnceLock<Namesake>>), StartError> {
        let (record, roster) = (self.record.clone(), Arc::clone(&self.roster));
        let presence = Presence::new(Clock::start(), record, roster);
        let namesake = Arc::new(OnceLock::new());
        let found = Arc::clone(&namesake);
        let shown = presence.go_on(move |namesake| {
            tracing::error!("{namesake}");
            // It ends at the first.
            let _ = found.set(namesake);
            stopping.send_replace(true);
        });
        Ok((shown.map_err(|error| StartError::Internal(error.to_string()))?, namesake))
    }

    async fn live(mut self, mut doors: Doors, mut sockets: Sockets) -> Result<(), EndError> {
        loop {
            let instance = rand::random::<u64>().max(1);
            let described = Described::new()?;
            let taken = self.stand_by(instance, &doors).await?;
            let Some(taken) = taken else {
                doors.close().await;
                return Ok(());
            };
            let silent = taken.silent;
            match self.lead(instance, taken, described, doors, sockets).await? {
                Some(open) => sockets = open,
                None => return Ok(()),
            }
            self.before = Some(Before { instance, silent });
            doors = self.open(&sockets).await?;
        }
    }

    /// Opens the listeners of a standby.
    async fn open(&self, sockets: &Sockets) -> Result<Doors, StartError> {
        let tls = self.config.tls.clone().map(|files| Server::load(files, &PROTOCOLS)).transpose()?;
        let ([grpc, http], [grpc_addr, rest_addr]) = (sockets.listeners()?, sockets.addresses());
        let (closing, closed) = flag::channel(false);
        let view = flag::Sender::new(View { name: self.cluster.name.clone(), ..View::default() });
        let metrics = Arc::new(Metrics::new());
        let waiting = Waiting::new(view.subscribe(), Arc::clone(&metrics));
        let (bodies, failures) = (Arc::new(Bodies::default()), Arc::new(Failures::default()));
        let door = |surface, router, hosts, most, other| Door {
            surface,
            router,
            tally: Arc::clone(&metrics) as _,
            bodies: Arc::clone(&bodies),
            hosts,
            most,
            other: Some(other),
            tls: tls.clone(),
            failures: Arc::clone(&failures),
            greeting: None,
        };
        let hosts = Hosts::of(rest_addr, &self.config.http_hosts, Some("http_hosts"));
        let routes = waiting.grpc().await;
        let grpc_door = door(Surface::Grpc, routes, Hosts::Any, MAX_GRPC_CONNECTIONS, rest_addr);
        let rest_door = door(Surface::Rest, waiting.rest(), hosts, MAX_REST_CONNECTIONS, grpc_addr);
        let upkeep = tls.map(|tls| tokio::spawn(Upkeep::new(tls, metrics.tls.clone()).keep(closed.clone())));
        let servers = vec![
            tokio::spawn(grpc_door.serve(grpc, closed.clone())),
            tokio::spawn(rest_door.serve(http, closed)),
        ];
        Ok(Doors { view, closing, servers: upkeep.into_iter().chain(servers).collect() })
    }

    /// Stands by until this controller owns the log; `None` when it is to stop.
    async fn stand_by(&self, instance: u64, doors: &Doors) -> Result<Option<Taken>, StartError> {
        let fence = self.config.fence.unwrap_or(FENCE_OF_A_CLUSTER);
        let standby = Standby {
            consensus: Arc::clone(&self.consensus),
            prefix: self.cluster.prefix.clone(),
            place: Arc::new(FilePlace::new(&self.config.store)),
            seed: self.cluster.seed,
            settings: Settings::new(Clock::start(), fence),
            clocks: settings(&self.config).engine,
            me: Owner {
                controller: self.cluster.name.clone(),
                instance,
                addresses: vec![self.address()],
                fence_ms: fence.0.div_ceil(1_000),
                clean: false,
            },
            before: self.before,
            view: doors.view.clone(),
            roster: Some(Arc::clone(&self.roster)),
        };
        let stopped = self.stopped.clone();
        let ran = spawn_blocking(move || standby.run(&stopped)).await;
        Ok(ran.map_err(|error| StartError::Internal(error.to_string()))??)
    }

    /// Leads until this controller is to stop, or others are to lead. Returns the sockets for its next role; none if it is
    /// to stop: they are closed before its streams end, so that nodes find another controller at once.
    async fn lead(
        &self,
        instance: u64,
        taken: Taken,
        described: Described,
        doors: Doors,
        sockets: Sockets,
    ) -> Result<Option<Sockets>, EndError> {
        let store = Arc::new(taken.store);
        let clock = Clock::start();
        let fence = self.config.fence.unwrap_or(FENCE_OF_A_CLUSTER);
        let (over, mut is_over) = flag::channel(false);
        let leadership = Leadership::begin(&store, clock.clone(), fence, self.cluster.strict, over);
        let leadership = leadership.map_err(|error| StartError::Internal(error.to_string()))?;
        // Beats come first: others count the time from the take. Streams end while the store is loaded: nodes call again,
        // and wait until this controller answers.
        tokio::spawn(doors.close());
        let succession = Succession::Cluster { silent: taken.silent };
        let settings = settings(&self.config);
        let settings = ServiceConfig { instance: Some(instance), succession, side_by_side: true, ..settings };
        let config = self.config.clone();
        let mut drains = self.roster.drains();
        let before_it_answers = |service: &Arc<Service>| {
            // It was loaded a moment ago, and has none yet.
            let _ = service.beside().cluster.set(Arc::clone(&self.roster));
            leadership.keeps_open(service);
        };
        let (taken_store, kept) = (Arc::clone(&store), taken.kept);
        let load = move || Service::load_with(taken_store, settings, clock, kept);
        let began = Controller::begin(config, &sockets, described, load, before_it_answers).await;
        let running = match began {
            Ok(running) => running,
            Err(error) => {
                leadership.end().await;
                if store.has_ended() {
                    // While it loaded, another one took over.
                    return Ok(Some(sockets));
                }
                return Err(error.into());
            }
        };
        let mut stopped = self.stopped.clone();
        let end = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => Ended::Stopped,
            _ = is_over.wait_for(|over| *over) => Ended::Deposed,
            _ = drains.wait_for(Option::is_some) => Ended::Drained,
        };
        if let Ended::Deposed = end {
            running.abort().await;
            leadership.end().await;
            return Ok(Some(sockets));
        }
        if let Ended::Drained = end {
            tracing::info!("the lead is left to another controller");
        }
        self.announce(&store, running.service(), fence).await;
        let sockets = match end {
            Ended::Stopped => {
                // Nothing is to wait here for the listeners of a next role.
                drop(sockets);
                None
            }
            Ended::Deposed | Ended::Drained => Some(sockets),
        };
        let has_successor = !self.roster.others().is_empty();
        hand_over(running, leadership, store, has_successor).await?;
        Ok(sockets)
    }

    /// Lets standbys look more often for the end of this leadership, which grants until they do, and stores what has been
    /// counted, so that they have little left to read then.
    async fn announce(&self, store: &Arc<ReplicatedStore>, service: &Arc<Service>, fence: Span) {
        if self.roster.others().is_empty() {
            return;
        }
        let (announced, counts) = (Arc::clone(store), Arc::clone(service));
        let announced = spawn_blocking(move || {
            announced.announce()?;
            // What failed is stored with the leases.
            let _ = counts.upkeep().flush();
            Ok::<_, StoreError>(())
        });
        match announced.await {
            Ok(Ok(())) => {
                tracing::debug!("the end of this leadership is announced");
                sleep(duration(look_every(fence))).await;
            }
            // They look as often as ever.
            Ok(Err(error)) => tracing::debug!(%error, "the end of this leadership is not announced"),
            Err(error) => tracing::error!(%error, "the end of this leadership is not announced"),
        }
    }
}

#[cfg(test)]
mod tests;
