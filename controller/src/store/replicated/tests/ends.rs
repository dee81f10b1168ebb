//! What an owner may still do when something of it has ended, and what it does about writes whose fate is open.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread::spawn;

use tidegate_consensus::model::{Fault, Model};
use tidegate_consensus::{Consensus as _, Step, Transaction};

use super::super::super::{Store as _, StoreError};
use super::super::checkpoint::Checkpoint;
use super::super::keys::Keys;
use super::memory::Memory;
use super::rules::{Meanwhile, afresh, impatient, model, numbers, started, taken};
use super::way::Over;
use super::*;
use crate::store::records::META_CLEAN;

fn keys() -> Keys {
    Keys::new(PREFIX).unwrap()
}

fn ledger(key: &[u8]) -> Vec<Write> {
    vec![put(Table::Ledger, key, &[7; 60])]
}

fn has(store: &dyn Store, key: &[u8]) -> bool {
    rows(store).contains_key(&(Table::Ledger, key.to_vec()))
}

/// What an owner does next.
type Next = fn(&ReplicatedStore) -> Result<(), StoreError>;

/// Fills the log, and makes a checkpoint of it.
fn filled(store: &ReplicatedStore, round: u8) {
    for key in 0..40_u8 {
        store.commit(&[put(Table::Minutes, &[key], &[round; 40])]).unwrap();
    }
    assert!(store.checkpoint_if_due().unwrap());
}

/// The lengths of all segments that were ever written.
fn lengths(model: &Model) -> Vec<usize> {
    let changes = model.changes().into_iter().filter(|change| keys().number(&change.key).is_some());
    changes.filter_map(|change| change.value).map(|value| value.len()).collect()
}

/// An owner that something happens to just before a transaction with such a step.
fn interrupted(model: &Arc<Model>, step: fn(&Keys, &Step) -> bool) -> (Arc<Meanwhile>, Arc<ReplicatedStore>) {
    let between = Arc::new(Meanwhile { model: Arc::clone(model), step, before: Mutex::default() });
    let consensus = Arc::new(Over(Arc::clone(&between)));
    let follower = Follower::follow(consensus, PREFIX, Memory::new(), settings(30), false).unwrap();
    let seen = follower.look().unwrap();
    let store = follower.take(&seen, &owner("a")).unwrap();
    for key in 0..40_u8 {
        store.commit(&[put(Table::Minutes, &[key], &[1; 40])]).unwrap();
    }
    (between, Arc::new(store))
}

#[test]
fn only_an_owner_that_left_in_order_leaves_a_seal() {
    let model = model();
    let first = taken(&model, &Memory::new(), "a");
    assert_eq!(first.break_seal().unwrap(), None, "there was none before");
    let second = taken(&model, &Memory::new(), "b");
    assert_eq!(second.break_seal().unwrap(), None, "the first one may still speak");
    second.leave().unwrap();
    let third = taken(&model, &Memory::new(), "c");
    assert_eq!(third.break_seal().unwrap(), Some(second.seal().unwrap()));
    assert_eq!(third.break_seal().unwrap(), None, "it is valid once");
}

#[test]
fn a_store_that_has_parted_from_the_log_shows_nothing_and_is_not_left_in_order() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    place.fail(true);
    store.commit(&ledger(b"a")).unwrap_err();
    place.fail(false);
    let before = model.revision();
    let none = &mut |_: &[u8], _: &[u8]| -> Result<_, StoreError> { panic!("it shows a row") };
    let none_of_all = &mut |_, _: &[u8], _: &[u8]| -> Result<_, StoreError> { panic!("it shows a row") };
    for done in [
        store.scan(Table::Meta, b"", none),
        store.copy(none_of_all),
        store.commit_last(&ledger(b"b")),
        store.leave(),
        store.rename().map(drop),
    ] {
        assert!(matches!(done, Err(StoreError::Parted { .. })), "{done:?}");
    }
    assert_eq!(model.revision(), before, "it writes nothing");
    let seen = started(&model, &Memory::new()).look().unwrap();
    assert!(seen.owner.is_some_and(|owner| !owner.clean) && !store.has_left());
}

