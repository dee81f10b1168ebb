//! Starting and stopping a controller.
//!
//! Start: check the settings, open the store, bind both listeners, load, serve. Stop: end the streams, give requests
//! some time to finish, then store consumption and leases and mark the store clean. Dropping a `Running` without that
//! is an unclean stop, as a crash is.

mod described;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use tidegate_consensus::etcd::EtcdError;
use tidegate_core::engine::EngineConfig;
use tidegate_core::units::Span;
use tidegate_listener::{Bodies, Door, Failures, Hosts, PROTOCOLS, Surface, Upkeep};
use tidegate_proto::v1::admin_server::AdminServer;
use tidegate_proto::v1::grants_server::GrantsServer;
use tidegate_proto::v1::statements_server::StatementsServer;
use tidegate_tls::{Server, TlsError};
use tidegate_traces::{Exporter, Source, TraceError, TraceSettings, Traces};
use tokio::sync::watch as flag;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

use crate::alarms::{AlarmSettings, Alarms};
use crate::clock::{Clock, duration};
use crate::cluster::{Namesake, doubt};
use crate::config::{Authentication, Config, ConfigError};
use crate::grpc::{AdminAdapter, GrantsAdapter, StatementsAdapter};
use crate::identity::guard::Guard;
use crate::identity::{FirstToken, provider};
use crate::limits::{
    ALARMS_EVERY, DRAIN_WITHIN, FLUSH_EVERY, MAX_GRPC_CONNECTIONS, MAX_REST_CONNECTIONS, SAMPLE_EVERY,
    TIDY_EVERY, TOKENS_EVERY,
};
use crate::service::{Service, ServiceConfig, shut_down_from};
use crate::sockets::Sockets;
use crate::store::{RedbStore, Store, StoreError};
use crate::web::{self, Web};
use crate::{grpc, rest, spans};

pub(crate) use described::Described;

/// Why a controller did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings are wrong.
    #[error("the configuration is wrong: {}", list(.0))]
    Config(Vec<ConfigError>),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store opened, but its content cannot be loaded.
    #[error("the store {} cannot be loaded: {reason}; restore it from a backup, or move the file away to start empty", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// The error of the content.
        reason: String,
    },
    /// Opening a listener failed.
    #[error("cannot listen on {address} ({key}): {reason}; is the port in use? choose another address")]
    Listen {
        /// The setting.
        key: &'static str,
        /// Its value.
        address: SocketAddr,
        /// The error of the operating system.
        reason: io::Error,
    },
    /// Certificate, key or trust of the listeners cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Another controller of the cluster has this one's name.
    #[error(transparent)]
    Namesake(#[from] Namesake),
    /// The shared store of a cluster cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A webhook cannot be used.
    #[error("{0}")]
    Webhook(String),
    /// Spans cannot be sent.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// Building a part of the controller failed.
    #[error("the controller cannot be started: {0}")]
    Internal(String),
}

/// Why a controller did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The final commit failed; the next start recovers.
    #[error("the controller stopped, but its state was not saved and the next start will recover: {0}")]
    Store(#[from] StoreError),
    /// A task of the controller panicked.
    #[error("the controller stopped, but a task failed and the next start will recover: {0}")]
    Task(String),
}

