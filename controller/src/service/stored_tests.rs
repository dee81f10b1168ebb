//! What a controller believes of a store that is slow or full, and what a check says of what it stored.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tempfile::TempDir;
use tidegate_core::units::{Ru, Span};
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;

use crate::check::check;
use crate::clock::Clock;
use crate::definitions::audit::Actor;
use crate::leasing::renewal::{RenewIn, ReportIn};
use crate::service::{Service, ServiceConfig, Session, Silence};
use crate::store::{RedbStore, Store, StoreError, Table, Visit, VisitAll, Write};

const SECOND: u64 = 1_000_000;

/// A disk of which each commit takes a while, or that is full.
struct Disk {
    store: RedbStore,
    now: Arc<AtomicU64>,
    takes_us: AtomicU64,
    full: AtomicBool,
}

impl Store for Disk {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        self.now.fetch_add(self.takes_us.load(Ordering::Relaxed), Ordering::Relaxed);
        if self.full.load(Ordering::Relaxed) {
            return Err(StoreError::Failed { operation: "commit", reason: "the disk is full".to_owned() });
        }
        self.store.commit(batch)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.store.scan(table, from, visit)
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.store.get(table, keys)
    }

    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        self.store.copy(visit)
    }

    fn seal(&self) -> Result<String, StoreError> {
        self.store.seal()
    }

    fn break_seal(&self) -> Result<Option<String>, StoreError> {
        self.store.break_seal()
    }
}

/// A controller on such a disk, by a clock that the test sets.
struct House {
    service: Service,
    disk: Arc<Disk>,
    now: Arc<AtomicU64>,
    folder: TempDir,
}

impl House {
    fn new(config: ServiceConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, now) =
            (RedbStore::open(&folder.path().join("store")).unwrap(), Arc::<AtomicU64>::default());
        let (takes_us, full) = (AtomicU64::default(), AtomicBool::default());
        let disk = Arc::new(Disk { store, now: Arc::clone(&now), takes_us, full });
        let clock = Clock::driven(Arc::clone(&now));
        let service = Service::load(Arc::clone(&disk) as _, config, clock).unwrap();
        Self { service, disk, now, folder }
    }

    fn pass(&self, seconds: u64) {
        self.now.fetch_add(seconds * SECOND, Ordering::Relaxed);
    }

    fn create(&self, name: &str) -> bool {
        let (name, ru_per_sec) = (name.to_owned(), "100".to_owned());
        let group = v1::Group { name, ru_per_sec, ..v1::Group::default() };
        self.service.definitions().create_group(&Actor::new(None, "test"), &group, false).is_ok()
    }

    fn report(&self, session: &Session, seq: u64, group: &str, ru: i64) {
        let charged = RuParts::flat(Ru::whole(ru));
        let total = Ok(Consumption { charged, operations: 1, ..Consumption::default() }.into());
        let report = ReportIn { group: group.to_owned(), incarnation: 0, total, waited: Vec::new() };
        let request = RenewIn { seq, reports: vec![report], ..RenewIn::default() };
        self.service.leasing().renew(session.client, session.session, request).unwrap();
    }

    fn rows(&self, table: Table) -> usize {
        let mut count = 0;
        let mut visit = |_: &[u8], _: &[u8]| {
            count += 1;
            Ok(ControlFlow::Continue(()))
        };
        self.disk.scan(table, &[], &mut visit).unwrap();
        count
    }
}

/// A successor counts from what it can have seen, and it can have seen the row as soon as the commit began.
#[test]
fn a_fence_counts_from_the_beginning_of_a_commit_however_long_it_takes() {
    let fence = Some(Span::secs(5));
    for (takes, left) in [(0, 5), (3, 2), (4, 1)] {
        let house = House::new(ServiceConfig { fence, ..ServiceConfig::default() });
        house.pass(1);
        house.disk.takes_us.store(takes * SECOND, Ordering::Relaxed);
        assert!(house.create("web"));
        house.pass(left - 1);
        assert_eq!(house.service.silence(), None, "{takes} s");
        house.pass(1);
        assert!(matches!(house.service.silence(), Some(Silence::CutOff(_))), "{takes} s");
    }
}

#[test]
fn an_hour_that_could_not_be_packed_is_packed_by_the_next_round() {
    let house = House::new(ServiceConfig::default());
    let session = house.service.leasing().hello("node", 1, "test").unwrap();
    for (seq, passes) in [(1, 3_600), (2, 3_600), (3, 7_200)] {
        house.report(&session, seq, "default", i64::try_from(seq).unwrap());
        house.pass(passes);
    }
    house.service.upkeep().flush().unwrap();
    let packed = || house.rows(Table::PastMinutes);
    for hours in 0..3 {
        house.disk.full.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            house.service.upkeep().tidy().unwrap_err();
        }
        assert_eq!(packed(), hours);
        house.disk.full.store(false, Ordering::Relaxed);
        house.service.upkeep().tidy().unwrap();
        assert_eq!(packed(), hours + 1);
    }
}

/// Nobody is named in the sums of those that are folded.
#[test]
fn a_store_is_whole_once_what_was_counted_apart_is_folded() {
    let House { service, disk, now, folder } = {
        let house = House::new(ServiceConfig::default());
        assert!(house.create("web") && house.create("gone"));
        for (node, ru) in [("one", 1_000_000_000_000), ("other", 1_000_000_000_000), ("calm", 5)] {
            let session = house.service.leasing().hello(node, 1, "test").unwrap();
            house.report(&session, 1, "web", ru);
            house.report(&session, 2, "gone", ru);
            house.service.leasing().disconnect(session.client, session.session);
        }
        house
    };
    let actor = Actor::new(None, "test");
    service.upkeep().flush().unwrap();
    service.definitions().delete_group(&actor, "gone", "", 0, false).unwrap();
    now.fetch_add(120 * SECOND, Ordering::Relaxed);
    let apart = || service.accounts().usage("web", false).unwrap().0[0].apart.operations;
    for (nodes, of_nobody) in [(&["one", "calm"][..], 2), (&["other"], 2)] {
        let names: Vec<String> = nodes.iter().map(|name| (*name).to_owned()).collect();
        service.accounts().forget_clients(&actor, &names).unwrap();
        assert_eq!(apart(), of_nobody);
    }
    drop((service, disk));
    let checked = check(&folder.path().join("store")).unwrap();
    assert!(checked.is_whole() && checked.leftover == 0, "{checked:?}");
    assert_eq!(checked.rows.get(&Table::Apart), Some(&1), "both are one sum");
}