#[test]
fn a_checkpoint_contains_what_was_open_if_that_is_in_the_log() {
    for (fault, is_there) in [(Fault::Lost, true), (Fault::Away, false)] {
        let model = model();
        let store = impatient(&model, &Memory::new());
        for key in 0..40_u8 {
            store.commit(&ledger(&[key])).unwrap();
        }
        model.plan([Some(fault)]);
        store.commit(&ledger(b"open")).unwrap_err();
        assert!(store.checkpoint_if_due().unwrap());
        assert_eq!(has(&store, b"open"), is_there);
        store.commit(&ledger(b"z")).unwrap();
        assert_eq!(afresh(&model), rows(&store));
    }
}

#[test]
fn a_segment_that_somebody_else_wrote_under_an_open_number_parts_the_store() {
    let (model, place) = (model(), Memory::new());
    let store = impatient(&model, &place);
    model.plan([Some(Fault::Away)]);
    store.commit(&ledger(b"open")).unwrap_err();
    let then = vec![Step::Put(keys().segment(1), b"another".to_vec())];
    model.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    let error = store.commit(&ledger(b"z")).unwrap_err();
    assert!(matches!(error, StoreError::Parted { .. }), "{error}");
    assert!(store.has_ended() && rows(&*place.store()).is_empty(), "nothing of it is taken for stored");
}

#[test]
fn a_late_attempt_at_a_number_that_was_removed_meanwhile_writes_nothing() {
    let model = model();
    let store = impatient(&model, &Memory::new());
    model.plan([Some(Fault::Late)]);
    store.commit(&ledger(b"late")).unwrap_err();
    filled(&store, 1);
    filled(&store, 2);
    let before = numbers(&model);
    assert!(before.first().is_some_and(|first| *first > 1));
    assert!(model.deliver(0));
    assert_eq!(numbers(&model), before);
    assert_eq!(afresh(&model), rows(&store));
}

#[test]
fn a_call_that_nobody_answers_is_repeated_after_pauses_until_patience_ends() {
    let model = model();
    let store = taken(&model, &Memory::new(), "a");
    // Pauses of 20 ms, and patience of 30.
    model.plan([Some(Fault::Away); 2]);
    store.commit(&ledger(b"a")).unwrap();
    model.plan([Some(Fault::Away); 3]);
    let error = store.commit(&ledger(b"b")).unwrap_err().to_string();
    assert!(error.contains("nobody is there"), "{error}");
    assert_eq!((has(&store, b"a"), has(&store, b"b")), (true, false));
}

#[test]
fn a_checkpoint_is_due_when_the_log_has_grown_by_as_much_as_the_last_and_by_the_least() {
    let model = model();
    let mut store = taken(&model, &Memory::new(), "a");
    let (mut marked, mut size, mut sizes) = (0, 0, Vec::new());
    let mut checkpoint = |store: &ReplicatedStore, round: u16| {
        // At first one row, then many.
        let key = round.saturating_sub(120).to_be_bytes();
        store.commit(&[put(Table::Ledger, &key, &[7; 80])]).unwrap();
        let logged = lengths(&model).iter().sum::<usize>();
        let is_due = logged - marked > size.max(2_000);
        assert_eq!(store.checkpoint_if_due().unwrap(), is_due, "round {round}");
        if is_due {
            let row = model.rows().into_iter().find(|row| row.key == keys().checkpoint()).unwrap();
            let last = Checkpoint::decode(&row.value).unwrap();
            marked = lengths(&model).iter().sum();
            size = usize::try_from(last.content.size).unwrap();
            assert_eq!(last.logged, marked as u64);
            sizes.push(size);
        }
    };
    for round in 0..300 {
        // Another owner goes on as the one before.
        if round % 50 == 40 {
            store = taken(&model, &Memory::new(), "b");
        }
        checkpoint(&store, round);
    }
    assert!(sizes.iter().filter(|size| **size < 2_000).count() > 2, "{sizes:?}");
    assert!(sizes.iter().filter(|size| **size > 3_000).count() > 2, "{sizes:?}");
}

