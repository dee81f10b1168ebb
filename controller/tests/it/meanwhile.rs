//! What happens while a commit is under way: nodes connect again, report and leave, and definitions change, after rows
//! were taken to be stored and before they are on disk.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{EntryIn, RenewIn, Service, ServiceConfig, Session};
use tidegate_controller::store::{Store, StoreError, Table, Write};
use tidegate_core::exchange::Ask;
use tidegate_core::units::{Rate, Ru};
use tidegate_proto::v1;

use crate::support::{MemoryStore, pass_on, tell};

type Doing = Box<dyn FnOnce(&Service) + Send>;

/// A disk on which something happens during the next commit.
#[derive(Default)]
struct Busy {
    disk: MemoryStore,
    doing: Mutex<Option<Doing>>,
    /// Whether that commit fails.
    full: AtomicBool,
    service: OnceLock<Weak<Service>>,
}

impl Store for Busy {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let doing = self.doing.lock().unwrap().take();
        if let (Some(doing), Some(service)) = (doing, self.service.get().and_then(Weak::upgrade)) {
            doing(&service);
            if self.full.swap(false, Ordering::SeqCst) {
                let reason = "no space left on device".into();
                return Err(StoreError::Failed { operation: "commit a change", reason });
            }
        }
        self.disk.commit(batch)
    }

    pass_on!(disk);
}

fn started() -> (Arc<Busy>, Arc<Service>, Arc<AtomicU64>) {
    let (disk, now) = (Arc::new(Busy::default()), Arc::new(AtomicU64::new(0)));
    let clock = Clock::driven(Arc::clone(&now));
    let store = Arc::clone(&disk) as Arc<dyn Store>;
    let service = Arc::new(Service::load(store, ServiceConfig::default(), clock).unwrap());
    disk.service.set(Arc::downgrade(&service)).unwrap();
    (disk, service, now)
}

/// Flushes, and does that in between.
fn flush_and(disk: &Busy, service: &Service, doing: impl FnOnce(&Service) + Send + 'static) {
    *disk.doing.lock().unwrap() = Some(Box::new(doing));
    service.accounts().flush().unwrap();
    assert!(disk.doing.lock().unwrap().is_none(), "there was nothing to store");
}

/// The newest renewal of the stream whose reports are on disk.
fn durable(service: &Service, session: &Session, seq: u64) -> u64 {
    let request = RenewIn { seq, ..RenewIn::default() };
    service.leasing().renew(session.client, session.session, request).unwrap().durable_seq
}

#[test]
fn a_stream_that_begins_meanwhile_is_not_confirmed_what_the_one_before_it_reported() {
    let (disk, service, _) = started();
    let before = service.leasing().hello("node", 1, "test").unwrap();
    tell(&service, &before, 50, 1, 5);
    let later = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&later);
    flush_and(&disk, &service, move |service| {
        let session = service.leasing().hello("node", 1, "test").unwrap();
        tell(service, &session, 1, 1, 9);
        *kept.lock().unwrap() = Some(session);
    });
    let later = later.lock().unwrap().take().unwrap();
    assert_eq!(durable(&service, &later, 2), 0, "its report of 9 RU is not on disk yet");
    service.accounts().flush().unwrap();
    assert_eq!(durable(&service, &later, 3), 2);
}

#[test]
fn a_report_that_comes_meanwhile_is_confirmed_with_the_next_flush_and_not_before() {
    let (disk, service, _) = started();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    tell(&service, &session, 1, 1, 5);
    let session = Arc::new(session);
    let same = Arc::clone(&session);
    flush_and(&disk, &service, move |service| tell(service, &same, 2, 1, 9));
    assert_eq!(durable(&service, &session, 3), 1);
    service.accounts().flush().unwrap();
    assert_eq!(durable(&service, &session, 4), 3);
}

#[test]
fn a_report_that_comes_while_a_commit_fails_is_confirmed_with_the_next_one() {
    let (disk, service, _) = started();
    let session = Arc::new(service.leasing().hello("node", 1, "test").unwrap());
    tell(&service, &session, 1, 1, 5);
    let same = Arc::clone(&session);
    let doing: Doing = Box::new(move |service| tell(service, &same, 2, 1, 9));
    *disk.doing.lock().unwrap() = Some(doing);
    disk.full.store(true, Ordering::SeqCst);
    assert!(service.accounts().flush().is_err());
    service.accounts().flush().unwrap();
    assert_eq!(durable(&service, &session, 3), 2);
}

fn rows(disk: &Busy, table: Table) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let scanned = disk.scan(table, &[], &mut |_, value| {
        rows.push(value.to_vec());
        Ok(ControlFlow::Continue(()))
    });
    scanned.unwrap();
    rows
}

#[test]
fn what_changes_without_any_report_reaches_the_disk_on_its_own() {
    let (disk, service, now) = started();
    let group = v1::Group {
        name: "web".into(),
        ru_per_sec: "1000".into(),
        fallback_total: "90".into(),
        quota: "5000 per minute".into(),
        ..v1::Group::default()
    };
    let actor = Actor::new(None, "test");
    service.definitions().create_group(&actor, &group, false).unwrap();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let ask = Ask { demand: Rate::whole(10), backlog: Ru::whole(1), ..Ask::default() };
    let entry = EntryIn { group: "web".into(), ask: Ok((ask, Vec::new())) };
    let request = RenewIn { seq: 1, entries: vec![entry], ..RenewIn::default() };
    service.leasing().renew(session.client, session.session, request).unwrap();
    service.leasing().disconnect(session.client, session.session);
    let flushed = || {
        service.accounts().flush().unwrap();
        [Table::Parts, Table::Quotas].map(|table| rows(&disk, table))
    };
    let [part, window] = flushed();
    assert_eq!((part.len(), window.len()), (1, 1));
    // Nobody is there any more. A window of the quota ends, and another begins.
    now.fetch_add(60_000_000, Ordering::SeqCst);
    let [same, next] = flushed();
    assert!(same == part && next.len() == 1 && next != window, "{next:?}");
    // The quota is taken away, and its row goes.
    let without = v1::Group { quota: "none".into(), ..group };
    service.definitions().alter_group(&actor, &without, &["quota".to_owned()], 0).unwrap();
    let [same, none] = flushed();
    assert!(same == part && none.is_empty(), "{none:?}");
    // The node uses its part no more.
    now.fetch_add(13 * 3_600_000_000, Ordering::SeqCst);
    assert!(flushed().iter().all(Vec::is_empty));
}
