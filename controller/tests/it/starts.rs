//! What a start takes over from the one before, in driven time: ids, the secret, the mark of a stop in order, lengths
//! of leases, fences, quotas and parts, signs of life.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::clock::Clock;
use tidegate_controller::service::{
    Answer, EntryIn, RenewIn, ReportIn, Service, ServiceConfig, Session, Silence,
};
use tidegate_controller::store::records::{META_CLEAN, META_LONGEST_TTL, META_PROOF_KEY, number, pair_key};
use tidegate_controller::store::{Store, StoreError, Table, Write};
use tidegate_core::engine::EngineConfig;
use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::group::GroupId;
use tidegate_core::units::{Rate, Ru, Span};
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;

use crate::support::{Faulty, MemoryStore, actor, group, pass_on, started, tell};

const SECOND: u64 = 1_000_000;

/// A store, the clock of all controllers on it, and the one that runs.
struct Disk {
    rows: Arc<Counting>,
    now: Arc<AtomicU64>,
}

/// A store that counts commits, and rows of nodes.
#[derive(Default)]
struct Counting {
    rows: MemoryStore,
    commits: AtomicU64,
    nodes: AtomicU64,
}

impl Store for Counting {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let nodes = batch.iter().filter(|write| matches!(write, Write::Put(Table::Clients, ..)));
        self.nodes.fetch_add(nodes.count() as u64, Ordering::SeqCst);
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.rows.commit(batch)
    }

    pass_on!(rows);
}

impl Disk {
    fn new() -> Self {
        Self { rows: Arc::default(), now: Arc::default() }
    }

    fn start_with(&self, config: ServiceConfig) -> Result<Service, StoreError> {
        let store = Arc::clone(&self.rows) as Arc<dyn Store>;
        Service::load(store, config, Clock::driven(Arc::clone(&self.now)))
    }

    fn start(&self) -> Service {
        self.start_with(ServiceConfig::default()).unwrap()
    }

    fn pass(&self, us: u64) {
        self.now.fetch_add(us, Ordering::SeqCst);
    }

    fn meta(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.rows.get(Table::Meta, &[key.to_vec()]).unwrap().remove(0)
    }

    fn count(&self, table: Table) -> usize {
        let mut count = 0;
        let visited = self.rows.scan(table, &[], &mut |_, _| {
            count += 1;
            Ok(std::ops::ControlFlow::Continue(()))
        });
        visited.unwrap();
        count
    }
}

fn create(service: &Service, made: &v1::Group) {
    service.definitions().create_group(&actor(), made, false).unwrap();
}

/// A group whose leases last so many seconds.
fn lasting(name: &str, seconds: u64) -> v1::Group {
    v1::Group { ttl_us: seconds * SECOND, ..group(name, "100") }
}

fn lasts(service: &Service, name: &str, seconds: u64) {
    let mask = ["ttl_us", "renew_us"].map(str::to_owned);
    service.definitions().alter_group(&actor(), &lasting(name, seconds), &mask, 0).unwrap();
}

fn delete(service: &Service, name: &str) {
    service.definitions().delete_group(&actor(), name, "", 0, false).unwrap();
}

fn entry(name: &str) -> EntryIn {
    let (demand, largest, backlog) = (Rate::whole(50), Ru::whole(1), Ru::whole(20));
    EntryIn {
        group: name.into(),
        ask: Ok((Ask { demand, largest, backlog, waiting: 20, ..Ask::default() }, Vec::new())),
    }
}

fn renew(service: &Service, session: &Session, seq: u64, names: &[&str]) -> Vec<Answer> {
    let entries = names.iter().map(|name| entry(name)).collect();
    let request = RenewIn { seq, entries, ..RenewIn::default() };
    let renewed = service.leasing().renew(session.client, session.session, request).unwrap();
    renewed.entries.into_iter().map(|entry| entry.answer).collect()
}

/// How long leases of so many seconds may be in use.
fn in_use(seconds: u64) -> u64 {
    EngineConfig::default().longest_use(Span::secs(seconds)).0
}

