//! The controller: its service on a store in a folder, behind its own gRPC routes, on the paused clock.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use tempfile::TempDir;
use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::inside;
use tidegate_controller::service::{Service, ServiceConfig};
use tidegate_controller::store::RedbStore;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::world::pause;

/// What a driven clock shows at zero, in microseconds since 1970.
const DRIVEN_ZERO_US: u64 = 1_577_836_800_000_000;

/// The controller, up or down.
pub(crate) struct Center {
    folder: TempDir,
    began: Instant,
    began_us: u64,
    clock: Arc<AtomicU64>,
    running: Mutex<Option<Running>>,
}

struct Running {
    service: Arc<Service>,
    routes: Router,
    stopped: watch::Sender<bool>,
}

impl Center {
    /// A first start, with an empty store.
    #[expect(clippy::disallowed_methods, reason = "nodes number their starts by the wall clock")]
    pub(crate) fn new() -> Arc<Self> {
        // The controller refuses starts that are numbered by the clock of another day.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let began_us = u64::try_from(wall.as_micros()).unwrap() - DRIVEN_ZERO_US;
        let center = Arc::new(Self {
            folder: TempDir::new().unwrap(),
            began: Instant::now(),
            began_us,
            clock: Arc::new(AtomicU64::new(began_us)),
            running: Mutex::new(None),
        });
        center.start();
        center
    }

    /// Sets the controller's clock, before anything there runs.
    pub(crate) fn tick(&self) {
        let elapsed = u64::try_from(self.began.elapsed().as_micros()).unwrap();
        self.clock.store(self.began_us + elapsed, Ordering::Relaxed);
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Starts on what is in the folder.
    pub(crate) fn start(&self) {
        self.tick();
        let store = RedbStore::open(&self.path()).unwrap();
        let clock = Clock::driven(Arc::clone(&self.clock));
        let service = Arc::new(Service::load(Arc::new(store), ServiceConfig::default(), clock).unwrap());
        let (stopped, stopping) = watch::channel(false);
        let routes = inside::grpc(&service, stopping);
        *self.running() = Some(Running { service, routes, stopped });
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where requests go; `None` while nobody listens.
    pub(crate) fn routes(&self) -> Option<Router> {
        self.running().as_ref().map(|running| running.routes.clone())
    }

    /// The service, to be asked something at once; `None` while the controller is down.
    pub(crate) fn service(&self) -> Option<Arc<Service>> {
        self.tick();
        self.running().as_ref().map(|running| Arc::clone(&running.service))
    }

    /// What the controller does in the background.
    pub(crate) fn upkeep(&self) {
        if let Some(service) = self.service() {
            service.leasing().expire();
            service.upkeep().flush().unwrap();
        }
    }

    /// Ends; in order, or as a crash does. The caller breaks the streams.
    pub(crate) async fn end(&self, in_order: bool) {
        let Some(running) = self.running().take() else { return };
        running.stopped.send_replace(true);
        drop(running.routes);
        while Arc::strong_count(&running.service) > 1 {
            pause(Duration::from_millis(1)).await;
        }
        self.tick();
        if in_order {
            running.service.shut_down().unwrap();
        }
    }
}

/// The author of all changes.
pub(crate) fn actor() -> Actor {
    Actor::new(None, "fleet")
}
