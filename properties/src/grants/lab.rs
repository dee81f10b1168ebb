//! A controller without sockets, its clock and store in the hand of the test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::inside;
use tidegate_controller::service::{Service, ServiceConfig};
use tidegate_proto::v1;
use tokio::sync::watch;

use super::books::Books;
use super::stream::{Phase, Stream};
use crate::memory::MemoryStore;

/// Streams open at once.
pub(super) const STREAMS: usize = 3;

/// Groups at the start: name, parent, rate.
const GROUPS: [(&str, &str, &str); 4] =
    [("top", "", "100"), ("child", "top", "60"), ("beside", "", "0.000001"), ("free", "", "unlimited")];

/// The controller and everything around it.
pub(super) struct Lab {
    pub(super) service: Arc<Service>,
    pub(super) grpc: Router,
    pub(super) actor: Actor,
    pub(super) streams: [Option<Stream>; STREAMS],
    /// What the ledger must hold.
    pub(super) books: Books,
    /// The newest answer to each node about each group.
    pub(super) granted: BTreeMap<(String, String), (u64, v1::GrantEntry)>,
    /// The newest renewal of each incarnation.
    pub(super) seqs: BTreeMap<(String, u64), u64>,
    time: Arc<AtomicU64>,
    store: Arc<MemoryStore>,
    stopping: watch::Sender<bool>,
}

impl Lab {
    /// A new controller with a few groups.
    pub(super) fn start() -> Self {
        let time = Arc::new(AtomicU64::new(0));
        let store = Arc::new(MemoryStore::default());
        let (service, grpc, stopping) = load(&store, &time);
        let actor = Actor::new(Some("fuzz"), "nowhere");
        for (name, parent, rate) in GROUPS {
            let text = v1::Group {
                name: name.to_owned(),
                parent: parent.to_owned(),
                ru_per_sec: rate.to_owned(),
                ..v1::Group::default()
            };
            service.definitions().create_group(&actor, &text, false).expect("a group");
        }
        Self {
            service,
            grpc,
            actor,
            streams: [const { None }; STREAMS],
            books: Books::default(),
            granted: BTreeMap::new(),
            seqs: BTreeMap::new(),
            time,
            store,
            stopping,
        }
    }

    pub(super) fn pass(&mut self, micros: u64) {
        self.time.fetch_add(micros, Ordering::Relaxed);
        self.service.leasing().expire();
    }

    pub(super) fn flush(&mut self) {
        self.service.upkeep().flush().expect("memory does not fail");
        self.books.stored();
    }

    /// Groups may be gone; so is what they consumed.
    pub(super) fn prune(&mut self) {
        for group in self.books.groups() {
            if self.service.definitions().group(&group).is_err() {
                self.books.forget(&group);
            }
        }
    }

    /// After every event.
    pub(super) fn check(&self) {
        self.service.check().expect("I1 to I3");
    }

    /// Stops as a crash would, and starts from what was stored.
    pub(super) fn crash(&mut self) {
        self.streams = [const { None }; STREAMS];
        // Late writes of the dead controller must not reach the disk of the new one.
        self.store = Arc::new(MemoryStore::new(self.store.rows()));
        (self.service, self.grpc, self.stopping) = load(&self.store, &self.time);
        self.books.crashed();
        self.audit();
    }

    /// Stops in good order and starts again: streams end, leases and consumption are kept, the epoch stays.
    pub(super) async fn restart(&mut self) {
        self.stopping.send_replace(true);
        for stream in self.streams.iter_mut().filter_map(Option::take) {
            let replaced = matches!(&stream.phase, Phase::Open { replaced: true, .. });
            let code = stream.until_the_end().await;
            assert!(
                code == tonic::Code::Unavailable || replaced,
                "a stream ended with {code} at a clean stop"
            );
        }
        self.service.shut_down().expect("memory does not fail");
        let epoch = self.service.epoch();
        (self.service, self.grpc, self.stopping) = load(&self.store, &self.time);
        assert_eq!(self.service.epoch(), epoch, "a clean stop keeps the epoch");
        self.books.stored();
        self.audit();
    }

    /// The ledger is what the model says.
    pub(super) fn audit(&self) {
        let (rows, truncated) = self.service.accounts().usage("", true).expect("usage of all groups");
        assert!(!truncated);
        self.books.compare(&rows);
    }
}

fn load(store: &Arc<MemoryStore>, time: &Arc<AtomicU64>) -> (Arc<Service>, Router, watch::Sender<bool>) {
    let config = ServiceConfig::default();
    let store = Arc::clone(store);
    let service = Service::load(store, config, Clock::driven(Arc::clone(time))).expect("its own store");
    let service = Arc::new(service);
    let (stopping, stopped) = watch::channel(false);
    let grpc = inside::grpc(&service, stopped);
    (service, grpc, stopping)
}