fn counted(service: &Service) -> u128 {
    service.accounts().usage("default", false).unwrap().0[0].total.charged.write.0 / 1_000_000
}

#[test]
fn every_store_has_a_secret_of_its_own_and_every_start_a_number() {
    let secrets = [(); 2].map(|()| {
        let disk = Disk::new();
        let service = disk.start_with(ServiceConfig { instance: Some(0), ..Default::default() }).unwrap();
        assert_ne!(service.instance(), 0, "0 is a node that does not say");
        disk.meta(META_PROOF_KEY).unwrap()
    });
    assert_ne!(secrets[0], secrets[1]);
    assert!(secrets.iter().all(|secret| secret.iter().any(|byte| *byte != 0)));
}

#[test]
fn the_mark_of_a_stop_in_order_is_gone_before_anything_is_granted() {
    let disk = Disk::new();
    disk.start().shut_down().unwrap();
    assert!(disk.meta(META_CLEAN).is_some());
    let service = disk.start();
    assert_eq!((service.epoch(), disk.meta(META_CLEAN)), (1, None));
    drop(service);
    assert_eq!(disk.start().epoch(), 2);
}

#[test]
fn after_a_stop_in_order_no_fence_is_waited_for_and_after_a_crash_it_is() {
    let disk = Disk::new();
    let config = ServiceConfig { fence: Some(Span::secs(10)), ..ServiceConfig::default() };
    let start = || disk.start_with(config).unwrap();
    start().shut_down().unwrap();
    let service = start();
    assert_eq!(service.silence(), None);
    drop(service);
    assert!(matches!(start().silence(), Some(Silence::Predecessor(_))));
}

/// Consumption is kept by ids, also of nodes that are forgotten.
#[test]
fn no_node_gets_an_id_that_another_had_before_a_crash() {
    let disk = Disk::new();
    let service = disk.start();
    let mut newest = 0;
    for (number, name) in [(1, "a"), (2, "b")] {
        let session = service.leasing().hello(name, number, "test").unwrap();
        tell(&service, &session, 1, number, 5);
        newest = newest.max(session.client.0);
        service.leasing().disconnect(session.client, session.session);
    }
    service.upkeep().flush().unwrap();
    disk.pass(60 * SECOND);
    let names = ["a", "b"].map(str::to_owned);
    assert_eq!(service.accounts().forget_clients(&actor(), &names).unwrap(), [1, 1]);
    drop(service);
    let service = disk.start();
    let other = service.leasing().hello("other", 1, "test").unwrap();
    assert!(other.client.0 > newest, "{:?} after {newest}", other.client);
    assert_eq!(counted(&service), 10);
}

#[test]
fn a_sign_of_life_is_stored_once_a_minute_and_read_after_a_crash() {
    let disk = Disk::new();
    let service = disk.start();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let mut seq = 0;
    let mut stored = |at: u64| {
        disk.now.store(at, Ordering::SeqCst);
        seq += 1;
        tell(&service, &session, seq, 1, 5);
        service.upkeep().flush().unwrap();
        disk.rows.nodes.swap(0, Ordering::SeqCst)
    };
    let minute = 60 * SECOND;
    assert_eq!([0, SECOND, minute - 1_000, minute, minute + SECOND].map(&mut stored), [1, 0, 0, 1, 0]);
    drop(service);
    disk.pass(9 * SECOND);
    let service = disk.start();
    let silent = service.leasing().clients().0[0].silent;
    assert_eq!(silent, Span::secs(10), "since the last that is on disk");
}

