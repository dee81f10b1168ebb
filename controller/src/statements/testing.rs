//! A controller without a network, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tidegate_proto::v1;

use super::StatementCalls;
use crate::clock::Clock;
use crate::definitions::audit::Actor;
use crate::service::{Service, ServiceConfig};
use crate::statements::watches::Watch;
use crate::store::{RedbStore, Store};

/// A controller by a clock that stands still until a test sets it.
pub(crate) struct Stage {
    pub(crate) service: Service,
    pub(crate) store: Arc<dyn Store>,
    now: Arc<AtomicU64>,
    _folder: TempDir,
}

pub(crate) fn actor() -> Actor {
    Actor::new(None, "test")
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
        let now = Arc::new(AtomicU64::new(0));
        let service = load(&store, &now).unwrap();
        Self { service, store, now, _folder: folder }
    }

    pub(crate) fn calls(&self) -> StatementCalls<'_> {
        self.service.statements()
    }

    pub(crate) fn pass_ms(&self, ms: u64) {
        self.now.fetch_add(ms * 1_000, Ordering::SeqCst);
    }

    /// Starts again with what is in the store, as after a crash.
    pub(crate) fn crash(self) -> Self {
        let service = load(&self.store, &self.now).unwrap();
        Self { service, ..self }
    }

    /// Why a start over this store fails.
    pub(crate) fn refused(&self) -> String {
        load(&self.store, &self.now).err().unwrap().to_string()
    }

    /// A group whose rule kills statements, and watches them in this way for so long; 0 is for ever.
    pub(crate) fn ruled(&self, name: &str, watch: &str, watch_ms: u64) {
        let limit = v1::QueryLimit {
            rows: 5,
            action: "kill".into(),
            watch: watch.into(),
            watch_us: watch_ms * 1_000,
            ..v1::QueryLimit::default()
        };
        let (name, ru_per_sec) = (name.to_owned(), "5".to_owned());
        let group = v1::Group { name, ru_per_sec, query_limit: Some(limit), ..v1::Group::default() };
        self.service.definitions().create_group(&actor(), &group, false).unwrap();
    }

    /// Has a watch that is in no store.
    pub(crate) fn put(&self, id: u64, text: v1::Watch) {
        self.service.lock().convictions.put(Watch { id, ..Watch::load(&text).unwrap() });
    }
}

fn load(store: &Arc<dyn Store>, now: &Arc<AtomicU64>) -> Result<Service, crate::store::StoreError> {
    Service::load(Arc::clone(store), ServiceConfig::default(), Clock::driven(Arc::clone(now)))
}

pub(crate) fn similar(group: &str, statement: u64) -> v1::Watch {
    v1::Watch {
        group: group.into(),
        r#match: "similar".into(),
        digest: format!("{statement:016x}"),
        action: "kill".into(),
        source: "manual".into(),
        ..v1::Watch::default()
    }
}

pub(crate) fn conviction(group: &str, statement: u64) -> v1::ConvictRequest {
    v1::ConvictRequest {
        gateway: "gw".into(),
        group: group.into(),
        r#match: "identify".into(),
        action: "kill".into(),
        fingerprint: format!("{statement:016x}"),
        ..v1::ConvictRequest::default()
    }
}
