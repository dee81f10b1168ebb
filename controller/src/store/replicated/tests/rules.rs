//! One rule at a time.

use std::sync::Mutex;

use tidegate_consensus::model::{Fault, Model};
use tidegate_consensus::{ConsensusError, Guard, Step, Transaction};

use super::super::super::{RedbStore, StoreError};
use super::super::keys::Keys;
use super::memory::Memory;
use super::way::{Over, Way};
use super::*;
use crate::service::{Service, ServiceConfig};
use crate::store::records::{META_CLEAN, META_COMMIT};

pub(super) fn model() -> Arc<Model> {
    Arc::default()
}

pub(super) fn started(model: &Arc<Model>, place: &Arc<Memory>) -> Follower {
    follow(Arc::<Model>::clone(model), place).unwrap()
}

/// Takes the log over.
pub(super) fn taken(model: &Arc<Model>, place: &Arc<Memory>, name: &str) -> ReplicatedStore {
    let follower = started(model, place);
    let seen = follower.look().unwrap();
    follower.take(&seen, &owner(name)).unwrap()
}

fn group(key: &str) -> Vec<Write> {
    vec![put(Table::Groups, key.as_bytes(), b"1")]
}

fn groups(store: &dyn Store) -> Vec<String> {
    keys(store, Table::Groups)
}

fn keys(store: &dyn Store, of: Table) -> Vec<String> {
    let keys = rows(store).into_keys().filter(|(table, _)| *table == of);
    keys.map(|(_, key)| String::from_utf8(key).unwrap()).collect()
}

/// Numbers of the segments that are there.
pub(super) fn numbers(model: &Model) -> Vec<u64> {
    let keys = Keys::new(PREFIX).unwrap();
    model.rows().iter().filter_map(|row| keys.number(&row.key)).collect()
}

/// What a controller that begins with nothing makes of the log.
pub(super) fn afresh(model: &Arc<Model>) -> Rows {
    rows(started(model, &Memory::new()).local())
}

#[test]
fn whatever_fails_every_acknowledged_batch_is_there_once_and_in_order() {
    let mut all = world::Course::default();
    for seed in 0..300 {
        let world::Course { acknowledged, unknown, takes, checkpoints, skipped, grown } = world::run(seed);
        all.acknowledged += acknowledged;
        all.unknown += unknown;
        all.takes += takes;
        all.checkpoints += checkpoints;
        all.skipped += skipped;
        all.grown += grown;
    }
    // What is to be judged has happened.
    assert!(all.acknowledged > 5_000 && all.unknown > 50, "{all:?}");
    assert!(all.takes > 500 && all.checkpoints > 50 && all.skipped > 20, "{all:?}");
    assert!(all.grown > 2_000, "{all:?}");
}

#[test]
fn a_lost_answer_is_found_and_takes_no_second_number() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    for fault in [Fault::Lost, Fault::Away, Fault::Late] {
        model.plan([Some(fault)]);
        store.commit(&group(&format!("{fault:?}"))).unwrap();
    }
    assert!(model.deliver(0));
    store.commit(&group("z")).unwrap();
    assert_eq!(numbers(&model), [1, 2, 3, 4]);
    assert_eq!(groups(&store), ["Away", "Late", "Lost", "z"]);
    assert_eq!(afresh(&model), rows(&store));
}

/// An owner that gives up at once.
pub(super) fn impatient(model: &Arc<Model>, place: &Arc<Memory>) -> ReplicatedStore {
    let place = Arc::<Memory>::clone(place);
    let consensus = Arc::<Model>::clone(model);
    let follower = Follower::follow(consensus, PREFIX, place, settings(0), false).unwrap();
    let seen = follower.look().unwrap();
    follower.take(&seen, &owner("a")).unwrap()
}

