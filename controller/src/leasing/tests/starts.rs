//! What a start goes on with, and for how long it waits for what it does not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tidegate_core::engine::EngineConfig;
use tidegate_core::exchange::Ask;
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::{Rate, Ru, Span};
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;

use crate::clock::Clock;
use crate::definitions::audit::Actor;
use crate::leasing::renewal::{EntryIn, RenewIn, ReportIn};
use crate::leasing::standing::Standing;
use crate::leasing::succession::Seen;
use crate::leasing::waits::Waits;
use crate::limits::MAX_ROWS;
use crate::name::GroupName;
use crate::service::meta::Meta;
use crate::service::{Service, ServiceConfig, Session};
use crate::store::records::pair_key;
use crate::store::{RedbStore, Store as _, Table, Write};

const SHORT: Span = Span::secs(5);
const LONG: Span = Span::secs(60);

/// A store on which one controller after the other starts.
struct House {
    store: Arc<RedbStore>,
    now: Arc<AtomicU64>,
    _folder: TempDir,
}

impl House {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
        Self { store, now: Arc::default(), _folder: folder }
    }

    fn start(&self) -> Service {
        self.start_with(ServiceConfig { capacity: Some(Rate::whole(1_000)), ..ServiceConfig::default() })
    }

    fn start_with(&self, config: ServiceConfig) -> Service {
        Service::load(Arc::clone(&self.store) as _, config, Clock::driven(Arc::clone(&self.now))).unwrap()
    }
}

fn actor() -> Actor {
    Actor::new(None, "test")
}

fn create(service: &Service, group: v1::Group) -> GroupId {
    let group = v1::Group { ru_per_sec: "50".to_owned(), ..group };
    service.definitions().create_group(&actor(), &group, false).unwrap();
    let name = GroupName::parse(&group.name).unwrap();
    service.lock().definitions.catalog().id(&name).unwrap()
}

fn lasting(name: &str, ttl: Span) -> v1::Group {
    v1::Group { name: name.to_owned(), ttl_us: ttl.0, ..v1::Group::default() }
}

/// How leases may be out of which no group is left to say how long they are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Crash,
    StopInOrder,
    ControllerOnACopy,
}

/// All groups share the capacity: what leases of removed groups take of it is missing for the others.
#[test]
fn under_a_capacity_a_group_waits_for_leases_of_groups_that_are_not_there_any_more() {
    let ways = [Way::Crash, Way::StopInOrder, Way::ControllerOnACopy];
    let waits = ways.map(|way| {
        let house = House::new();
        let mut service = house.start();
        let lengths = [SHORT, if way == Way::ControllerOnACopy { SHORT } else { LONG }];
        for (name, ttl) in ["one", "other"].into_iter().zip(lengths) {
            create(&service, lasting(name, ttl));
        }
        match way {
            Way::Crash => {}
            Way::StopInOrder => {
                service.shut_down().unwrap();
                service = house.start();
                assert_eq!(service.epoch(), 1);
            }
            Way::ControllerOnACopy => {
                let (instance, began_unix_ms, rivals) = (99, service.clock().unix_ms(), Vec::new());
                let copy =
                    Standing { instance, epoch: 1, longest_ttl: LONG, began_unix_ms, at_us: 1, rivals };
                let standing = copy.sign(&service.lock().leasing.prover);
                service.leasing().heed("node", &Seen { epoch: 1, standing }).unwrap();
                assert_eq!(Meta::load(&*house.store).unwrap().longest_ttl().unwrap(), LONG);
            }
        }
        for name in ["one", "other"] {
            service.definitions().delete_group(&actor(), name, "", 0, false).unwrap();
        }
        drop(service);
        let service = house.start();
        create(&service, lasting("late", SHORT));
        (way, service.leasing().recovery_of("late").unwrap())
    });
    assert_eq!(waits, ways.map(|way| (way, EngineConfig::default().longest_use(LONG))));
}

/// What is over of one group says nothing of what is out of another, which no definition names any more.
#[test]
fn leases_of_a_removed_group_are_waited_for_though_those_of_another_length_ended_before() {
    let longer = Span::secs(20);
    let after = |passed: Span| {
        let house = House::new();
        let service = house.start();
        create(&service, lasting("gone", LONG));
        create(&service, lasting("brief", longer));
        let mask = ["ttl_us".to_owned()];
        service.definitions().alter_group(&actor(), &lasting("brief", SHORT), &mask, 0).unwrap();
        service.definitions().delete_group(&actor(), "gone", "", 0, false).unwrap();
        house.now.fetch_add(passed.0, Ordering::Relaxed);
        service.upkeep().flush().unwrap();
        drop(service);
        let service = house.start();
        create(&service, lasting("late", SHORT));
        service.leasing().recovery_of("late").unwrap()
    };
    let use_of = |ttl| EngineConfig::default().longest_use(ttl);
    assert_eq!(after(use_of(longer)), use_of(LONG));
    assert_eq!(after(use_of(LONG) - Span(1)), use_of(LONG));
    assert_eq!(after(use_of(LONG)), use_of(SHORT));
}

