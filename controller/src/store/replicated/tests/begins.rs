//! How a controller begins to follow a log: with a file of another log, with content, or with one that is of no use.

use std::fs;
use std::sync::Mutex;

use tidegate_consensus::model::{Fault, Model};
use tidegate_consensus::{Consensus as _, Step, Transaction};

use super::super::super::{RedbStore, Store as _, StoreError};
use super::super::applied::Applied;
use super::super::calls::Calls;
use super::super::checkpoint::{Checkpoint, Content};
use super::super::keys::Keys;
use super::super::set_back;
use super::memory::Memory;
use super::rules::{afresh, model, started, taken};
use super::*;
use crate::store::records::META_CLEAN;

fn keys() -> Keys {
    Keys::new(PREFIX).unwrap()
}

fn group(key: &str) -> Vec<Write> {
    vec![put(Table::Groups, key.as_bytes(), b"1")]
}

fn holding(key: &str) -> Arc<Memory> {
    let place = Memory::new();
    place.store().commit(&group(key)).unwrap();
    place
}

fn follows(model: &Arc<Model>, place: Arc<dyn Place>, seeds: bool) -> Result<Follower, StoreError> {
    Follower::follow(Arc::<Model>::clone(model), PREFIX, place, settings(30), seeds)
}

fn seeder(model: &Arc<Model>, place: &Arc<Memory>) -> Follower {
    follows(model, Arc::<Memory>::clone(place), true).unwrap()
}

fn take(follower: Follower) -> Result<ReplicatedStore, Box<NotTaken>> {
    let seen = follower.look().unwrap();
    follower.take(&seen, &owner("a"))
}

fn write(model: &Model, steps: Vec<Step>) {
    model.transact(&Transaction { then: steps, ..Transaction::default() }, Duration::ZERO).unwrap();
}

#[test]
fn a_store_with_any_row_of_its_own_is_not_begun_without_being_asked() {
    // The row of the file that each has is between them.
    for key in [&b"aaa"[..], META_CLEAN, b"zzz"] {
        let (model, place) = (model(), Memory::new());
        place.store().commit(&[put(Table::Meta, key, b"1")]).unwrap();
        let error = follow(Arc::<Model>::clone(&model), &place).unwrap_err();
        assert!(error.to_string().contains("asking for that explicitly"), "{error}");
        assert_eq!(rows(&*place.store()).len(), 1);
    }
}

#[test]
fn a_store_of_another_log_is_built_again_also_where_an_empty_log_would_begin_with_it() {
    let (one, two, place) = (model(), model(), Memory::new());
    taken(&one, &place, "a").commit(&group("one")).unwrap();
    let store = taken(&two, &Memory::new(), "a");
    store.commit(&group("two")).unwrap();
    assert_eq!(rows(seeder(&two, &place).local()), rows(&store));
}

#[test]
fn a_log_that_begins_with_a_store_of_another_log_counts_from_its_own_beginning() {
    let (one, two, place) = (model(), model(), Memory::new());
    let store = taken(&one, &place, "a");
    for key in ["a", "b", "c", "d", "e"] {
        store.commit(&group(key)).unwrap();
    }
    let mut early = started(&two, &Memory::new());
    let store = take(seeder(&two, &place)).unwrap();
    for key in ["f", "g"] {
        store.commit(&group(key)).unwrap();
        early.catch_up().unwrap();
        assert_eq!((rows(early.local()), afresh(&two)), (rows(&store), rows(&store)));
    }
    assert_eq!(rows(started(&two, &place).local()).len(), 7);
}

#[test]
fn a_log_begins_with_one_store_and_others_are_refused_and_left_alone() {
    let (model, first) = (model(), holding("first"));
    let (follows, takes) = (holding("follows"), holding("takes"));
    let (mut following, taking) = (seeder(&model, &follows), seeder(&model, &takes));
    let store = take(seeder(&model, &first)).unwrap();
    for error in [following.catch_up().unwrap_err(), take(taking).unwrap_err().error] {
        assert!(matches!(error, StoreError::Stray { .. }), "{error}");
        assert!(error.to_string().contains("and so has the log"), "{error}");
    }
    assert_eq!((rows(&*follows.store()).len(), rows(&*takes.store()).len()), (1, 1));
    assert_eq!((afresh(&model), rows(&store)), (rows(&*first.store()), rows(&*first.store())));
}

#[test]
fn a_beginning_that_fails_anywhere_is_made_by_the_next_attempt() {
    let mut calls = 0;
    loop {
        let (model, place) = (model(), holding("first"));
        let follower = seeder(&model, &place);
        let seen = follower.look().unwrap();
        model.plan(vec![None; calls]);
        model.plan([Some(Fault::Refused)]);
        let not = match follower.take(&seen, &owner("a")) {
            Ok(_) => break,
            Err(not) => not,
        };
        model.calm();
        let store = take(not.follower).unwrap();
        store.commit(&group("second")).unwrap();
        assert_eq!((afresh(&model), rows(&store).len()), (rows(&store), 2), "call {calls}");
        calls += 1;
    }
    assert!(calls > 5, "{calls}");
}