#[test]
fn while_nothing_happens_nothing_is_written() {
    let disk = Disk::new();
    let service = disk.start();
    let web = v1::Group { fallback_total: "90".into(), ..group("web", "1000") };
    let shop = v1::Group { quota: "6000 per day".into(), ..group("shop", "100") };
    [web, shop].iter().for_each(|made| create(&service, made));
    let session = service.leasing().hello("node", 1, "test").unwrap();
    tell(&service, &session, 1, 1, 5);
    disk.pass(60 * SECOND);
    (0..3).for_each(|_| service.upkeep().flush().unwrap());
    disk.rows.commits.store(0, Ordering::SeqCst);
    disk.pass(SECOND);
    service.upkeep().flush().unwrap();
    assert_eq!(disk.rows.commits.load(Ordering::SeqCst), 0);
}

/// A node reports what its earlier start used, of which nobody heard before.
#[test]
fn an_earlier_start_that_is_reported_is_on_disk_with_what_it_used() {
    let disk = Disk::new();
    let both = |service: &Service, seq: u64| {
        let session = service.leasing().hello("node", 2, "test").unwrap();
        tell(service, &session, seq, 1, 5);
        tell(service, &session, seq + 1, 2, 3);
        service.upkeep().flush().unwrap();
    };
    let service = disk.start();
    both(&service, 1);
    assert_eq!((counted(&service), disk.count(Table::Clients)), (8, 2));
    drop(service);
    let service = disk.start();
    let other = service.leasing().hello("other", 1, "test").unwrap();
    tell(&service, &other, 1, 1, 7);
    both(&service, 1);
    assert_eq!(counted(&service), 15);
}

#[test]
fn a_goodbye_is_on_disk_with_its_last_reports() {
    let disk = Disk::new();
    let service = disk.start();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let charged = RuParts { write: Ru::whole(5), ..RuParts::default() };
    let total = Ok(Consumption { charged, operations: 1, ..Consumption::default() }.into());
    let report = ReportIn { group: "default".into(), incarnation: 0, total, waited: Vec::new() };
    assert!(service.leasing().goodbye(session.client, session.session, 1, &[report]).is_some());
    service.upkeep().flush().unwrap();
    assert_eq!(disk.count(Table::Clients), 1);
    drop(service);
    let service = disk.start();
    let again = service.leasing().hello("node", 1, "test").unwrap();
    tell(&service, &again, 1, 1, 5);
    assert_eq!((counted(&service), again.client), (5, session.client));
}

/// Leases of a removed group count above it, and nobody knows how long they last from its definition.
#[test]
fn a_crash_is_recovered_from_for_as_long_as_leases_of_a_removed_group_may_be_out() {
    let disk = Disk::new();
    let service = disk.start();
    for made in [lasting("long", 60), lasting("short", 2)] {
        create(&service, &made);
    }
    let session = service.leasing().hello("node", 1, "test").unwrap();
    renew(&service, &session, 1, &["long"]);
    delete(&service, "long");
    drop(service);
    let service = disk.start();
    assert_eq!(service.status().recovery.0, in_use(60));
    // What ends before is forgotten, and this is not.
    disk.pass(in_use(5));
    service.upkeep().flush().unwrap();
    service.leasing().expire();
    assert_eq!(service.metrics.recovering.get(), 1);
    drop(service);
    let service = disk.start();
    assert!(service.status().recovery.0 >= in_use(60) - in_use(5), "{}", service.status().recovery);
    disk.pass(in_use(60));
    service.leasing().expire();
    assert_eq!((service.metrics.recovering.get(), service.status().recovery), (0, Span(0)));
}

/// What was known of a group's longer leases goes to the group above it.
#[test]
fn leases_of_before_a_group_was_changed_and_then_removed_count_above_it_until_they_end() {
    let disk = Disk::new();
    let service = disk.start();
    create(&service, &lasting("long", 60));
    let session = service.leasing().hello("node", 1, "test").unwrap();
    renew(&service, &session, 1, &["long"]);
    lasts(&service, "long", 2);
    delete(&service, "long");
    disk.pass(in_use(5));
    service.upkeep().flush().unwrap();
    drop(service);
    let service = disk.start();
    assert!(service.status().recovery.0 >= in_use(60) - in_use(5), "{}", service.status().recovery);
}