#[test]
fn what_nobody_answered_for_is_settled_before_the_next_batch() {
    let one = |key: &str| vec![put(Table::Ledger, key.as_bytes(), b"1")];
    for (fault, deliver, expected) in [
        (Fault::Lost, false, ["open", "z"].as_slice()),
        (Fault::Late, true, &["open", "z"]),
        (Fault::Late, false, &["z"]),
        (Fault::Away, false, &["z"]),
    ] {
        let (model, place) = (model(), Memory::new());
        let store = impatient(&model, &place);
        model.plan([Some(fault)]);
        let error = store.commit(&one("open")).unwrap_err();
        assert!(error.to_string().contains("log a change: no answer of the model"), "{error}");
        assert!(keys(&store, Table::Ledger).is_empty(), "nothing says that it happened");
        assert!(!deliver || model.deliver(0));
        // Nor is it settled by a commit that nobody answers for.
        model.plan([Some(Fault::Away)]);
        assert!(store.commit(&one("y")).is_err());
        store.commit(&one("z")).unwrap();
        model.deliver(0);
        assert_eq!(keys(&store, Table::Ledger), expected, "{fault:?} {deliver}");
        assert_eq!(numbers(&model), [1, 2]);
        assert_eq!(afresh(&model), rows(&store), "{fault:?} {deliver}");
    }
}

#[test]
fn a_definition_that_was_reported_as_failed_and_is_there_ends_the_store() {
    let (model, place) = (model(), Memory::new());
    let store = impatient(&model, &place);
    model.plan([Some(Fault::Lost)]);
    store.commit(&group("open")).unwrap_err();
    let belated = store.commit(&group("z")).unwrap_err();
    assert!(belated.to_string().contains("reported as failed"), "{belated}");
    assert!(store.has_ended() && !store.is_deposed() && store.beat().is_err());
    assert_eq!(groups(&store), ["open"], "a controller that loads it again knows of it");
    assert_eq!(afresh(&model), rows(&store));
}

#[test]
fn a_refusal_is_an_error_that_says_why_and_leaves_nothing_open() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    model.plan([Some(Fault::Full), Some(Fault::Refused)]);
    let error = store.commit(&group("full")).unwrap_err().to_string();
    assert!(error.contains("no space left") && error.contains("raise its quota"), "{error}");
    assert!(store.commit(&group("refused")).unwrap_err().to_string().contains("as the test wants it"));
    store.commit(&group("z")).unwrap();
    assert_eq!((groups(&store), numbers(&model)), (vec!["z".to_owned()], vec![1]));
}

#[test]
fn a_deposed_owner_writes_nothing_for_ever() {
    let (model, place) = (model(), Memory::new());
    let first = taken(&model, &place, "first");
    first.commit(&group("a")).unwrap();
    first.beat().unwrap();
    let second = taken(&model, &Memory::new(), "second");
    assert!(second.epoch() > first.epoch() && !first.is_deposed());
    assert!(first.beat().unwrap_err().to_string().contains("the controller second (instance 1)"));
    assert!(first.is_deposed());
    for error in [
        first.commit(&group("b")).unwrap_err(),
        first.commit(&[put(Table::Minutes, b"b", b"")]).unwrap_err(),
        first.checkpoint_if_due().unwrap_err(),
        first.leave().unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Deposed { .. }), "{error}");
    }
    // By name it is the owner again, but not with that epoch.
    let _again = taken(&model, &Memory::new(), "first");
    assert!(second.commit(&group("c")).is_err() && second.is_deposed());
    assert_eq!(groups(&first), ["a"], "what it has can still be read");
    assert_eq!(afresh(&model), rows(&first));
}

#[test]
fn a_log_is_taken_from_the_owner_that_was_seen_and_has_not_beaten_since() {
    let (model, place) = (model(), Memory::new());
    let first = taken(&model, &place, "first");
    let follower = started(&model, &Memory::new());
    let seen = follower.look().unwrap();
    assert_eq!(seen.owner, Some(owner("first")));
    first.beat().unwrap();
    let not = follower.take(&seen, &owner("second")).unwrap_err();
    assert!(not.error.to_string().contains("first (instance 1) lives"), "{}", not.error);
    let seen = not.follower.look().unwrap();
    let _third = taken(&model, &Memory::new(), "third");
    let not = not.follower.take(&seen, &owner("second")).unwrap_err();
    assert!(not.error.to_string().contains("third (instance 1) owns it now"), "{}", not.error);
    // Its own record shows that a take has happened.
    let seen = not.follower.look().unwrap();
    model.plan([Some(Fault::Lost)]);
    let second = not.follower.take(&seen, &owner("second")).unwrap();
    second.commit(&group("a")).unwrap();
}