fn list(errors: &[ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Starts controllers.
#[derive(Debug)]
pub struct Controller;

/// A running controller.
pub struct Running {
    /// Address of the gRPC listener.
    pub grpc_addr: SocketAddr,
    /// Address of the REST listener.
    pub rest_addr: SocketAddr,
    service: Arc<Service>,
    stopping: flag::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
    upkeep: Vec<JoinHandle<()>>,
    /// What may be cut off at any time.
    fetching: Vec<JoinHandle<()>>,
    /// What ends soon after the stop.
    telling: Vec<JoinHandle<()>>,
    /// Sends spans, those of the last commit, too.
    exporter: Option<Exporter>,
}

impl Controller {
    /// Starts with the store in the settings.
    pub async fn start(config: Config) -> Result<Running, StartError> {
        config.check().map_err(StartError::Config)?;
        let path = config.store.clone();
        let opened = tokio::task::spawn_blocking(move || RedbStore::open(Path::new(&path))).await;
        let store = opened.map_err(|error| StartError::Internal(error.to_string()))??;
        Self::start_with(config, Arc::new(store)).await
    }

    /// Starts with another store, such as one that fails on purpose.
    pub async fn start_with(config: Config, store: Arc<dyn Store>) -> Result<Running, StartError> {
        Self::start_at(config, store, Clock::start()).await
    }

    /// The same on a given clock, which the caller may drive.
    pub async fn start_at(
        config: Config,
        store: Arc<dyn Store>,
        clock: Clock,
    ) -> Result<Running, StartError> {
        check(&config)?;
        let sockets = Sockets::open(&config)?;
        let settings = settings(&config);
        let load = move || Service::load(store, settings, clock);
        Self::begin(config, &sockets, Described::new()?, load, |_| ()).await
    }

    /// The same on open sockets, with the service as `load` returns it.
    pub(crate) async fn begin(
        config: Config,
        sockets: &Sockets,
        described: Described,
        load: impl FnOnce() -> Result<Service, StoreError> + Send + 'static,
        before_it_answers: impl FnOnce(&Arc<Service>),
    ) -> Result<Running, StartError> {
        let is_guarded = config.authentication() == Authentication::Required;
        let by_tokens = is_guarded && config.certifies_nobody() && !config.provides_admins();
        let tls = config.tls.map(|files| Server::load(files, &PROTOCOLS)).transpose()?;
        let ([grpc, http], [grpc_addr, rest_addr]) = (sockets.listeners()?, sockets.addresses());
        let service = loaded(tokio::task::spawn_blocking(load).await, &config.store)?;
        before_it_answers(&service);

        let exporter = config.traces.map(|settings| trace(settings, &service));
        let failures: Arc<Failures> = Arc::default();
        let guard =
            is_guarded.then(|| Guard::new(config.access, Arc::clone(&service), Arc::clone(&failures)));
        let (stopping, stopped) = flag::channel(false);
        let bodies = Arc::new(Bodies::default());
        let door = |surface, router, hosts, most, other| Door {
            surface,
            router,
            tally: Arc::clone(&service.metrics) as _,
            bodies: Arc::clone(&bodies),
            hosts,
            most,
            other: Some(other),
            tls: tls.clone(),
            failures: Arc::clone(&failures),
            greeting: guard.as_ref().map(Guard::greeting),
        };
        let Described { grpc: routes, health, rest } = described;
        // Before the first call: a service without a state is one that there is not.
        health.set_serving::<AdminServer<AdminAdapter>>().await;
        health.set_serving::<StatementsServer<StatementsAdapter>>().await;
        let speaks = tell_health(&service, &health).await;
        let routes = grpc_routes(routes, &service, &stopped);
        let routes = doubt::grpc(grpc::guarded(routes, guard.as_ref()), doubt::of(&service));
        let grpc_door = door(Surface::Grpc, routes, Hosts::Any, MAX_GRPC_CONNECTIONS, rest_addr);
        let hosts = Hosts::of(rest_addr, &config.http_hosts, Some("http_hosts"));
        let web = Web::new(Arc::clone(&service), guard.clone(), tls.is_some(), stopped.clone());
        let routes = spans::called(rest::router(rest, Arc::clone(&service)), &service);
        let routes = rest::guarded(routes, guard.as_ref()).merge(web::router(&web));
        let routes = doubt::rest(routes, doubt::of(&service));
        let rest_door = door(Surface::Rest, routes, hosts, MAX_REST_CONNECTIONS, grpc_addr);
        let servers = vec![
            tokio::spawn(grpc_door.serve(grpc, stopped.clone())),
            tokio::spawn(rest_door.serve(http, stopped.clone())),
        ];
        let (until, of) = (|| stopped.clone(), || Arc::clone(&service));
        let health = keep_health(of(), health, speaks, until());
        let mut upkeep = vec![expire(of(), until()), flush(of(), until()), tidy(of(), until()), health];
        upkeep.push(every(SAMPLE_EVERY, until(), move || web::sample(&web)));
        let mut fetching = Vec::new();
        if let Some(guard) = &guard {
            let first = by_tokens.then(|| FirstToken::beside(&config.store));
            upkeep.push(watch_tokens(Arc::clone(guard), of(), first, until()));
            fetching = provider::keep(guard.providers(), &service.metrics);
        }
        if let Some(tls) = tls {
            // A controller has one pair of listeners.
            let _ = service.beside().tls.set(Arc::clone(&tls));
            upkeep.push(tokio::spawn(Upkeep::new(tls, service.metrics.tls.clone()).keep(until())));
        }
        let telling = watch_alarms(config.alarms, &service, &stopped, &mut upkeep);
        tracing::info!(%grpc_addr, %rest_addr, "controller started");
        Ok(Running { grpc_addr, rest_addr, service, stopping, servers, upkeep, fetching, telling, exporter })
    }
}

impl Running {
    /// The service, for calls in the same process.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Stops cleanly: the next start continues the leases under the same epoch.
    pub async fn shutdown(mut self) -> Result<(), StopError> {
        self.stopping.send_replace(true);
        self.close().await;
        self.wind_up().await;
        let saved = self.save().await;
        self.ended(saved).await
    }

    /// The same where a successor waits: leases are saved first, and with them the store is left to it. Streams end as the
    /// leases are read. The service grants nothing from then on, even where it is still called, so requests and tasks may
    /// end afterwards: after a rest of the length that is returned then.
    pub(crate) async fn hand_over(mut self, rest: impl FnOnce() -> Span) -> Result<(), StopError> {
        let saved = self.save().await;
        sleep(duration(rest())).await;
        // Also where it was not called.
        self.stopping.send_replace(true);
        self.close().await;
        self.wind_up().await;
        self.ended(saved).await
    }

    /// Ends streams, saves leases and consumption, and marks the store clean.
    async fn save(&self) -> Result<(), StopError> {
        let (service, stopping) = (Arc::clone(&self.service), self.stopping.clone());
        let save = move || {
            let begin = || {
                stopping.send_replace(true);
            };
            let begun = Instant::now();
            shut_down_from(&service, begin).inspect(|()| {
                tracing::debug!(took = ?begun.elapsed(), "leases and consumption are saved");
            })
        };
        let saved = tokio::task::spawn_blocking(save).await;
        Ok(saved.map_err(|error| StopError::Task(error.to_string()))??)
    }

    /// Waits until open requests have ended.
    async fn close(&mut self) {
        for server in &mut self.servers {
            if timeout(duration(DRAIN_WITHIN), &mut *server).await.is_err() {
                tracing::warn!("requests did not end within {DRAIN_WITHIN} and are cut off");
                server.abort();
            }
        }
    }

    async fn ended(mut self, saved: Result<(), StopError>) -> Result<(), StopError> {
        if let Some(exporter) = self.exporter.take() {
            exporter.end().await;
        }
        saved?;
        tracing::info!("controller stopped");
        Ok(())
    }

    /// Stops as a crash would: nothing is saved, the next start recovers. For a leader that lost its log, and for tests.
    pub async fn abort(mut self) {
        self.stopping.send_replace(true);
        self.servers.iter().chain(&self.telling).for_each(JoinHandle::abort);
        for server in &mut self.servers {
            // It was cut off; then it holds nothing any more.
            let _ = server.await;
        }
        self.wind_up().await;
    }

    /// Waits until no task uses the store any more.
    async fn wind_up(&mut self) {
        self.fetching.iter().for_each(JoinHandle::abort);
        for task in self.telling.drain(..) {
            // At a crash it was aborted.
            let _ = task.await;
        }
        for task in &mut self.upkeep {
            // They end by themselves, after a commit that is under way.
            if let Err(error) = task.await {
                tracing::error!(%error, "upkeep failed");
            }
        }
        // Every stream holds a receiver until it has released the service.
        if timeout(duration(DRAIN_WITHIN), self.stopping.closed()).await.is_err() {
            tracing::warn!("streams did not end within {DRAIN_WITHIN}");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in self.servers.iter().chain(&self.upkeep).chain(&self.fetching).chain(&self.telling) {
            task.abort();
        }
        // Streams run in tasks of their own.
        self.stopping.send_replace(true);
    }
}

/// The settings, and the small files that they name.
pub(crate) fn check(config: &Config) -> Result<(), StartError> {
    config.check().map_err(StartError::Config)?;
    config.alarms.check_secrets().map_err(StartError::Webhook)?;
    Ok(config.traces.as_ref().map_or(Ok(()), TraceSettings::check_headers)?)
}

pub(crate) fn settings(config: &Config) -> ServiceConfig {
    let engine = EngineConfig { drift_ppm: config.drift_ppm, margin: config.margin };
    ServiceConfig { capacity: config.capacity, engine, fence: config.fence, ..ServiceConfig::default() }
}

/// The routes of the gRPC listener.
fn grpc_routes(routes: Routes, service: &Arc<Service>, stopped: &flag::Receiver<bool>) -> Router {
    let routes = routes
        .add_service(grpc::grants(service, stopped.clone()))
        .add_service(grpc::admin(service, stopped.clone()))
        .add_service(grpc::statements(service, stopped.clone()));
    spans::called(routes.prepare().into_axum_router(), service)
}

/// Reports to health checks whether the controller speaks to nodes, and returns it.
async fn tell_health(service: &Service, reporter: &HealthReporter) -> bool {
    let speaks = service.silence().is_none();
    if speaks {
        reporter.set_serving::<GrantsServer<GrantsAdapter>>().await;
    } else {
        reporter.set_not_serving::<GrantsServer<GrantsAdapter>>().await;
    }
    speaks
}

/// Reports it again whenever it has changed.
fn keep_health(
    service: Arc<Service>,
    reporter: HealthReporter,
    mut told: bool,
    stopped: flag::Receiver<bool>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut stop = pin!(requested(stopped));
        let mut again = interval(duration(FLUSH_EVERY));
        loop {
            tokio::select! {
                () = &mut stop => return,
                _ = again.tick() => {}
            }
            if service.silence().is_none() != told {
                told = tell_health(&service, &reporter).await;
            }
        }
    })
}

async fn requested(mut stopped: flag::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop, too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Ends leases when their time is over.
fn expire(service: Arc<Service>, stopped: flag::Receiver<bool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut stop = pin!(requested(stopped));
        loop {
            let next = service.leasing().expire();
            tokio::select! {
                () = &mut stop => return,
                () = sleep_until(service.clock().instant(next)) => {}
            }
        }
    })
}

