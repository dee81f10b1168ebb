//! Single bits that flip in the store's file: a controller serves exactly what was stored, or refuses to start.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_controller::audit::Actor;
use tidegate_controller::check::check;
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{RenewIn, ReportIn, Service, ServiceConfig};
use tidegate_controller::store::{RedbStore, Row, Store as _, StoreError, Table, Write};
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;

/// Flipped bits, one in each copy.
const FLIPS: usize = 1_000;
/// Groups and bindings: more than one page of each.
const GROUPS: usize = 60;

fn load(path: &Path) -> Result<Service, StoreError> {
    let store = Arc::new(RedbStore::open(path)?);
    Service::load(store, ServiceConfig::default(), Clock::driven(Arc::new(AtomicU64::new(0))))
}

/// A folder in memory, if the machine has one: a disk would wait for some thousand syncs.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// Everything that a controller serves from its store, except what every start changes.
fn served(service: &Service) -> String {
    let history = |resolution| service.accounts().usage_history("group-7", resolution, 0, 0).unwrap();
    format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
        service.definitions().groups("", 0).unwrap(),
        service.definitions().bindings("", None, 0).unwrap(),
        service.accounts().usage("", true).unwrap(),
        service.definitions().cost_tables(),
        service
            .leasing()
            .clients()
            .0
            .iter()
            .map(|row| (row.name.clone(), row.incarnation))
            .collect::<Vec<_>>(),
        service.definitions().audit_log("", 0, 1_000).unwrap(),
        service.statements().runaways("", 0).unwrap(),
        history("minute"),
        history("hour"),
    )
}

/// A store that was used, and what a controller serves from it; closed in order, or killed after its last commit.
fn used(folder: &Path, in_order: bool) -> (PathBuf, String) {
    let path = folder.join(if in_order { "closed" } else { "killed" });
    let service = load(&path).unwrap();
    let actor = Actor::new(None, "test");
    for number in 0..GROUPS {
        let text = v1::Group {
            name: format!("group-{number}"),
            ru_per_sec: (1_000 + number).to_string(),
            ..v1::Group::default()
        };
        service.definitions().create_group(&actor, &text, false).unwrap();
        service.definitions().bind(&actor, &format!("tenant-{number}"), "", &text.name).unwrap();
    }
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let total = Consumption { charged: RuParts::flat(Ru::whole(3)), operations: 1, ..Consumption::default() };
    let reports = (0..GROUPS).map(|number| ReportIn {
        group: format!("group-{number}"),
        incarnation: 0,
        total: Ok(total.into()),
        waited: Vec::new(),
    });
    let renewal = RenewIn { seq: 1, reports: reports.collect(), ..RenewIn::default() };
    service.leasing().renew(session.client, session.session, renewal).unwrap();
    service.upkeep().flush().unwrap();
    if in_order {
        service.shut_down().unwrap();
    }
    let text = served(&service);
    if in_order {
        drop(service);
    } else {
        // As a kill leaves it in the middle of its life.
        let copy = folder.join("killed-there");
        fs::copy(&path, &copy).unwrap();
        fs::copy(note_of(&path), note_of(&copy)).unwrap();
        drop(service);
        return (copy, text);
    }
    (path, text)
}

fn note_of(path: &Path) -> PathBuf {
    path.with_extension("commit")
}

/// A bit of a page in use, as far as that can be recognised, or of any page.
fn drawn(random: &mut StdRng, bytes: &[u8]) -> usize {
    loop {
        let bit = random.random_range(0..bytes.len() * 8);
        let page = bit / 8 / 4_096 * 4_096;
        if random.random_range(0..4) == 0 || bytes[page..page + 4_096].iter().any(|byte| *byte != 0) {
            return bit;
        }
    }
}