/// A shared store that something happens to just before a transaction with such a step.
pub(super) struct Meanwhile {
    pub(super) model: Arc<Model>,
    pub(super) step: fn(&Keys, &Step) -> bool,
    pub(super) before: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Way for Meanwhile {
    fn model(&self) -> &Model {
        &self.model
    }

    fn before_transaction(&self, transaction: &Transaction) {
        let keys = Keys::new(PREFIX).unwrap();
        if transaction.then.iter().any(|step| (self.step)(&keys, step)) {
            let before = self.before.lock().unwrap().take();
            before.into_iter().for_each(|before| before());
        }
    }
}

#[test]
fn what_the_old_owner_writes_until_it_is_deposed_is_read_by_the_new_one() {
    let model = model();
    let first = taken(&model, &Memory::new(), "first");
    first.commit(&group("a")).unwrap();
    let shared = Arc::clone(&model);
    let before = Box::new(move || {
        first.commit(&group("b")).unwrap();
        // A batch that it does not bring to its end.
        shared.plan([None, Some(Fault::Refused)]);
        assert!(first.commit(&[put(Table::Groups, b"x", &[0; 400])]).is_err());
    });
    let step = |keys: &Keys, step: &Step| matches!(step, Step::Put(key, _) if *key == keys.own());
    let between = Meanwhile { model: Arc::clone(&model), step, before: Mutex::new(Some(before)) };
    let follower = follow(Arc::new(Over(Arc::new(between))), &Memory::new()).unwrap();
    let seen = follower.look().unwrap();
    let second = follower.take(&seen, &owner("second")).unwrap();
    assert_eq!(groups(&second), ["a", "b"]);
    second.commit(&group("c")).unwrap();
    assert_eq!((numbers(&model), afresh(&model)), (vec![1, 2, 3, 4], rows(&second)));
}

#[test]
fn a_full_disk_parts_the_store_from_the_log_until_it_is_opened_again() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    store.commit(&group("a")).unwrap();
    place.fail(true);
    let error = store.commit(&group("b")).unwrap_err().to_string();
    assert!(error.contains("the disk is full") && error.contains("restart the process"), "{error}");
    place.fail(false);
    assert!(matches!(store.commit(&group("c")), Err(StoreError::Parted { .. })));
    assert!(matches!(store.get(Table::Groups, &[]), Err(StoreError::Parted { .. })));
    assert!(store.beat().is_err() && !store.is_deposed());
    let store = taken(&model, &place, "a");
    assert_eq!(groups(&store), ["a", "b"]);
}

#[test]
fn rows_of_one_file_stay_out_of_the_log_and_its_marks_out_of_sight() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    let before = model.revision();
    store.commit(&[put(Table::Meta, META_COMMIT, b"1")]).unwrap();
    assert_eq!(model.revision(), before);
    store.commit(&[put(Table::Meta, META_COMMIT, b"2"), put(Table::Groups, b"g", b"1")]).unwrap();
    let mut meta = Vec::new();
    let all = &mut |table, key: &[u8], _: &[u8]| {
        meta.extend((table == Table::Meta).then(|| key.to_vec()));
        Ok(std::ops::ControlFlow::Continue(()))
    };
    store.copy(all).unwrap();
    assert_eq!(meta, [b"format"]);
    assert_eq!(afresh(&model).len(), 1);
}