#[test]
fn the_longest_lease_is_forgotten_when_the_last_one_has_ended_and_not_before() {
    let disk = Disk::new();
    let service = disk.start();
    create(&service, &lasting("web", 60));
    lasts(&service, "web", 2);
    let stored = || Span(number(&disk.meta(META_LONGEST_TTL).unwrap()).unwrap());
    for (at, longest) in [(0, 60), (in_use(60) - 1, 60), (in_use(60), 5)] {
        disk.now.store(at, Ordering::SeqCst);
        service.upkeep().flush().unwrap();
        assert_eq!(stored(), Span::secs(longest), "{at} us");
    }
    drop(service);
    assert_eq!(disk.start().status().recovery.0, in_use(5));
}

#[test]
fn the_longer_leases_of_several_groups_are_forgotten_together() {
    let disk = Disk::new();
    let service = disk.start();
    for name in ["api", "web"] {
        create(&service, &lasting(name, 60));
        lasts(&service, name, 2);
    }
    disk.pass(in_use(60));
    service.upkeep().flush().unwrap();
    drop(service);
    let service = disk.start();
    for name in ["api", "web"] {
        assert!(service.leasing().recovery_of(name).unwrap().0 <= in_use(5), "{name}");
    }
}

#[test]
fn leases_that_became_longer_since_a_start_count_when_others_are_forgotten() {
    let disk = Disk::new();
    let service = disk.start();
    for made in [lasting("raised", 20), lasting("lower", 10)] {
        create(&service, &made);
    }
    drop(service);
    let service = disk.start();
    lasts(&service, "raised", 30);
    disk.pass(in_use(10));
    service.upkeep().flush().unwrap();
    assert_eq!(disk.meta(META_LONGEST_TTL).map(|us| number(&us).unwrap()), Some(30 * SECOND));
}

#[test]
fn nodes_are_told_once_when_the_longest_lease_changes() {
    let disk = Disk::new();
    let service = disk.start();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let mut seq = 0;
    let mut told = || {
        seq += 1;
        let request = RenewIn { seq, ..RenewIn::default() };
        service.leasing().renew(session.client, session.session, request).unwrap().standing.is_some()
    };
    assert!(!told());
    create(&service, &lasting("web", 60));
    assert_eq!([told(), told()], [true, false]);
    lasts(&service, "web", 2);
    assert!(!told(), "leases of before are out");
    disk.pass(in_use(60));
    service.upkeep().flush().unwrap();
    assert_eq!([told(), told()], [true, false]);
}

/// An earlier version saved one length for the recovery of all groups.
#[test]
fn the_rest_of_a_recovery_that_an_earlier_version_saved_is_waited_for_also_after_a_crash() {
    let disk = Disk::new();
    let service = disk.start();
    create(&service, &lasting("web", 2));
    service.shut_down().unwrap();
    let mut saved: serde_json::Value = serde_json::from_slice(&disk.meta(META_CLEAN).unwrap()).unwrap();
    saved["recoveries"] = serde_json::json!([]);
    saved["recovery_us"] = serde_json::json!(30 * SECOND);
    let saved = Write::Put(Table::Meta, META_CLEAN.to_vec(), serde_json::to_vec(&saved).unwrap());
    disk.rows.commit(&[saved]).unwrap();
    let service = disk.start();
    assert_eq!((service.epoch(), service.leasing().recovery_of("web").unwrap()), (1, Span::secs(30)));
    drop(service);
    let left = disk.start().leasing().recovery_of("web").unwrap();
    assert!(left >= Span::secs(30), "{left}");
}