/// A node that reports so many RU of a group in all, and asks for more.
fn renew(service: &Service, session: &Session, seq: u64, group: &str, used: i64) {
    let ask = Ask { demand: Rate::whole(10), largest: Ru::whole(1), ..Ask::default() };
    let entries = vec![EntryIn { group: group.to_owned(), ask: Ok((ask, Vec::new())) }];
    let charged = RuParts::flat(Ru::whole(used));
    let total = Ok(Consumption { charged, operations: 1, ..Consumption::default() }.into());
    let reports = vec![ReportIn { group: group.to_owned(), incarnation: 0, total, waited: Vec::new() }];
    let request = RenewIn { seq, entries, reports, ..RenewIn::default() };
    service.leasing().renew(session.client, session.session, request).unwrap();
}

/// After a crash it counts as gone what may have been granted since the last flush, too.
#[test]
fn after_a_stop_in_order_no_more_of_a_quota_is_gone_than_was_granted() {
    let house = House::new();
    let service = house.start();
    let id = create(&service, v1::Group { quota: "500 per day".to_owned(), ..lasting("web", SHORT) });
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let quota = |service: &Service| {
        Waits(&service.lock().leasing)
            .quota(id, service.clock().now())
            .map(|of| (of.granted, of.used + of.lost))
    };
    service.upkeep().flush().unwrap();
    for seq in 1..4 {
        renew(&service, &session, seq, "web", 7);
        house.now.fetch_add(1_000_000, Ordering::Relaxed);
    }
    let (granted, _) = quota(&service).unwrap();
    assert!(granted.is_positive());
    service.shut_down().unwrap();
    drop(service);
    let service = house.start();
    assert_eq!((service.epoch(), quota(&service)), (1, Some((granted, granted))));
}

/// It may grant nothing, and leaves its store as after a crash; but what nodes have used they have used.
#[test]
fn what_was_counted_before_a_controller_fell_silent_is_stored_when_it_stops() {
    let house = House::new();
    let fence = Some(Span::secs(1));
    let service = house.start_with(ServiceConfig { fence, ..ServiceConfig::default() });
    create(&service, lasting("web", SHORT));
    let session = service.leasing().hello("node", 1, "test").unwrap();
    renew(&service, &session, 1, "web", 7);
    house.now.fetch_add(1_000_000, Ordering::Relaxed);
    assert!(service.silence().is_some());
    service.shut_down().unwrap();
    drop(service);
    let service = house.start();
    let (rows, _) = service.accounts().usage("web", false).unwrap();
    assert_eq!((service.epoch(), rows[0].total.ru().clamped()), (2, Ru::whole(7)));
}

#[test]
fn a_start_goes_on_with_the_parts_of_fallbacks_that_nodes_may_be_using() {
    let house = House::new();
    let service = house.start();
    let id = create(&service, lasting("web", SHORT));
    drop(service);
    let part = |client, group| Write::Put(Table::Parts, pair_key(client, group), b"3000000".to_vec());
    house.store.commit(&[part(7, id), part(9, id), part(7, GroupId(id.0 + 1))]).unwrap();
    let service = house.start();
    assert_eq!(service.lock().leasing.engine.parts_out(id), Rate::whole(6));
    let rows = [(7, id), (7, GroupId(id.0 + 1))].map(|(client, group)| pair_key(client, group));
    let there = house.store.get(Table::Parts, &rows).unwrap();
    assert_eq!(there, [Some(b"3000000".to_vec()), None], "that of a group that is gone is removed");
    // What nodes may be using is within the bound that is shown, whatever the total is by now.
    for (fallback_total, bound) in [("4", 50 + 6), ("6", 50 + 6), ("9", 50 + 9)] {
        let fallback_total = fallback_total.to_owned();
        let (text, mask) =
            (v1::Group { fallback_total, ..lasting("web", SHORT) }, ["fallback_total".to_owned()]);
        service.definitions().alter_group(&actor(), &text, &mask, 0).unwrap();
        assert_eq!(service.leasing().leases("web").unwrap().groups[0].bound, Some(Rate::whole(bound)));
    }
}

/// One row more than an answer has says that some are missing.
#[test]
fn a_list_of_nodes_has_as_many_as_fit_the_newest_first_and_says_that_some_are_missing() {
    let service = House::new().start();
    let most = u64::try_from(MAX_ROWS).unwrap();
    let last = |more: u64| {
        for number in 1..=more {
            service.lock().leasing.clients.identify(&format!("node-{number}"), 1, 0).unwrap();
        }
        let (rows, is_cut) = service.leasing().clients();
        let newest = service.lock().leasing.clients.get(ClientId(more)).unwrap().name.clone();
        assert_eq!(rows[0].name, newest);
        (rows.len(), is_cut)
    };
    assert_eq!(last(most), (MAX_ROWS, false));
    assert_eq!(last(most + 1), (MAX_ROWS, true));
}