#[test]
fn the_last_batch_leaves_the_log_in_the_transaction_of_its_last_segment() {
    let (own, long) = (Keys::new(PREFIX).unwrap().own(), vec![7; 400]);
    for fault in [None, Some(Fault::Lost), Some(Fault::Away), Some(Fault::Late)] {
        let (model, place) = (model(), Memory::new());
        let store = taken(&model, &place, "a");
        model.plan([None, None, fault]);
        store.commit_last(&[put(Table::Meta, META_CLEAN, &long)]).unwrap();
        assert!(store.has_left() && !store.is_deposed());
        assert!(matches!(store.commit(&group("b")), Err(StoreError::Left)));
        let changes = model.changes();
        let of_own: Vec<u64> = changes.iter().filter(|of| of.key == own).map(|of| of.revision).collect();
        let last = changes.last().unwrap().revision;
        let keys = Keys::new(PREFIX).unwrap();
        let segments: Vec<u64> =
            changes.iter().filter(|of| keys.number(&of.key).is_some()).map(|of| of.revision).collect();
        assert!(segments.len() > 2 && segments.last() == Some(&last) && of_own.last() == Some(&last));
        assert_eq!(of_own.len(), 2, "{fault:?}");
        // A request that is late finds another owner.
        while model.held() > 0 {
            model.deliver(0);
        }
        let next = taken(&model, &Memory::new(), "b");
        assert_eq!(next.break_seal().unwrap(), Some(store.seal().unwrap()));
        assert_eq!((rows(&next), afresh(&model)), (rows(&store), rows(&store)), "{fault:?}");
    }
}

#[test]
fn a_last_batch_that_fits_a_request_takes_one_however_short_other_segments_are() {
    let written = |bytes: usize, is_last: bool| {
        let (model, place) = (model(), Memory::new());
        let store = taken(&model, &place, "a");
        let before = model.revision();
        let batch = [put(Table::Meta, META_CLEAN, &vec![7; bytes])];
        if is_last { store.commit_last(&batch) } else { store.commit(&batch) }.unwrap();
        let written = model.revision() - before;
        assert_eq!(rows(&taken(&model, &Memory::new(), "b")), rows(&store));
        written
    };
    assert_eq!((written(200, true), written(200, false)), (1, 2), "longer than other segments");
    assert!(written(300, true) > 1, "too long for one");
}

#[test]
fn a_last_batch_goes_in_short_segments_where_a_long_request_is_refused() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    let before = model.revision();
    model.plan([Some(Fault::Refused)]);
    store.commit_last(&[put(Table::Meta, META_CLEAN, &[7; 200])]).unwrap();
    assert_eq!((store.has_left(), model.revision() - before), (true, 2));
    assert_eq!(rows(&taken(&model, &Memory::new(), "b")), rows(&store));
}

#[test]
fn a_last_batch_that_nobody_answered_for_leaves_the_log_or_does_not_and_a_beat_shows_which() {
    for (fault, has_left) in [(Fault::Lost, true), (Fault::Away, false)] {
        let (model, place) = (model(), Memory::new());
        let store = impatient(&model, &place);
        model.plan([Some(fault)]);
        store.commit_last(&group("a")).unwrap_err();
        assert!(!store.has_left());
        assert_eq!(store.beat().is_err(), has_left, "{fault:?}");
        assert_eq!(store.has_left(), has_left);
        assert_eq!(afresh(&model).len(), usize::from(has_left));
    }
}

#[test]
fn who_leaves_says_so_and_writes_no_more() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    model.plan([Some(Fault::Lost)]);
    store.leave().unwrap();
    assert!(store.has_left() && store.commit(&group("a")).is_err() && store.beat().is_err());
    store.leave().unwrap();
    let follower = started(&model, &Memory::new());
    let seen = follower.look().unwrap();
    assert!(seen.owner.as_ref().is_some_and(|owner| owner.clean));
    let next = follower.take(&seen, &owner("b")).unwrap();
    let seen = started(&model, &Memory::new()).look().unwrap();
    assert!(seen.own == next.epoch() && seen.owner.is_some_and(|owner| !owner.clean));
}

