//! A controller and clients of this process, for cases that need a real lease.
//!
//! The controller listens on a loopback port and keeps its store in a directory that goes with it. Its tasks and those
//! of the clients run on one thread of their own, as beside them the cases measure on the others.

use std::iter;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_client::{Client, ClientBuilder, Group, Limits, Rate, RuParts, Span};
use tidegate_controller::audit::Actor;
use tidegate_controller::{Config, Controller, Running};
use tidegate_tls::ServerFiles;
use tokio::runtime::{Builder, Runtime};
use tokio::time::interval;

use super::clock::Stopwatch;
use super::error::{BenchError, failed};
use super::stock::Stock;
use tidegate_proto::v1;

/// How long a group may take to get what a case needs.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Time between the charges that keep a lease high.
const PULSE: Duration = Duration::from_millis(100);

/// The controller, its runtime and its directory.
pub struct Site {
    // Before the directory, so that nothing writes there when it goes.
    running: Option<Running>,
    /// Where clients run.
    pub runtime: Runtime,
    _folder: TempDir,
}

impl Site {
    /// A controller without groups of its own.
    pub fn start() -> Result<Self, BenchError> {
        Self::with(iter::empty(), Vec::new())
    }

    /// A controller that finds these groups, and the tenants bound to them, in its store.
    pub fn with(
        groups: impl Iterator<Item = v1::Group>,
        tenants: Vec<(String, String)>,
    ) -> Result<Self, BenchError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self::on(runtime.map_err(failed("start a runtime"))?, Stock { groups, tenants }, None)
    }

    /// The same under TLS with these files.
    pub fn under(files: ServerFiles, groups: impl Iterator<Item = v1::Group>) -> Result<Self, BenchError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let stock = Stock { groups, tenants: Vec::new() };
        Self::on(runtime.map_err(failed("start a runtime"))?, stock, Some(files))
    }

    /// The same, standing still but for the time that [`Site`] waits for it, so that a loop beside it runs alone.
    pub fn still(
        groups: impl Iterator<Item = v1::Group>,
        tenants: Vec<(String, String)>,
    ) -> Result<Self, BenchError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Self::on(runtime.map_err(failed("start a runtime"))?, Stock { groups, tenants }, None)
    }

    fn on(
        runtime: Runtime,
        stock: Stock<impl Iterator<Item = v1::Group>>,
        tls: Option<ServerFiles>,
    ) -> Result<Self, BenchError> {
        let folder = tempfile::tempdir().map_err(failed("make a directory"))?;
        let store = folder.path().join("store.redb");
        stock.fill(&store)?;
        let running = runtime.block_on(Controller::start(Config { tls, ..config(&store) }));
        let running = running.map_err(failed("start a controller"))?;
        Ok(Self { running: Some(running), runtime, _folder: folder })
    }

    /// The controller.
    pub fn controller(&self) -> Result<&Running, BenchError> {
        self.running.as_ref().ok_or_else(|| BenchError::Wrong("the controller is stopped".to_owned()))
    }

    /// Where its gRPC listens.
    pub fn endpoint(&self) -> Result<String, BenchError> {
        Ok(format!("http://{}", self.controller()?.grpc_addr))
    }

    /// The port of its gRPC.
    pub fn port(&self) -> Result<u16, BenchError> {
        Ok(self.controller()?.grpc_addr.port())
    }

    /// Defines a group.
    pub fn define(&self, text: &v1::Group) -> Result<(), BenchError> {
        let made = self.controller()?.service().definitions().create_group(&actor(), text, false);
        made.map(drop).map_err(failed(format!("create group {}", text.name)))
    }

    /// A client of this process.
    pub fn client(&self, name: &str) -> Result<Client, BenchError> {
        self.client_with(name, |builder| builder)
    }

    /// A client with other options.
    pub fn client_with(
        &self,
        name: &str,
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client, BenchError> {
        let limits = Limits { groups: 200_000, waiters: 20_000 };
        let builder = options(Client::builder([self.endpoint()?], name).limits(limits).patience(PATIENCE));
        self.runtime.block_on(builder.connect()).map_err(failed("connect a client"))
    }

    /// A group of a client.
    pub fn group(&self, client: &Client, name: &str) -> Result<Group, BenchError> {
        self.runtime.block_on(client.group(name)).map_err(failed(format!("use group {name}")))
    }

    /// Groups of a client, asked for all at once.
    pub fn groups(&self, client: &Client, names: &[String]) -> Result<Vec<Group>, BenchError> {
        let asked = names.iter().map(|name| {
            let (client, name) = (client.clone(), name.clone());
            self.runtime.spawn(async move { client.group(&name).await })
        });
        let asked: Vec<_> = asked.collect();
        let answers = asked.into_iter().map(|answer| {
            let answer = self.runtime.block_on(answer).map_err(failed("use a group"))?;
            answer.map_err(failed("use a group"))
        });
        answers.collect()
    }

    /// Offers `rate` to each of `groups` from now on, so that the node's leases stay far above what a case needs; back
    /// when they are that high.
    pub fn keep_warm(&self, groups: &[Group], rate: Rate) -> Result<(), BenchError> {
        let watch = Stopwatch::start();
        let offered = groups.to_vec();
        self.runtime.spawn(async move {
            let mut again = interval(PULSE);
            let pulse = rate.over(Span(u64::try_from(PULSE.as_micros()).unwrap_or(0)));
            loop {
                again.tick().await;
                for group in &offered {
                    group.charge_ru(RuParts::flat(pulse.min(group.state().available.or_zero())));
                }
            }
        });
        while let Some(cold) = groups.iter().find(|group| group.state().rate < rate) {
            if watch.elapsed() > PATIENCE {
                let problem = format!("group {} is {:?} after {PATIENCE:?}", cold.name(), cold.state());
                return Err(BenchError::Wrong(problem));
            }
            self.runtime.block_on(async { tokio::time::sleep(PULSE).await });
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.abort());
        }
    }
}

/// Settings of a controller on free loopback ports.
pub fn config(store: &Path) -> Config {
    let mut config = Config { store: store.to_path_buf(), ..Config::default() };
    config.grpc_listen.set_port(0);
    config.http_listen.set_port(0);
    config
}

/// A group capped at `ru_per_sec`, everything else at its default.
pub fn capped(name: impl Into<String>, ru_per_sec: &str) -> v1::Group {
    v1::Group { name: name.into(), ru_per_sec: ru_per_sec.to_owned(), ..v1::Group::default() }
}

fn actor() -> Actor {
    Actor::new(Some("bench"), "loopback")
}
