//! Incarnations that were silent for long.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::audit::Actor;
use tidegate_controller::check::check;
use tidegate_controller::clock::Clock;
use tidegate_controller::error::AdminError;
use tidegate_controller::leasing::clients::Tombstone;
use tidegate_controller::service::{RenewIn, ReportIn, Service, ServiceConfig, Session};
use tidegate_controller::store::records::{consumption_bytes, ledger_key, put_json, tombstone_of, u64_key};
use tidegate_controller::store::{RedbStore, Store, Table, Write};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::{Ru, RuTotal};
use tidegate_core::usage::{Consumption, RuParts};

use crate::support::{Faulty, Lab, MemoryStore, Node, charged, group, report, started, store_path, tell};

#[tokio::test]
async fn silent_incarnations_are_folded_and_report_no_more() {
    let lab = Lab::start().await;
    lab.group("web", "100").await;
    lab.running.shutdown().await.unwrap();
    {
        let store = RedbStore::open(&store_path(&lab.folder)).unwrap();
        let charged = RuParts { write: Ru::whole(40), ..RuParts::default() };
        let total = Consumption { charged, operations: 40, ..Consumption::default() };
        let client = serde_json::json!({"name": "node", "incarnation": 3, "heard_unix_ms": 1});
        let row = |group| {
            Write::Put(Table::Ledger, ledger_key(ClientId(9), group), consumption_bytes(&total.into()))
        };
        let rows = [row(GroupId::DEFAULT), row(GroupId(GroupId::DEFAULT.0 + 1))];
        store.commit(&[put_json(Table::Clients, u64_key(9), &client).unwrap()]).unwrap();
        store.commit(&rows).unwrap();
    }
    let lab = Lab::at(lab.folder).await;
    lab.running.service().upkeep().tidy().unwrap();
    let all = async |lab: &Lab| [charged(lab, "default").await, charged(lab, "web").await];
    assert_eq!(all(&lab).await, [40_000_000; 2]);
    assert!(lab.running.service().leasing().clients().0.is_empty());

    let lab = lab.crash().await;
    assert_eq!(all(&lab).await, [40_000_000; 2]);
    let mut node = Node::connect(&lab, "node", 4).await.unwrap();
    node.report(vec![report("default", 3, 45), report("default", 0, 2)]).await;
    assert_eq!(charged(&lab, "default").await, 42_000_000);
    let (_, page) = lab.http_text("GET", "/metrics", "text/plain", b"").await;
    assert!(page.contains("tidegate_refused_total{reason=\"folded\"} 1\n"), "{page}");
}

/// A node whose start, some hours ahead of the clock, reported 5 RU a while ago; and the clock of all.
fn ahead(hours: u64) -> (Service, Arc<AtomicU64>, Arc<MemoryStore>, u64) {
    let (now, store) = (Arc::new(AtomicU64::new(0)), Arc::new(MemoryStore::default()));
    let service = started(&store, &now);
    let number = service.clock().unix_us() + hours * 3_600_000_000;
    let session = service.leasing().hello("node", number, "test").unwrap();
    tell(&service, &session, 1, number, 5);
    (service, now, store, number)
}

fn counted(service: &Service) -> RuTotal {
    let (rows, _) = service.accounts().usage("default", false).unwrap();
    rows[0].total.charged.write
}