#[test]
fn a_log_begins_with_a_local_store_if_that_is_wanted() {
    let (model, place) = (model(), Memory::new());
    place.store().commit(&group("a")).unwrap();
    place.store().commit(&[put(Table::Minutes, b"m", b"1")]).unwrap();
    let consensus = || Arc::<Model>::clone(&model);
    let error = follow(consensus(), &place).unwrap_err().to_string();
    assert!(error.contains("asking for that explicitly") && error.contains("under t/"), "{error}");
    // This one knows the log while it is empty.
    let mut early = started(&model, &Memory::new());
    let mut follower =
        Follower::follow(consensus(), PREFIX, Arc::<Memory>::clone(&place), settings(30), true).unwrap();
    follower.catch_up().unwrap();
    let seen = follower.look().unwrap();
    let store = follower.take(&seen, &owner("a")).unwrap();
    early.catch_up().unwrap();
    assert_eq!(groups(early.local()), ["a"], "without any segment");
    store.commit(&group("b")).unwrap();
    early.catch_up().unwrap();
    assert_eq!((rows(early.local()), afresh(&model)), (rows(&store), rows(&store)));
    drop(store);
    assert_eq!(groups(started(&model, &place).local()), ["a", "b"], "it is bound to the log now");
    // Another one with content of its own is left alone.
    let other = Memory::new();
    other.store().commit(&group("z")).unwrap();
    for seeds in [false, true] {
        let place = Arc::<Memory>::clone(&other);
        let error = Follower::follow(consensus(), PREFIX, place, settings(30), seeds).unwrap_err();
        assert!(error.to_string().contains("and so has the log"), "{error}");
    }
    assert_eq!(groups(&*other.store()), ["z"]);
}

#[test]
fn a_store_of_another_log_is_built_again_unless_it_is_all_there_is() {
    let (one, two, place) = (model(), model(), Memory::new());
    taken(&one, &place, "a").commit(&group("one")).unwrap();
    assert!(matches!(follow(Arc::<Model>::clone(&two), &place), Err(StoreError::Stray { .. })));
    taken(&two, &Memory::new(), "a").commit(&group("two")).unwrap();
    assert_eq!(groups(started(&two, &place).local()), ["two"]);
}

#[test]
fn a_log_that_was_set_back_or_is_of_another_version_is_refused() {
    let (before, after, place) = (model(), model(), Memory::new());
    let store = taken(&before, &place, "a");
    store.commit(&group("a")).unwrap();
    let backup = before.rows();
    store.commit(&group("b")).unwrap();
    for row in backup {
        let then = vec![Step::Put(row.key, row.value)];
        after.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    }
    let error = follow(Arc::<Model>::clone(&after), &place).unwrap_err().to_string();
    assert!(error.contains("was set back") && error.contains("`tidegate cluster restored`"), "{error}");
    let format = Keys::new(PREFIX).unwrap().format();
    let then = vec![Step::Put(format.clone(), b"2".to_vec())];
    let when = vec![Guard::Value(format, b"1".to_vec())];
    before.transact(&Transaction { when, then, otherwise: Vec::new() }, Duration::ZERO).unwrap();
    let error = follow(before, &Memory::new()).unwrap_err().to_string();
    assert!(error.contains("t/format") && error.contains("\"2\"") && error.contains("\"1\""), "{error}");
    let error = Follower::follow(model(), "t", Memory::new(), settings(0), false).unwrap_err();
    assert!(error.to_string().contains("\"t\" does not end in /"), "{error}");
}

#[test]
fn checkpoints_take_the_place_of_the_log_and_what_was_is_compacted() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    let mut behind = started(&model, &Memory::new());
    assert!(!store.checkpoint_if_due().unwrap());
    let fill = |round: u8| {
        for key in 0..40_u8 {
            store.commit(&[put(Table::Ledger, &[key], &[round; 40])]).unwrap();
        }
        assert!(store.checkpoint_if_due().unwrap() && !store.checkpoint_if_due().unwrap());
    };
    fill(1);
    assert_eq!(numbers(&model).first(), Some(&1), "the first one leaves all segments");
    fill(2);
    // A checkpoint has its mark as the last segment.
    assert_eq!(numbers(&model), (42..83).collect::<Vec<_>>());
    let pages = |model: &Model| model.rows().iter().filter(|row| row.key.starts_with(b"t/page/")).count();
    let once = pages(&model);
    fill(3);
    assert_eq!(pages(&model), once, "older pages are gone");
    assert!(matches!(
        model.range(b"t/", b"t0", 1, Some(10), Duration::ZERO),
        Err(ConsensusError::Compacted(10))
    ));
    behind.catch_up().unwrap();
    assert_eq!((rows(behind.local()), afresh(&model)), (rows(&store), rows(&store)));
    // The settings that ship wait for more.
    let shipped = Settings::new(Clock::start(), Span(0));
    assert_eq!((shipped.checkpoint_after, shipped.segment), (8 << 20, 256 << 10));
    assert_eq!(shipped.last_segment, 1 << 20);
}