/// The service that was loaded from the store at `path`.
fn loaded(
    loading: Result<Result<Service, StoreError>, JoinError>,
    path: &Path,
) -> Result<Arc<Service>, StartError> {
    let damaged = |error: StoreError| StartError::Load { path: path.to_owned(), reason: error.to_string() };
    let loaded = loading.map_err(|error| StartError::Internal(error.to_string()))?;
    Ok(Arc::new(loaded.map_err(damaged)?))
}

/// Stores consumption. Failures are counted and logged where they happen, and the next round tries again.
fn flush(service: Arc<Service>, stopped: flag::Receiver<bool>) -> JoinHandle<()> {
    every(FLUSH_EVERY, stopped, move || {
        let _ = service.upkeep().flush();
    })
}

/// Prunes history and folds incarnations.
fn tidy(service: Arc<Service>, stopped: flag::Receiver<bool>) -> JoinHandle<()> {
    every(TIDY_EVERY, stopped, move || {
        let _ = service.upkeep().tidy();
    })
}

/// Ends the streams of tokens and JWTs that are over, and keeps the first token of an admin as long as it is needed.
fn watch_tokens(
    guard: Arc<Guard>,
    service: Arc<Service>,
    first: Option<FirstToken>,
    stopped: flag::Receiver<bool>,
) -> JoinHandle<()> {
    every(TOKENS_EVERY, stopped, move || {
        service.tokens().expire();
        guard.providers().expire();
        if let Some(first) = &first {
            first.look(&service);
        }
    })
}