#[test]
fn of_a_thousand_turned_bits_none_is_served() {
    let folder = scratch();
    let stores = [used(folder.path(), true), used(folder.path(), false)];
    let threads = 2;
    let refused: Vec<usize> = std::thread::scope(|scope| {
        let each = (0..threads).map(|thread| {
            let (stores, folder) = (&stores, folder.path());
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(20 + thread as u64);
                (thread..FLIPS)
                    .step_by(threads)
                    .filter(|number| {
                        let (path, expected) = &stores[number / threads % 2];
                        turned(folder, path, expected, *number, &mut random)
                    })
                    .count()
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let refused: usize = refused.into_iter().sum();
    assert!(refused > FLIPS / 5, "only {refused} were met");
}

/// Flips a bit in a copy and starts on it; returns whether the start was refused.
fn turned(folder: &Path, path: &Path, expected: &str, number: usize, random: &mut StdRng) -> bool {
    let copy = folder.join(format!("copy-{number}"));
    let mut bytes = fs::read(path).unwrap();
    let bit = drawn(random, &bytes);
    bytes[bit / 8] ^= 1 << (bit % 8);
    fs::write(&copy, &bytes).unwrap();
    if note_of(path).exists() {
        fs::copy(note_of(path), note_of(&copy)).unwrap();
    }
    let refused = match load(&copy) {
        Ok(service) => {
            assert_eq!(served(&service), expected, "bit {bit} of {}", path.display());
            drop(service);
            false
        }
        Err(error) => {
            let error = error.to_string();
            let says = error.contains(&format!("copy-{number}")) || error.contains("the store");
            assert!(says && (error.contains("backup") || error.contains("version")), "{error}");
            assert!(
                fs::read(&copy).unwrap() == bytes,
                "what is refused is left as it is: bit {bit}: {error}"
            );
            true
        }
    };
    fs::remove_file(&copy).unwrap();
    let _ = fs::remove_file(note_of(&copy));
    refused
}

/// A store that was killed, as it was before its last commit and after.
fn before_and_after(folder: &Path) -> (PathBuf, Vec<u8>, Vec<u8>) {
    let path = folder.join("store");
    let service = load(&path).unwrap();
    let actor = Actor::new(None, "test");
    let text = |name: &str| v1::Group { name: name.into(), ru_per_sec: "5".into(), ..v1::Group::default() };
    service.definitions().create_group(&actor, &text("first"), false).unwrap();
    let before = fs::read(&path).unwrap();
    service.definitions().create_group(&actor, &text("last"), false).unwrap();
    let after = fs::read(&path).unwrap();
    let note = fs::read(note_of(&path)).unwrap();
    drop(service);
    fs::write(&path, &after).unwrap();
    fs::write(note_of(&path), note).unwrap();
    (path, before, after)
}

#[test]
fn a_commit_that_repair_takes_back_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, before, after) = before_and_after(folder.path());
    let pages: Vec<usize> = (1..after.len() / 4_096)
        .filter(|page| {
            let range = page * 4_096..(page + 1) * 4_096;
            before.get(range.clone()).is_none_or(|was| *was != after[range])
        })
        .collect();
    assert!(!pages.is_empty());
    let mut missed = 0;
    for page in &pages {
        let mut turned = after.clone();
        // The fourth byte of a page holds its number of rows.
        turned[page * 4_096 + 3] ^= 1;
        fs::write(&path, &turned).unwrap();
        let error =
            load(&path).map(|service| served(&service)).expect_err("the last commit is gone").to_string();
        missed += usize::from(error.contains("was acknowledged") && error.contains("store.commit"));
        assert!(error.contains("restore it from a backup"), "{error}");
        let checked = check(&path).expect_err("a check sees it, too").to_string();
        assert_eq!(checked, error);
    }
    assert!(missed > 0, "redb went back in none of {} cases", pages.len());
}

#[test]
fn a_kill_between_a_commit_and_its_note_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let actor = Actor::new(None, "test");
    for start in 0..3 {
        let service = load(&path).unwrap();
        for number in 0..3 {
            let note = fs::read(note_of(&path)).unwrap_or_default();
            let name = format!("group-{start}-{number}");
            let text = v1::Group { name, ru_per_sec: "5".into(), ..v1::Group::default() };
            service.definitions().create_group(&actor, &text, false).unwrap();
            let copy = folder.path().join("copy");
            fs::copy(&path, &copy).unwrap();
            fs::write(note_of(&copy), note).unwrap();
            let copied = load(&copy).unwrap();
            assert_eq!(copied.status().groups, service.status().groups);
        }
        // The very first commit of an opening, too: the note then has the one before.
        let note = fs::read(note_of(&path)).unwrap();
        drop(service);
        drop(load(&path).unwrap());
        fs::write(note_of(&path), note).unwrap();
    }
    assert_eq!(load(&path).unwrap().status().groups, 10);
}

#[test]
fn damage_that_is_met_while_running_is_an_error_and_never_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    // More than the memory kept for pages of the file.
    let row = |number: u8| Write::Put(Table::Hours, vec![number], vec![number; 1 << 20]);
    RedbStore::open(&path).unwrap().commit(&(0..24).map(row).collect::<Vec<_>>()).unwrap();
    let rows = rows_of(&RedbStore::open(&path).unwrap()).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let turn = |bit: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, bit / 8).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], bit / 8).unwrap();
    };
    let mut random = StdRng::seed_from_u64(7);
    let mut met = 0;
    for round in 0..6 {
        let store = RedbStore::open(&path).unwrap();
        let bit = random.random_range(0..file.metadata().unwrap().len() * 8);
        turn(bit);
        match rows_of(&store) {
            Ok(read) => assert!(read == rows, "bit {bit}"),
            Err(error) => {
                met += 1;
                let said = error.to_string();
                assert!(matches!(error, StoreError::Damaged { .. }) && said.contains("restore"), "{said}");
                store.commit(&[row(round)]).expect_err("nothing is built on damage");
                // The store is read through once more then, and a bit that no row needs does not matter.
                assert!(
                    rows_of(&store).is_ok_and(|read| read == rows) || rows_of(&store).is_err(),
                    "bit {bit}"
                );
            }
        }
        drop(store);
        turn(bit);
    }
    assert!(met > 1, "only {met} were met");
}

fn rows_of(store: &RedbStore) -> Result<Vec<Row>, StoreError> {
    let mut rows = Vec::new();
    store.copy(&mut |table, key, value| {
        rows.push((table, key.to_vec(), value.to_vec()));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(rows)
}

#[test]
fn a_store_and_what_lies_beside_it_are_their_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = used(folder.path(), true);
    let mut names = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.path());
        names += 1;
    }
    assert_eq!(names, 3, "the store, its seal and its note");
    assert!(path.exists());
}