#[test]
fn an_unclean_start_counts_what_may_have_been_given_of_a_quota() {
    let disk = Disk::new();
    let service = disk.start();
    create(&service, &v1::Group { quota: "6000 per day".into(), ..group("web", "100") });
    service.upkeep().flush().unwrap();
    let quota = |service: &Service| service.leasing().leases("web").unwrap().groups[0].quota.unwrap();
    assert_eq!(quota(&service).granted, Ru::ZERO);
    drop(service);
    let service = disk.start();
    assert!(quota(&service).granted.is_positive(), "{:?}", quota(&service));
    // Its row goes with the group.
    service.upkeep().flush().unwrap();
    assert_eq!(disk.count(Table::Quotas), 1);
    delete(&service, "web");
    service.upkeep().flush().unwrap();
    assert_eq!(disk.count(Table::Quotas), 0);
}

#[test]
fn a_part_of_a_fallback_on_disk_is_read_if_it_can_have_been_given_and_goes_with_its_group() {
    let disk = Disk::new();
    drop(disk.start());
    let part = |group: GroupId, rate: i64| {
        disk.rows.commit(&[Write::Put(Table::Parts, pair_key(1, group), rate.to_string().into())]).unwrap();
    };
    part(GroupId(99), 5);
    drop(disk.start());
    assert_eq!(disk.count(Table::Parts), 0, "no such group");
    part(GroupId::DEFAULT, Rate::MAX.0);
    drop(disk.start());
    assert_eq!(disk.count(Table::Parts), 1);
    part(GroupId::DEFAULT, Rate::MAX.0 + 1);
    let refused = disk.start_with(ServiceConfig::default()).err().unwrap();
    assert!(refused.to_string().contains("more than any can be"), "{refused}");
}

#[test]
fn a_controller_that_falls_silent_and_speaks_again_says_so_in_metrics() {
    let now = Arc::<AtomicU64>::default();
    let store = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
    let config = ServiceConfig { fence: Some(Span::secs(2)), ..ServiceConfig::default() };
    let clock = Clock::driven(Arc::clone(&now));
    let service = Service::load(Arc::clone(&store) as Arc<dyn Store>, config, clock).unwrap();
    store.fill(true);
    now.fetch_add(2 * SECOND, Ordering::SeqCst);
    service.upkeep().flush().unwrap_err();
    assert_eq!(service.metrics.silent.get(), 1);
    store.fill(false);
    service.upkeep().flush().unwrap();
    service.upkeep().flush().unwrap();
    assert_eq!((service.metrics.silent.get(), service.silence()), (0, None));
}

#[test]
fn proofs_are_judged_in_a_recovery_only_and_bad_ones_are_counted() {
    let (store, now) = (Arc::new(MemoryStore::default()), Arc::<AtomicU64>::default());
    let service = started(&store, &now);
    create(&service, &group("web", "100"));
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let Answer::Grant(Grant::Leased(terms), proof) = renew(&service, &session, 1, &["web"]).remove(0) else {
        panic!("a lease was expected")
    };
    let held = Held { rate: terms.rate, cap: terms.cap, lump: Ru::ZERO };
    drop(service);
    let service = started(&store, &now);
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let asks = |seq: u64, proof: Vec<u8>| {
        let mut entry = entry("web");
        let ask = entry.ask.as_mut().unwrap();
        (ask.0.held, ask.1) = (held, proof);
        let request = RenewIn { seq, entries: vec![entry], ..RenewIn::default() };
        let renewed = service.leasing().renew(session.client, session.session, request).unwrap();
        let recovers = matches!(renewed.entries[0].answer, Answer::Grant(Grant::Recovering { .. }, _));
        let page = service.metrics_page().unwrap();
        let bad = page.lines().find(|line| line.contains("reason=\"bad_proof\"")).map(str::to_owned);
        (recovers, bad.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()))
    };
    assert_eq!(asks(1, Vec::new()), (true, None), "no proof is no bad one");
    assert_eq!(asks(2, vec![1; 57]), (true, Some(1)));
    assert_eq!(asks(3, vec![1; 257]), (true, Some(2)));
    assert_eq!(asks(4, proof), (false, Some(2)), "what it proves it keeps");
    now.fetch_add(20 * SECOND, Ordering::SeqCst);
    assert_eq!(asks(5, vec![1; 57]), (false, Some(2)));
}