#[test]
fn a_node_is_forgotten_when_it_may_not_report_any_more_and_counts_exactly_once() {
    let actor = Actor::new(None, "test");
    let forget = |service: &Service| {
        service.accounts().forget_clients(&actor, &["node".to_owned()]).map(|counts| counts[0])
    };
    let pass = |now: &AtomicU64, seconds: u64| now.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    for hours in [0, 20, 24 * 365] {
        let (service, now, store, number) = ahead(hours);
        let said = |error: AdminError| error.to_string();
        assert!(said(forget(&service).unwrap_err()).contains("is connected; stop the node"));
        let again = service.leasing().hello("node", number, "test").unwrap();
        service.leasing().disconnect(again.client, again.session);
        pass(&now, 59);
        let early = said(forget(&service).unwrap_err());
        assert!(early.contains("may still report") && early.contains("repeat this in 1s"), "{early}");
        // A crash makes nobody forget that, either: the last that is on disk of a node may be a minute old.
        service.upkeep().flush().unwrap();
        drop(service);
        let service = started(&store, &now);
        pass(&now, 1);
        let early = said(forget(&service).unwrap_err());
        assert!(early.contains("may still report"), "{early}");
        pass(&now, 59);
        assert_eq!(forget(&service).unwrap(), 1, "{hours}");
        assert_eq!((counted(&service), service.leasing().clients().0.len()), (Ru::whole(5).into(), 0));
        assert!(matches!(forget(&service), Err(AdminError::NotFound { .. })));
        for names in [&["a b"][..], &["a", "a"], &["a"; 1_001]] {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert!(matches!(
                service.accounts().forget_clients(&actor, &names),
                Err(AdminError::Invalid { .. })
            ));
        }
        let audit = service.definitions().audit_log("", 0, 10).unwrap();
        assert_eq!((audit[0].action.as_str(), audit[0].subject.as_str()), ("forget client", "client node"));
        let mut service = service;
        for crashed in [false, true] {
            if crashed {
                service = started(&store, &now);
            }
            // The node's clock is right now. Its report of the forgotten start is refused.
            let right = service.clock().unix_us();
            let session = service.leasing().hello("node", right, "test").unwrap();
            tell(&service, &session, 1, number, 9);
            assert_eq!(counted(&service), Ru::whole(5).into());
            assert!(
                service.leasing().hello("node", number, "test").is_err(),
                "nor is that start let in again"
            );
        }
    }
}

#[test]
fn of_several_nodes_all_are_forgotten_or_none() {
    let (now, store) = (Arc::new(AtomicU64::new(0)), Arc::new(MemoryStore::default()));
    let service = started(&store, &now);
    let (actor, names) = (Actor::new(None, "test"), ["a".to_owned(), "b".to_owned()]);
    let sessions =
        ["a", "b"].map(|name| service.leasing().hello(name, service.clock().unix_us(), "test").unwrap());
    let leave = |session: &Session| service.leasing().disconnect(session.client, session.session);
    leave(&sessions[0]);
    now.fetch_add(60_000_000, Ordering::SeqCst);
    let said = service.accounts().forget_clients(&actor, &names).unwrap_err().to_string();
    assert!(said.contains("client b is connected"), "{said}");
    let unknown = service.accounts().forget_clients(&actor, &["a".to_owned(), "c".to_owned()]);
    assert!(matches!(unknown, Err(AdminError::NotFound { what }) if what == "client c"));
    assert_eq!(
        (service.leasing().clients().0.len(), service.definitions().audit_log("", 0, 10).unwrap().len()),
        (2, 0)
    );
    leave(&sessions[1]);
    now.fetch_add(60_000_000, Ordering::SeqCst);
    assert_eq!(service.accounts().forget_clients(&actor, &names).unwrap(), [1, 1]);
    assert_eq!(
        (service.leasing().clients().0.len(), service.definitions().audit_log("", 0, 10).unwrap().len()),
        (0, 2)
    );
}

#[test]
fn a_node_that_was_never_stored_counts_once_if_the_disk_fails_while_it_is_forgotten() {
    for written in 0..4 {
        let (now, memory) = (Arc::new(AtomicU64::new(0)), Arc::new(MemoryStore::default()));
        let disk = Arc::new(Faulty::over(Arc::clone(&memory) as Arc<dyn Store>));
        let (store, clock) = (Arc::clone(&disk) as Arc<dyn Store>, Clock::driven(Arc::clone(&now)));
        let service = Service::load(store, ServiceConfig::default(), clock).unwrap();
        let session = service.leasing().hello("node", 1, "test").unwrap();
        tell(&service, &session, 1, 1, 5);
        service.leasing().disconnect(session.client, session.session);
        now.fetch_add(60_000_000, Ordering::SeqCst);
        disk.full.store(true, Ordering::SeqCst);
        disk.last.store(written, Ordering::SeqCst);
        let forgotten = service.accounts().forget_clients(&Actor::new(None, "test"), &["node".to_owned()]);
        drop(service);

        let service = started(&memory, &now);
        // Another node does not continue its rows, and its own report, never confirmed, is repeated.
        let other = service.leasing().hello("other", 1, "test").unwrap();
        tell(&service, &other, 1, 1, 3);
        if let Ok(again) = service.leasing().hello("node", 1, "test") {
            tell(&service, &again, 1, 1, 5);
        }
        assert_eq!(counted(&service), Ru::whole(8).into(), "{written} commits, {forgotten:?}");
    }
}