/// Looks for alarms, and tells webhooks.
fn watch_alarms(
    settings: AlarmSettings,
    service: &Arc<Service>,
    stopped: &flag::Receiver<bool>,
    upkeep: &mut Vec<JoinHandle<()>>,
) -> Vec<JoinHandle<()>> {
    let alarms = Arc::new(Alarms::begin(settings, service));
    // A controller has one set of them.
    let _ = service.beside().alarms.set(Arc::clone(&alarms));
    let (telling, of) = (alarms.deliver(stopped), Arc::clone(service));
    upkeep.push(every(ALARMS_EVERY, stopped.clone(), move || alarms.look(&of)));
    telling
}

/// Sends spans of this service from here on.
fn trace(settings: TraceSettings, service: &Service) -> Exporter {
    let instance = format!("{:016x}", service.instance());
    let source = Source { service: "tidegate-controller", instance };
    let (traces, exporter) = Traces::start(settings, source, service.metrics.traces.clone());
    let _ = service.beside().traces.set(traces);
    exporter
}

/// Repeats a call that waits for the disk, in a task of its own.
fn every(
    period: Span,
    stopped: flag::Receiver<bool>,
    call: impl Fn() + Send + Sync + 'static,
) -> JoinHandle<()> {
    tokio::spawn(tidegate_listener::every(duration(period), stopped, call))
}

#[cfg(test)]
mod tests;
