//! What happens while a commit is under way: nodes connect again, report and leave, and definitions change, after rows
//! were taken to be stored and before they are on disk.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tidegate_controller::audit::Actor;
use tidegate_controller::service::{EntryIn, RenewIn, Service, Session};
use tidegate_controller::store::{Store, StoreError, Table, Write};
use tidegate_core::exchange::Ask;
use tidegate_core::units::{Rate, Ru};
use tidegate_proto::v1;

use crate::support::{self, Faulty, MemoryStore, pass_on, tell};

type Doing = Box<dyn FnOnce(&Service) + Send>;

/// A disk on which something happens during the next commit, before that is stored or fails.
struct Busy {
    disk: Faulty,
    doing: Mutex<Option<Doing>>,
    service: OnceLock<Weak<Service>>,
}

impl Store for Busy {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let doing = self.doing.lock().unwrap().take();
        if let (Some(doing), Some(service)) = (doing, self.service.get().and_then(Weak::upgrade)) {
            doing(&service);
        }
        self.disk.commit(batch)
    }

    pass_on!(disk);
}

fn started() -> (Arc<Busy>, Arc<Service>, Arc<AtomicU64>) {
    let disk = Faulty::over(Arc::new(MemoryStore::default()));
    let disk = Arc::new(Busy { disk, doing: Mutex::default(), service: OnceLock::new() });
    let now = Arc::new(AtomicU64::new(0));
    let service = Arc::new(support::started(&disk, &now));
    disk.service.set(Arc::downgrade(&service)).unwrap();
    (disk, service, now)
}

/// Flushes, and does that in between.
fn flush_and(
    disk: &Busy,
    service: &Service,
    doing: impl FnOnce(&Service) + Send + 'static,
) -> Result<(), StoreError> {
    *disk.doing.lock().unwrap() = Some(Box::new(doing));
    let flushed = service.upkeep().flush();
    assert!(disk.doing.lock().unwrap().is_none(), "there was nothing to store");
    flushed
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
    })
    .unwrap();
    let later = later.lock().unwrap().take().unwrap();
    assert_eq!(durable(&service, &later, 2), 0, "its report of 9 RU is not on disk yet");
    service.upkeep().flush().unwrap();
    assert_eq!(durable(&service, &later, 3), 2);
}

#[test]
fn a_report_that_comes_meanwhile_is_confirmed_with_the_next_flush_and_not_before() {
    let (disk, service, _) = started();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    tell(&service, &session, 1, 1, 5);
    let session = Arc::new(session);
    let same = Arc::clone(&session);
    flush_and(&disk, &service, move |service| tell(service, &same, 2, 1, 9)).unwrap();
    assert_eq!(durable(&service, &session, 3), 1);
    service.upkeep().flush().unwrap();
    assert_eq!(durable(&service, &session, 4), 3);
}

#[test]
fn a_report_that_comes_while_a_commit_fails_is_confirmed_with_the_next_one() {
    let (disk, service, _) = started();
    let session = Arc::new(service.leasing().hello("node", 1, "test").unwrap());
    tell(&service, &session, 1, 1, 5);
    let same = Arc::clone(&session);
    disk.disk.fill(true);
    assert!(flush_and(&disk, &service, move |service| tell(service, &same, 2, 1, 9)).is_err());
    disk.disk.fill(false);
    service.upkeep().flush().unwrap();
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
        service.upkeep().flush().unwrap();
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

/// A group whose rule watches runaways by their templates, and a conviction of one.
fn ruled(service: &Service) -> v1::ConvictRequest {
    let limit = v1::QueryLimit {
        rows: 5,
        action: "kill".into(),
        watch: "similar".into(),
        ..v1::QueryLimit::default()
    };
    let group = v1::Group {
        name: "web".into(),
        ru_per_sec: "5".into(),
        query_limit: Some(limit),
        ..v1::Group::default()
    };
    service.definitions().create_group(&Actor::new(None, "test"), &group, false).unwrap();
    v1::ConvictRequest {
        gateway: "gw".into(),
        group: "web".into(),
        r#match: "identify".into(),
        action: "kill".into(),
        fingerprint: "00000000000000a1".into(),
        ..v1::ConvictRequest::default()
    }
}

#[test]
fn a_statement_that_is_convicted_while_a_change_is_stored_is_watched_beside_what_that_adds() {
    let (disk, service, _) = started();
    let conviction = ruled(&service);
    let of = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&of);
    *disk.doing.lock().unwrap() = Some(Box::new(move |service| {
        *kept.lock().unwrap() = service.statements().convict(&conviction).unwrap();
    }));
    let added = v1::Watch {
        group: "web".into(),
        r#match: "similar".into(),
        digest: "00000000000000b2".into(),
        ..v1::Watch::default()
    };
    let steps = vec![v1::Step { kind: Some(v1::step::Kind::Watch(added)) }];
    let wish = v1::ApplyRequest { steps, ..v1::ApplyRequest::default() };
    service.definitions().apply(&Actor::new(None, "test"), &wish).unwrap();
    let convicted = of.lock().unwrap().unwrap();
    let watched = |service: &Service| {
        let watches = service.statements().watches("web").unwrap();
        watches.iter().map(|watch| (watch.id, watch.digest[14..].to_owned())).collect::<Vec<_>>()
    };
    let both = watched(&service);
    assert_eq!(both.len(), 2);
    assert!(
        both.contains(&(convicted, "a1".to_owned())),
        "under the number that the gateway knows: {both:?}"
    );
    // So it is on disk.
    service.upkeep().flush().unwrap();
    let again = support::started(&disk, &Arc::new(AtomicU64::new(0)));
    assert_eq!(watched(&again), both);
}