#[test]
fn what_is_kept_of_a_forgotten_node_until_its_rows_are_folded_is_written_once() {
    let now = Arc::new(AtomicU64::new(0));
    let disk = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
    let (store, clock) = (Arc::clone(&disk) as Arc<dyn Store>, Clock::driven(Arc::clone(&now)));
    let service = Service::load(store, ServiceConfig::default(), clock).unwrap();
    // The first flush after a minute forgets that the leases of before were longer.
    now.fetch_add(60_000_000, Ordering::SeqCst);
    service.upkeep().flush().unwrap();
    let gone = service.leasing().hello("gone", 1, "test").unwrap();
    tell(&service, &gone, 1, 1, 5);
    service.leasing().disconnect(gone.client, gone.session);
    now.fetch_add(60_000_000, Ordering::SeqCst);
    let busy = service.leasing().hello("busy", 1, "test").unwrap();
    tell(&service, &busy, 1, 1, 3);
    // The note and the rows are written, and the fold is not.
    disk.full.store(true, Ordering::SeqCst);
    disk.last.store(2, Ordering::SeqCst);
    service.accounts().forget_clients(&Actor::new(None, "test"), &["gone".to_owned()]).unwrap_err();
    // A sign of life within a minute of the last one that is on disk needs none.
    tell(&service, &busy, 2, 1, 3);
    service.upkeep().flush().unwrap();
    disk.full.store(false, Ordering::SeqCst);
    service.upkeep().tidy().unwrap();
    assert_eq!(counted(&service), Ru::whole(8).into());
}

/// What a node charges after its clock was put right counts, also when time reaches the number of its wrong start and that
/// one is folded.
#[test]
fn a_node_whose_earlier_start_was_ahead_of_the_clock_runs_on_when_that_one_is_folded() {
    let day = |now: &AtomicU64, days: u64| now.fetch_add(days * 24 * 3_600 * 1_000_000, Ordering::SeqCst);
    for crashed in [false, true] {
        let (mut service, now, store, wrong) = ahead(3 * 24);
        service.upkeep().flush().unwrap();
        let number = service.clock().unix_us();
        let mut session = service.leasing().hello("node", number, "test").unwrap();
        tell(&service, &session, 1, number, 1);
        service.upkeep().flush().unwrap();
        day(&now, 3);
        if crashed {
            service = started(&store, &now);
            session = service.leasing().hello("node", number, "test").unwrap();
        }
        tell(&service, &session, 2, number, 2);
        day(&now, 5);
        service.upkeep().tidy().unwrap();
        tell(&service, &session, 3, number, 4);
        let again = service.leasing().hello("node", number, "test").unwrap();
        tell(&service, &again, 1, number, 8);
        assert_eq!(counted(&service), Ru::whole(5 + 8).into());
        let known = service.leasing().clients().0;
        assert!(known.len() == 1 && known[0].incarnation == number && wrong > number, "{known:?}");
    }
}

#[test]
fn the_tombstone_of_a_single_start_is_removed_when_that_of_all_below_refuses_it() {
    let (service, now, store, number) = ahead(1);
    let forgotten = |start: u64, seconds: u64| {
        let session = service.leasing().hello("node", start, "test").unwrap();
        service.leasing().disconnect(session.client, session.session);
        now.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
        service.accounts().forget_clients(&Actor::new(None, "test"), &["node".to_owned()]).unwrap();
        let mut tombstones = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            tombstones.push(tombstone_of(key, value)?.1);
            Ok(ControlFlow::Continue(()))
        };
        store.scan(Table::Tombstones, &[], &mut visit).unwrap();
        tombstones
    };
    assert_eq!(forgotten(number, 120), [Tombstone::Only(number)]);
    let right = service.clock().unix_us();
    assert_eq!(forgotten(right, 7_200), [Tombstone::Below(number + 1)]);
    assert!(service.leasing().hello("node", number, "test").is_err());
}