#[test]
fn first_parts_without_an_end_are_no_reason_for_a_checkpoint() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    model.plan([None; 25].into_iter().chain([Some(Fault::Full)]));
    assert!(store.commit(&[put(Table::Ledger, b"l", &[7; 4_000])]).is_err());
    assert_eq!((numbers(&model).len(), store.checkpoint_if_due().unwrap()), (25, false));
    store.commit(&group("a")).unwrap();
    assert!(store.checkpoint_if_due().unwrap());
    assert_eq!(afresh(&model), rows(&store));
}

#[test]
fn a_file_is_a_cache_that_can_be_lost_damaged_or_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let model = model();
    let start = || {
        let place = Arc::new(FilePlace::new(&path));
        let settings = Settings { checkpoint_after: 1 << 20, ..Settings::new(Clock::start(), Span(0)) };
        Follower::follow(Arc::<Model>::clone(&model), PREFIX, place, settings, false).unwrap()
    };
    let follower = start();
    let seen = follower.look().unwrap();
    let store = follower.take(&seen, &owner("a")).unwrap();
    // Longer than a segment, and longer than a request may be.
    let large = vec![7; 1_700_000];
    store.commit(&[put(Table::Groups, b"a", b"1"), put(Table::Ledger, b"l", &large)]).unwrap();
    store.commit(&[put(Table::Meta, META_CLEAN, b"{}")]).unwrap();
    let all = rows(&store);
    drop(store);
    assert_eq!(rows(start().local()), all, "it is there");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(rows(start().local()), all, "it was lost");
    std::fs::write(&path, vec![1; 9_000]).unwrap();
    assert_eq!(rows(start().local()), all, "it was damaged");
    let aside = folder.path().join("store.replaced");
    assert_eq!(std::fs::read(aside).unwrap(), vec![1; 9_000], "and is kept");
    // With a checkpoint, and after the segments before it are gone.
    let follower = start();
    let seen = follower.look().unwrap();
    let store = follower.take(&seen, &owner("a")).unwrap();
    let copy = folder.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    for round in 0..2 {
        for _ in 0..5 {
            store.commit(&[put(Table::Ledger, &[round], &large[..500_000])]).unwrap();
        }
        assert!(store.checkpoint_if_due().unwrap());
    }
    let all = rows(&store);
    drop(store);
    std::fs::rename(&copy, &path).unwrap();
    let _ = std::fs::remove_file(folder.path().join("store.commit"));
    assert_eq!(rows(start().local()), all, "it was left behind");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(rows(start().local()), all, "it was lost again");
    assert!(RedbStore::open(&path).is_ok());
}

#[tokio::test]
async fn a_controller_runs_on_it_and_another_one_goes_on() {
    let model = model();
    let load = |store: ReplicatedStore| {
        let config = ServiceConfig { instance: Some(1), ..ServiceConfig::default() };
        Service::load(Arc::new(store), config, Clock::start()).unwrap()
    };
    let first = load(taken(&model, &Memory::new(), "a"));
    first.shut_down().unwrap();
    let second = load(taken(&model, &Memory::new(), "b"));
    assert_eq!(second.epoch(), first.epoch(), "the log was left with the leases");
    let error = first.upkeep().flush().err();
    assert!(error.is_none_or(|error| matches!(error, StoreError::Left)));
}
