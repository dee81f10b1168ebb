//! The controller at a glance, its backups, and what it refuses to start on: by the calls of the service.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::clock::Clock;
use tidegate_controller::service::{Service, ServiceConfig};
use tidegate_controller::store::records::{
    META_COMMIT, META_FENCE, META_LONGEST_TTL, META_NEXT_CLIENT, pair_key, put_number,
};
use tidegate_controller::store::{Row, Store, StoreError, Table, VisitAll, Write};
use tidegate_core::group::GroupId;
use tidegate_proto::v1;

use crate::support::{Faulty, MemoryStore, actor, pass_on, started};

const SECOND: u64 = 1_000_000;

/// A controller, its store, and its clock.
fn room() -> (Service, Arc<Faulty>, Arc<AtomicU64>) {
    let store = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
    let now = Arc::<AtomicU64>::default();
    (started(&store, &now), store, now)
}

fn has_metric(service: &Service, line: &str) {
    let page = service.metrics_page().unwrap();
    assert!(page.lines().any(|of| of == line), "{line}: {page}");
}

#[test]
fn warnings_come_and_go_with_what_they_warn_of() {
    let (service, store, now) = room();
    let warnings = |service: &Service| service.status().warnings.join("\n");
    assert_eq!(warnings(&service), "");
    drop(service);
    let service = started(&store, &now);
    assert!(
        warnings(&service).contains("recovering from an unclean stop for up to 5."),
        "{}",
        warnings(&service)
    );
    now.fetch_add(10 * SECOND, Ordering::SeqCst);
    assert_eq!(warnings(&service), "");
    store.fill(true);
    let web = v1::Group { name: "web".into(), ru_per_sec: "5".into(), ..v1::Group::default() };
    service.definitions().create_group(&actor(), &web, false).unwrap_err();
    store.fill(false);
    assert!(warnings(&service).starts_with("1 store commits failed since start"), "{}", warnings(&service));
}

#[test]
fn metrics_show_the_epoch_who_leads_commits_and_watches() {
    let (service, store, now) = room();
    drop(service);
    let service = started(&store, &now);
    for line in ["tidegate_epoch 2", "tidegate_leads 1", "tidegate_store_commit_seconds_count 0"] {
        has_metric(&service, line);
    }
    let ends = service.clock().unix_ms() + 5_000;
    let watch = v1::Watch {
        group: "default".into(),
        r#match: "exact".into(),
        digest: "1".repeat(64),
        action: "dryrun".into(),
        end_unix_ms: ends,
        ..v1::Watch::default()
    };
    service.statements().add_watch(&actor(), &watch).unwrap();
    has_metric(&service, "tidegate_statement_watches 1");
    has_metric(&service, "tidegate_store_commit_seconds_count 1");
    // The end of a watch changes the rules, and nothing else does.
    let rules = service.statements().follow_rules().unwrap();
    service.leasing().expire();
    assert!(!rules.has_changed().unwrap());
    now.fetch_add(5 * SECOND, Ordering::SeqCst);
    service.leasing().expire();
    assert!(rules.has_changed().unwrap());
}

/// All rows of a store but the one that belongs to this file only.
fn all(store: &dyn Store) -> BTreeMap<(Table, Vec<u8>), Vec<u8>> {
    let mut rows = BTreeMap::new();
    let visited = store.copy(&mut |table, key, value| {
        rows.insert((table, key.to_vec()), value.to_vec());
        Ok(ControlFlow::Continue(()))
    });
    visited.unwrap();
    rows.remove(&(Table::Meta, META_COMMIT.to_vec()));
    rows
}

#[test]
fn a_backup_has_every_row_once_in_parts_of_bounded_size_and_ends_when_nobody_takes_more() {
    let (service, store, _) = room();
    let large = |number: u64| {
        let mut consumption = vec![0; 153];
        consumption[0] = 1;
        Write::Put(Table::Hours, pair_key((500_000 + number) * 3_600, GroupId::DEFAULT), consumption)
    };
    store.commit(&(0..5_000).map(large).collect::<Vec<_>>()).unwrap();
    // As a store on a disk has it, and one whose key only looks alike.
    let own = |table| Write::Put(table, META_COMMIT.to_vec(), b"1".to_vec());
    store.commit(&[own(Table::Meta), own(Table::Tombstones)]).unwrap();
    let mut parts: Vec<Vec<Row>> = Vec::new();
    let total = service
        .backup(&actor(), |part| {
            parts.push(part);
            ControlFlow::Continue(())
        })
        .unwrap();
    let rows: Vec<Row> = parts.iter().flatten().cloned().collect();
    assert_eq!(total, rows.len() as u64);
    let copied: BTreeMap<_, _> = rows.into_iter().map(|(table, key, value)| ((table, key), value)).collect();
    assert_eq!(copied.len() as u64, total, "none twice");
    assert_eq!(copied, all(&*store));
    let bytes = |part: &Vec<Row>| part.iter().map(|(_, key, value)| key.len() + value.len()).sum::<usize>();
    let (last, full) = parts.split_last().unwrap();
    assert!(full.len() >= 3 && !last.is_empty(), "{} parts", parts.len());
    for part in full {
        assert!((256 * 1_024..257 * 1_024).contains(&bytes(part)), "{}", bytes(part));
    }
    let mut taken = Vec::new();
    let broken = service.backup(&actor(), |part| {
        taken.push(part.len());
        ControlFlow::Break(())
    });
    assert_eq!((broken.unwrap(), taken), (parts[0].len() as u64, vec![parts[0].len()]));
}

/// A store that is damaged: some rows can be read, and then no more.
#[derive(Default)]
struct Damaged(MemoryStore);

impl Store for Damaged {
    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        self.0.copy(visit)?;
        Err(StoreError::Failed { operation: "read a row", reason: "input/output error".into() })
    }

    pass_on!(0: commit, scan, get, seal, break_seal);
}

#[test]
fn a_backup_that_lacks_rows_is_none() {
    let service = started(&Arc::new(Damaged::default()), &Arc::default());
    let refused = service.backup(&actor(), |_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        refused.to_string().contains("no backup: ") && refused.to_string().contains("input/output"),
        "{refused}"
    );
}

#[test]
fn lengths_and_numbers_that_no_controller_can_have_stored_are_refused_at_the_start() {
    let longest = 600 * SECOND;
    for (key, most) in [(META_LONGEST_TTL, longest), (META_FENCE, longest), (META_NEXT_CLIENT, u64::MAX / 2)]
    {
        let start = |number: u64| -> Result<Service, StoreError> {
            let (service, store, now) = room();
            drop(service);
            store.commit(&[put_number(key, number)]).unwrap();
            Service::load(store, ServiceConfig::default(), Clock::driven(now))
        };
        assert!(start(most).is_ok());
        assert!(start(most + 1).is_err());
    }
}