#[test]
fn a_node_that_could_not_be_forgotten_on_a_full_disk_is_with_the_next_round() {
    let (now, memory) = (Arc::new(AtomicU64::new(0)), Arc::new(MemoryStore::default()));
    let disk = Arc::new(Faulty::over(Arc::clone(&memory) as Arc<dyn Store>));
    let service = started(&disk, &now);
    let session = service.leasing().hello("node", 1, "test").unwrap();
    tell(&service, &session, 1, 1, 5);
    service.upkeep().flush().unwrap();
    service.leasing().disconnect(session.client, session.session);
    now.fetch_add(60_000_000, Ordering::SeqCst);
    // The note is written, and the fold is not.
    disk.full.store(true, Ordering::SeqCst);
    disk.last.store(1, Ordering::SeqCst);
    service.accounts().forget_clients(&Actor::new(None, "test"), &["node".to_owned()]).unwrap_err();
    disk.fill(false);
    service.upkeep().tidy().unwrap();
    drop(service);
    let service = started(&memory, &now);
    assert_eq!((counted(&service), service.leasing().clients().0.len()), (Ru::whole(5).into(), 0));
    assert!(service.leasing().hello("node", 1, "test").is_err());
}

/// A row of a node that is gone would make copies of the store damaged.
#[test]
fn what_was_counted_apart_goes_with_its_group_before_its_node_is_folded() {
    let folder = tempfile::tempdir().unwrap();
    let (path, now) = (store_path(&folder), Arc::new(AtomicU64::new(0)));
    let service = started(&Arc::new(RedbStore::open(&path).unwrap()), &now);
    let (actor, web) = (Actor::new(None, "test"), group("web", "100"));
    service.definitions().create_group(&actor, &web, false).unwrap();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let charged = RuParts { write: Ru::whole(1_000_000_000_000), ..RuParts::default() };
    let total = Ok(Consumption { charged, operations: 1, ..Consumption::default() }.into());
    let report = ReportIn { group: "web".into(), incarnation: 0, total, waited: Vec::new() };
    let request = RenewIn { seq: 1, reports: vec![report], ..RenewIn::default() };
    service.leasing().renew(session.client, session.session, request).unwrap();
    service.upkeep().flush().unwrap();
    let (rows, _) = service.accounts().usage("web", false).unwrap();
    assert_eq!(rows[0].apart.operations, 1);
    service.definitions().delete_group(&actor, "web", "", 0, false).unwrap();
    service.leasing().disconnect(session.client, session.session);
    now.fetch_add(120_000_000, Ordering::SeqCst);
    assert_eq!(service.accounts().forget_clients(&actor, &["node".to_owned()]).unwrap(), [1]);
    drop(service);
    let checked = check(&path).unwrap();
    assert!(checked.is_whole() && checked.leftover == 0, "{checked:?}");
}

#[test]
fn what_a_node_charged_counts_once_though_its_fold_was_told_to_have_failed_and_is_on_disk() {
    // The note, the rows and the fold; the second number is how much of a claim nobody believes.
    for (written, claim) in [(0, 0), (1, 0), (2, 0), (2, 1_000_000_000_000)] {
        let (now, memory) = (Arc::new(AtomicU64::new(0)), Arc::new(MemoryStore::default()));
        let disk = Arc::new(Faulty::over(Arc::clone(&memory) as Arc<dyn Store>));
        let service = started(&disk, &now);
        let session = service.leasing().hello("gone", 1, "test").unwrap();
        tell(&service, &session, 1, 1, 5);
        tell(&service, &session, 2, 1, 5 + claim);
        service.leasing().disconnect(session.client, session.session);
        now.fetch_add(60_000_000, Ordering::SeqCst);
        let books = |service: &Service| {
            let (rows, _) = service.accounts().usage("default", false).unwrap();
            (rows[0].total.charged.write, rows[0].apart.charged.write)
        };
        let counted = (Ru::whole(5).into(), Ru::whole(claim).into());
        disk.unheard.store(true, Ordering::SeqCst);
        disk.full.store(true, Ordering::SeqCst);
        disk.last.store(written, Ordering::SeqCst);
        let actor = Actor::new(None, "test");
        service.accounts().forget_clients(&actor, &["gone".to_owned()]).unwrap_err();
        disk.fill(false);
        service.upkeep().tidy().unwrap();
        service.upkeep().flush().unwrap();
        assert_eq!(books(&service), counted, "{written} commits");
        drop(service);
        assert_eq!(books(&started(&memory, &now)), counted, "{written} commits, and a start");
    }
}
