//! What is seen of groups whose operations wait, of one kind of wait at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::exchange::Ask;
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;

use super::*;
use crate::alarms::{AlarmSettings, Alarms, Kind};
use crate::clock::Clock;
use crate::definitions::audit::Actor;
use crate::leasing::renewal::{EntryIn, RenewIn, ReportIn};
use crate::service::ServiceConfig;
use crate::store::RedbStore;

#[test]
fn a_group_is_seen_when_operations_wait_or_ru_are_missing_unless_it_is_in_shadow() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    let clock = Clock::driven(Arc::new(AtomicU64::new(0)));
    let service = Service::load(store, ServiceConfig::default(), clock).unwrap();
    let some = Ru::whole(5);
    let groups = [
        ("both", 3, some),
        ("missing", 0, some),
        ("calm", 0, Ru::ZERO),
        ("shadow", 3, some),
        ("waiting", 3, Ru::ZERO),
    ];
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let mut entries = Vec::new();
    for (name, waiting, backlog) in groups {
        let enforcement = if name == "shadow" { "shadow" } else { "on" }.into();
        let group =
            v1::Group { name: name.into(), ru_per_sec: "5".into(), enforcement, ..v1::Group::default() };
        service.definitions().create_group(&Actor::new(None, "test"), &group, false).unwrap();
        let ask = Ask { demand: Rate::whole(100), waiting, backlog, ..Ask::default() };
        entries.push(EntryIn { group: name.into(), ask: Ok((ask, Vec::new())) });
    }
    let renewal = RenewIn { seq: 1, entries, ..RenewIn::default() };
    service.leasing().renew(session.client, session.session, renewal).unwrap();
    let mut seen: Vec<(String, u64, Ru)> = Vec::new();
    for one in Eyes::default().look(&service) {
        if let Facts::Waiting { waiting, backlog, .. } = one.facts {
            seen.push((one.group, waiting, backlog));
        }
    }
    seen.sort();
    let expected = [("both", 3, some), ("missing", 0, some), ("waiting", 3, Ru::ZERO)];
    assert_eq!(seen, expected.map(|(name, waiting, backlog)| (name.to_owned(), waiting, backlog)));
    // Operations of a group that are refused at once do not wait, and there is a reason for them as well.
    assert!(why(&service, &Key { kind: Kind::Throttled, group: "calm".to_owned() }).is_some());
}

#[test]
fn open_alarms_are_counted_by_their_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    let config = ServiceConfig { capacity: Some(Rate::whole(10)), ..ServiceConfig::default() };
    let service = Service::load(store, config, Clock::driven(Arc::new(AtomicU64::new(0)))).unwrap();
    for (name, rate) in [("a", "7"), ("b", "4")] {
        let group = v1::Group { name: name.into(), ru_per_sec: rate.into(), ..v1::Group::default() };
        service.definitions().create_group(&Actor::new(None, "test"), &group, false).unwrap();
    }
    Alarms::begin(AlarmSettings::default(), &service).look(&service);
    let page = service.metrics.page(&[]).unwrap();
    for kind in Kind::ALL {
        let open = u8::from(kind == Kind::CapacityOversubscribed);
        let line = format!("tidegate_alarms_open{{kind=\"{}\"}} {open}\n", kind.as_str());
        assert!(page.contains(&line), "{line} in {page}");
    }
}

/// Its leases may have ended, or be smaller than what was used of them.
#[test]
fn a_group_whose_nodes_use_its_rate_waits_for_that_though_little_is_leased() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    let now = Arc::<AtomicU64>::default();
    let service = Service::load(store, ServiceConfig::default(), Clock::driven(Arc::clone(&now))).unwrap();
    let group = v1::Group { name: "web".into(), ru_per_sec: "5".into(), ..v1::Group::default() };
    service.definitions().create_group(&Actor::new(None, "test"), &group, false).unwrap();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let key = Key { kind: Kind::Throttled, group: "web".to_owned() };
    let mut reasons = Vec::new();
    for (seq, used) in [(1, 0), (2, 25)] {
        let charged = RuParts::flat(Ru::whole(used));
        let total = Ok(Consumption { charged, operations: 1, ..Consumption::default() }.into());
        let report = ReportIn { group: "web".into(), incarnation: 0, total, waited: Vec::new() };
        let renewal = RenewIn { seq, reports: vec![report], ..RenewIn::default() };
        service.leasing().renew(session.client, session.session, renewal).unwrap();
        now.fetch_add(1_000_000, Ordering::Relaxed);
        reasons.push(why(&service, &key));
    }
    assert_eq!(reasons, [Some(Why::NoLease), Some(Why::Rate)]);
}