#[test]
fn the_log_is_left_with_a_last_batch_of_nothing_too() {
    let model = model();
    let store = taken(&model, &Memory::new(), "a");
    store.commit_last(&[]).unwrap();
    let seen = started(&model, &Memory::new()).look().unwrap();
    assert!(store.has_left() && seen.owner.is_some_and(|owner| owner.clean));
}

#[test]
fn only_a_last_batch_in_one_piece_is_longer_than_other_segments() {
    let mut pieces = Vec::new();
    for bytes in 200..300 {
        let model = model();
        let store = taken(&model, &Memory::new(), "a");
        store.commit_last(&[put(Table::Meta, META_CLEAN, &vec![7; bytes])]).unwrap();
        let lengths = lengths(&model);
        let most = if lengths.len() == 1 { 300 } else { 160 };
        assert!(lengths.iter().all(|length| *length <= most), "{bytes}: {lengths:?}");
        pieces.push(lengths.len());
    }
    assert!(pieces.contains(&1) && pieces.contains(&3), "{pieces:?}");
}

#[test]
fn an_owner_that_is_deposed_while_it_makes_a_checkpoint_hears_of_it() {
    let model = model();
    let (between, store) = interrupted(&model, |_, step| matches!(step, Step::Delete(..)));
    let shared = Arc::clone(&model);
    *between.before.lock().unwrap() = Some(Box::new(move || drop(taken(&shared, &Memory::new(), "b"))));
    let error = store.checkpoint_if_due().unwrap_err();
    assert!(matches!(error, StoreError::Deposed { .. }) && store.is_deposed(), "{error}");
    assert_eq!(afresh(&model), rows(&*store));
}

#[test]
fn an_owner_that_is_deposed_neither_leaves_the_log_nor_gives_it_another_word() {
    for leaves in [true, false] {
        let model = model();
        let store = taken(&model, &Memory::new(), "a");
        drop(taken(&model, &Memory::new(), "b"));
        let before = model.rows();
        assert!(!store.is_deposed(), "it has not heard of it yet");
        let ended = if leaves { store.leave() } else { store.rename().map(drop) };
        let error = ended.unwrap_err();
        assert!(matches!(&error, StoreError::Deposed { by } if by.contains('b')), "{error}");
        assert!(store.is_deposed() && !store.has_left());
        assert!(matches!(store.commit(&ledger(b"k")), Err(StoreError::Deposed { .. })));
        assert!(model.rows() == before, "nothing is written");
    }
}

#[test]
fn commits_go_on_while_a_checkpoint_is_written_and_are_not_in_it() {
    let model = model();
    let of_page = |_: &Keys, step: &Step| matches!(step, Step::Put(key, _) if key.starts_with(b"t/page/"));
    let (between, store) = interrupted(&model, of_page);
    let owner = Arc::clone(&store);
    *between.before.lock().unwrap() = Some(Box::new(move || {
        let (committed, is_committed) = channel();
        spawn(move || committed.send(owner.commit(&ledger(b"meanwhile")).is_ok()));
        assert!(is_committed.recv_timeout(Duration::from_secs(30)).unwrap());
    }));
    assert!(store.checkpoint_if_due().unwrap());
    assert!(between.before.lock().unwrap().is_none() && has(&*store, b"meanwhile"));
    assert_eq!(afresh(&model), rows(&*store));
}