#[test]
fn a_file_is_replaced_where_it_is_damaged_and_the_log_has_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let replaced = folder.path().join("store.replaced");
    let place = || Arc::new(FilePlace::new(&path));
    let model = model();
    // In use by another process, or damaged while there is no log to build it from.
    let held = RedbStore::open(&path).unwrap();
    held.commit(&group("held")).unwrap();
    taken(&model, &Memory::new(), "a").commit(&group("a")).unwrap();
    let error = follows(&model, place(), false).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert_eq!((rows(&held).len(), replaced.exists()), (1, false));
    drop(held);
    fs::write(&path, vec![1; 9_000]).unwrap();
    let error = follows(&self::model(), place(), false).unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), vec![1; 9_000]);
    // What is there cannot be kept.
    fs::create_dir_all(replaced.join("kept")).unwrap();
    let error = follows(&model, place(), false).unwrap_err();
    assert!(error.to_string().contains("put a replaced store aside"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), vec![1; 9_000]);
    fs::remove_dir_all(&replaced).unwrap();
    let follower = follows(&model, place(), false).unwrap();
    assert_eq!((rows(follower.local()), replaced.exists()), (afresh(&model), true));
}

#[test]
fn a_file_that_is_replaced_takes_its_seal_along() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let local = RedbStore::open(&path).unwrap();
    local.seal().unwrap();
    drop(local);
    fs::write(&path, vec![1; 9_000]).unwrap();
    let model = model();
    taken(&model, &Memory::new(), "a").commit(&group("a")).unwrap();
    drop(follows(&model, Arc::new(FilePlace::new(&path)), false).unwrap());
    assert_eq!(RedbStore::open(&path).unwrap().break_seal().unwrap(), None);
}

#[test]
fn a_file_that_has_fallen_behind_is_built_again_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let place = Arc::new(FilePlace::new(&folder.path().join("store")));
    let model = model();
    let store = taken(&model, &Memory::new(), "a");
    let mut follower = follows(&model, place, false).unwrap();
    for round in 0..2 {
        for key in 0..40_u8 {
            store.commit(&[put(Table::Ledger, &[key], &[round; 40])]).unwrap();
        }
        assert!(store.checkpoint_if_due().unwrap());
    }
    follower.catch_up().unwrap();
    assert_eq!(rows(follower.local()), rows(&store));
    assert!(!folder.path().join("store.replaced").exists());
}

#[test]
fn a_place_is_one_that_the_log_has_if_its_segment_or_a_checkpoint_of_it_is_there() {
    let model = model();
    let content = Content { pages: 0, size: 0, hash: [0; 32] };
    let checkpoint = Checkpoint { generation: 1, n: 10, epoch: 3, logged: 0, content };
    write(&model, vec![Step::Put(keys().checkpoint(), checkpoint.encode())]);
    let calls = Calls::new(Arc::<Model>::clone(&model), PREFIX, settings(0)).unwrap();
    for (n, epoch, expected) in
        [(0, 0, true), (9, 2, true), (10, 3, true), (10, 2, false), (10, 4, false), (11, 3, false)]
    {
        let has = set_back::has(&calls, Applied { n, epoch, logged: 0 }).unwrap();
        assert_eq!(has, expected, "{n} {epoch}");
    }
}

#[test]
fn a_log_without_its_word_is_refused_and_so_is_one_of_another_version() {
    let model = model();
    drop(started(&model, &Memory::new()));
    let (cluster, format) = (keys().cluster(), keys().format());
    write(&model, vec![Step::Delete(cluster.clone(), [&cluster[..], b"\0"].concat())]);
    let refused = || follow(Arc::<Model>::clone(&model), &Memory::new()).unwrap_err().to_string();
    let error = refused();
    assert!(error.contains("t/cluster") && error.contains("it is missing"), "{error}");
    write(&model, vec![Step::Put(format, b"2".to_vec())]);
    let error = refused();
    assert!(error.contains("t/format") && error.contains("\"2\""), "{error}");
}

#[test]
fn a_record_of_a_controller_that_is_not_there_is_not_removed() {
    let members = Members::new(model(), PREFIX, settings(0)).unwrap();
    assert!(!members.remove("nobody", 0).unwrap());
}

/// Keeps what it hears of.
#[derive(Default)]
struct Heard(Mutex<Vec<usize>>);

impl Picture for Heard {
    fn read(&self, _: &dyn Store) {}

    fn changed(&self, batch: &[Write]) {
        self.0.lock().unwrap().push(batch.len());
    }
}

#[test]
fn a_long_log_is_applied_in_several_commits() {
    let model = model();
    let (consensus, place) = (Arc::<Model>::clone(&model), Memory::new());
    let long = Settings { segment: 500_000, ..settings(30) };
    let follower = Follower::follow(consensus, PREFIX, place, long, false).unwrap();
    let store = take(follower).unwrap();
    let (mut follower, heard) = (started(&model, &Memory::new()), Arc::new(Heard::default()));
    follower.draw(Arc::<Heard>::clone(&heard));
    for key in 0..8_u8 {
        store.commit(&[put(Table::Ledger, &[key], &vec![7; 400_000])]).unwrap();
    }
    follower.catch_up().unwrap();
    assert_eq!(rows(follower.local()), rows(&store));
    // Three batches are longer than what is kept back, and each commit has a row of its place.
    assert_eq!(*heard.0.lock().unwrap(), [4, 4, 3]);
    follower.catch_up().unwrap();
    assert_eq!(heard.0.lock().unwrap().len(), 3, "without anything new it writes nothing");
}