#[test]
fn rows_of_other_tables_with_the_keys_of_a_file_are_shared_and_shown() {
    let model = model();
    let store = taken(&model, &Memory::new(), "a");
    for key in [&b"cluster"[..], b"applied", b"commit", b"format"] {
        let table = Table::Clients;
        store.commit(&[put(table, key, b"1")]).unwrap();
        let mut shown = 0;
        let visit = &mut |of: &[u8], _: &[u8]| {
            shown += usize::from(of == key);
            Ok(ControlFlow::Continue(()))
        };
        store.scan(table, b"", visit).unwrap();
        let visit_all = &mut |of_table, of: &[u8], _: &[u8]| {
            shown += usize::from((of_table, of) == (table, key));
            Ok(ControlFlow::Continue(()))
        };
        store.copy(visit_all).unwrap();
        assert_eq!((shown, afresh(&model).contains_key(&(table, key.to_vec()))), (2, true));
    }
}

#[test]
fn a_last_batch_that_the_own_disk_does_not_take_is_in_the_log_and_leaves_it() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    place.fail(true);
    store.commit_last(&ledger(b"last")).unwrap();
    let seen = started(&model, &Memory::new()).look().unwrap();
    assert!(store.has_left() && seen.owner.is_some_and(|owner| owner.clean));
    assert!(afresh(&model).contains_key(&(Table::Ledger, b"last".to_vec())));
}

#[test]
fn whatever_in_a_batch_that_was_told_to_have_failed_defines_something_ends_the_store() {
    use Table::{Audit, Bindings, CostTables, Groups, Proposals, Tokens};
    for table in [Groups, Bindings, CostTables, Audit, Tokens, Proposals] {
        let model = model();
        let store = impatient(&model, &Memory::new());
        // It is neither the first row nor the last.
        let batch = [put(Table::Meta, b"next", b"2"), put(table, b"a", b"1"), put(Table::Meta, b"z", b"2")];
        model.plan([Some(Fault::Lost)]);
        store.commit(&batch).unwrap_err();
        let error = store.commit(&ledger(b"z")).unwrap_err();
        assert!(matches!(error, StoreError::Belated) && store.has_ended(), "{table:?}: {error}");
    }
}

#[test]
fn a_checkpoint_is_not_written_again_because_what_it_makes_needless_was_not_removed() {
    let model = model();
    let (between, store) = interrupted(&model, |_, step| matches!(step, Step::Delete(..)));
    let shared = Arc::clone(&model);
    // As long as it is patient.
    *between.before.lock().unwrap() = Some(Box::new(move || shared.plan([Some(Fault::Away); 3])));
    let error = store.checkpoint_if_due().unwrap_err();
    assert!(matches!(error, StoreError::Shared { .. }), "{error}");
    let before = model.revision();
    assert!(!store.checkpoint_if_due().unwrap() && model.revision() == before);
    filled(&store, 2);
    filled(&store, 3);
    let newest = model.rows().into_iter().find(|row| row.key == keys().checkpoint()).unwrap();
    let first = keys().page(Checkpoint::decode(&newest.value).unwrap().generation, 0);
    let is_older = |key: &[u8]| key.starts_with(b"t/page/") && key < first.as_slice();
    assert!(!model.rows().iter().any(|row| is_older(&row.key)), "pages stay");
    assert_eq!(afresh(&model), rows(&*store));
}

#[test]
fn an_owner_that_did_not_hear_of_its_last_batch_has_left_and_is_deposed_by_nobody() {
    let commit: Next = |store| store.commit(&ledger(b"z"));
    for next in [commit, ReplicatedStore::beat, ReplicatedStore::leave] {
        let model = model();
        let store = impatient(&model, &Memory::new());
        model.plan([Some(Fault::Lost)]);
        store.commit_last(&ledger(b"last")).unwrap_err();
        assert!(!store.has_left());
        let done = next(&store);
        assert!(matches!(done, Ok(()) | Err(StoreError::Left)), "{done:?}");
        assert!(store.has_left() && !store.is_deposed());
        store.leave().unwrap();
        assert_eq!(afresh(&model).into_keys().collect::<Vec<_>>(), [(Table::Ledger, b"last".to_vec())]);
    }
}
