//! Rows of counters, logged as what they grew by.

use std::sync::Mutex;
use std::thread::yield_now;

use tidegate_consensus::model::{Fault, Model};
use tidegate_consensus::{Consensus as _, Step, Transaction};
use tidegate_core::group::GroupId;

use super::super::super::StoreError;
use super::super::super::records::pair_key;
use super::super::bytes::{Entry, entries, sealed};
use super::super::growth::Grown;
use super::super::keys::Keys;
use super::super::segment::Segment;
use super::memory::Memory;
use super::rules::{Meanwhile, afresh, impatient, model, numbers, started, taken};
use super::way::Over;
use super::*;

fn key(number: u64) -> Vec<u8> {
    pair_key(number, GroupId(7))
}

fn counted(number: u64, sum: u64) -> Write {
    Write::Put(Table::Ledger, key(number), counters([sum]))
}

/// The entries of a segment that is a whole batch: what the last counter of a row grew by, or `None` for any other.
fn logged(model: &Model, n: u64) -> Vec<Option<u64>> {
    let key = Keys::new(PREFIX).unwrap().segment(n);
    let row = model.rows().into_iter().find(|row| row.key == key).unwrap();
    let segment = Segment::decode(&row.value).unwrap();
    assert_eq!(segment.of, 1);
    let mut steps = Vec::new();
    for entry in entries(segment.piece).unwrap() {
        let Entry::Grown(Table::Ledger, grown) = entry else {
            steps.push(None);
            continue;
        };
        let mut grown = Grown::of(&grown);
        while let Some((_, by)) = grown.next().unwrap() {
            steps.push(by.last().copied());
        }
    }
    steps
}

/// Segments with room for whole rows.
fn wide(patience_ms: u64) -> Settings {
    Settings { segment: 4_096, ..settings(patience_ms) }
}

fn owned(model: &Arc<Model>, place: &Arc<Memory>, patience_ms: u64) -> ReplicatedStore {
    let (consensus, place) = (Arc::<Model>::clone(model), Arc::<Memory>::clone(place));
    let follower = Follower::follow(consensus, PREFIX, place, wide(patience_ms), false).unwrap();
    let seen = follower.look().unwrap();
    follower.take(&seen, &owner("a")).unwrap()
}

#[test]
fn a_row_is_logged_whole_once_and_then_as_what_it_grew_by() {
    let (model, place) = (model(), Memory::new());
    let store = owned(&model, &place, 30);
    store.commit(&[counted(1, 10), counted(2, 5)]).unwrap();
    store.commit(&[counted(2, 6), counted(1, 17)]).unwrap();
    // What fell is whole, and so is what is no counter.
    store.commit(&[counted(1, 16), counted(2, 6), put(Table::Groups, b"g", b"1")]).unwrap();
    store.commit(&[Write::Delete(Table::Ledger, key(1)), counted(2, 7)]).unwrap();
    store.commit(&[counted(1, 20), counted(2, 9)]).unwrap();
    store.commit(&[counted(1, 30), counted(1, 40)]).unwrap();
    // The entries of rows that grew come first.
    assert_eq!(logged(&model, 1), [None, None]);
    assert_eq!(logged(&model, 2), [Some(7), Some(1)]);
    assert_eq!(logged(&model, 3), [Some(0), None, None]);
    assert_eq!(logged(&model, 4), [None, None], "with a row that goes, order matters");
    assert_eq!(logged(&model, 5), [Some(2), None]);
    assert_eq!(logged(&model, 6), [None, None], "so it does with a row that comes twice");
    assert_eq!(rows(&store)[&(Table::Ledger, key(1))], counters([40]));
    assert_eq!(afresh(&model), rows(&store));
    // Another owner counts from what it has read.
    let next = owned(&model, &Memory::new(), 30);
    next.commit(&[counted(1, 44)]).unwrap();
    assert_eq!(logged(&model, 7), [Some(4)]);
    assert_eq!(afresh(&model), rows(&next));
}

#[test]
fn what_could_not_be_logged_is_in_the_next_increment_and_what_was_is_not() {
    for (fault, deliver, step) in [
        (Fault::Lost, false, 15),
        (Fault::Late, true, 15),
        (Fault::Late, false, 30),
        (Fault::Away, false, 30),
        (Fault::Full, false, 30),
    ] {
        let (model, place) = (model(), Memory::new());
        let store = owned(&model, &place, 0);
        store.commit(&[counted(1, 10)]).unwrap();
        model.plan([Some(fault)]);
        store.commit(&[counted(1, 25)]).unwrap_err();
        assert!(!deliver || model.deliver(0));
        store.commit(&[counted(1, 40)]).unwrap();
        model.deliver(0);
        let last = numbers(&model).pop().unwrap();
        assert_eq!(logged(&model, last), [Some(step)], "{fault:?} {deliver}");
        assert_eq!(rows(&store)[&(Table::Ledger, key(1))], counters([40]), "{fault:?} {deliver}");
        assert_eq!(afresh(&model), rows(&store), "{fault:?} {deliver}");
    }
    // A batch of several segments that has no end is none.
    let (model, place) = (model(), Memory::new());
    let store = impatient(&model, &place);
    store.commit(&[counted(1, 10)]).unwrap();
    model.plan([None, Some(Fault::Away)]);
    store.commit(&[counted(1, 25), put(Table::Groups, b"g", &[7; 300])]).unwrap_err();
    store.commit(&[counted(1, 40)]).unwrap();
    assert_eq!(rows(&store)[&(Table::Ledger, key(1))], counters([40]));
    assert_eq!(afresh(&model), rows(&store));
}

#[test]
fn a_follower_that_builds_on_a_checkpoint_counts_from_the_rows_that_it_has() {
    let model = model();
    let store = Arc::new(owned(&model, &Memory::new(), 30));
    store.commit(&[counted(1, 10)]).unwrap();
    let step = |keys: &Keys, step: &Step| matches!(step, Step::Get(key) if *key == keys.checkpoint());
    let between = Arc::new(Meanwhile { model: Arc::clone(&model), step, before: Mutex::default() });
    let consensus = Arc::new(Over(Arc::clone(&between)));
    let mut follower = Follower::follow(consensus, PREFIX, Memory::new(), wide(30), false).unwrap();
    store.commit(&[counted(1, 25)]).unwrap();
    follower.catch_up().unwrap();
    // It has read all segments, and not yet looked for a checkpoint behind them.
    let owner = Arc::clone(&store);
    *between.before.lock().unwrap() = Some(Box::new(move || {
        owner.commit(&[counted(1, 40), put(Table::Groups, b"g", &[7; 2_500])]).unwrap();
        assert!(owner.checkpoint_if_due().unwrap());
    }));
    follower.catch_up().unwrap();
    assert!(between.before.lock().unwrap().is_none());
    store.commit(&[counted(1, 41)]).unwrap();
    follower.catch_up().unwrap();
    assert_eq!(rows(follower.local())[&(Table::Ledger, key(1))], counters([41]));
    assert_eq!(rows(follower.local()), rows(&*store));
}

#[test]
fn rows_that_go_from_other_tables_leave_increments_as_they_are() {
    let (model, place) = (model(), Memory::new());
    let store = owned(&model, &place, 30);
    store.commit(&[counted(1, 10), put(Table::Groups, b"g", b"1"), put(Table::Audit, b"a", b"1")]).unwrap();
    store.commit(&[Write::Delete(Table::Groups, b"g".to_vec()), counted(1, 17)]).unwrap();
    store.commit(&[Write::DeleteBelow(Table::Audit, b"z".to_vec()), counted(1, 18)]).unwrap();
    assert_eq!((logged(&model, 2), logged(&model, 3)), (vec![Some(7), None], vec![Some(1), None]));
    assert_eq!((afresh(&model), rows(&store).len()), (rows(&store), 1));
}

/// Writes the rows of the whole log once more, in another store, as `change` has them.
pub(super) fn copied(model: &Model, change: impl Fn(&Keys, &[u8], Vec<u8>) -> Vec<u8>) -> Arc<Model> {
    let (keys, copy) = (Keys::new(PREFIX).unwrap(), self::model());
    for row in model.rows() {
        let value = change(&keys, &row.key, row.value);
        let then = vec![Step::Put(row.key, value)];
        copy.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    }
    copy
}

#[test]
fn a_log_of_the_version_before_is_read_and_gone_on_with() {
    let (model, place) = (model(), Memory::new());
    let store = owned(&model, &place, 30);
    store.commit(&[counted(1, 10), put(Table::Groups, b"g", b"1")]).unwrap();
    let of_before = copied(&model, |keys, key, mut value| {
        if keys.number(key).is_some() {
            value[0] = 1;
            value = sealed(value[..value.len() - 4].to_vec());
        }
        value
    });
    assert_eq!(afresh(&of_before), rows(&store));
    let next = owned(&of_before, &Memory::new(), 30);
    next.commit(&[counted(1, 12)]).unwrap();
    assert_eq!(logged(&of_before, 2), [Some(2)]);
    assert_eq!(afresh(&of_before), rows(&next));
}

#[test]
fn an_increment_of_a_row_that_is_not_there_is_refused() {
    let (model, place) = (model(), Memory::new());
    let store = owned(&model, &place, 30);
    store.commit(&[counted(1, 10)]).unwrap();
    store.commit(&[counted(1, 12)]).unwrap();
    // The first batch has become one of nothing.
    let damaged = copied(&model, |keys, key, value| match keys.number(key) {
        Some(1) => Segment { piece: &[], ..Segment::decode(&value).unwrap() }.encode(),
        _ => value,
    });
    let error = follow(damaged, &Memory::new()).unwrap_err().to_string();
    assert!(
        error.contains("00002") && error.contains("a row of ledger that it adds to is not there"),
        "{error}"
    );
}

/// Follows until the follower has been compared with a checkpoint of everything so far.
fn compared(follower: &mut Follower, store: &ReplicatedStore) -> Result<(), StoreError> {
    for round in 0..40_u8 {
        store.commit(&[put(Table::Groups, &[round], &[7; 100])]).unwrap();
    }
    assert!(store.checkpoint_if_due().unwrap());
    follower.catch_up()?;
    while follower.is_comparing() {
        yield_now();
        follower.catch_up()?;
    }
    Ok(())
}

#[test]
fn a_follower_with_other_rows_than_the_owner_is_found_at_the_next_checkpoint_and_stops() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &Memory::new(), "a");
    store.commit(&[counted(1, 10), counted(2, 10)]).unwrap();
    let mut follower = started(&model, &place);
    compared(&mut follower, &store).unwrap();
    // As if an increment had been counted twice.
    place.store().commit(&[counted(2, 13)]).unwrap();
    let error = compared(&mut follower, &store).unwrap_err();
    assert!(matches!(error, StoreError::Differs { .. }), "{error}");
    assert!(
        error.to_string().contains("the checkpoint at segment")
            && error.to_string().contains("move the file")
    );
    // Built from the log, it is the owner's again; the owner has gone on all the time.
    let place = Memory::new();
    let mut follower = started(&model, &place);
    store.commit(&[counted(2, 14)]).unwrap();
    compared(&mut follower, &store).unwrap();
    assert_eq!(rows(follower.local()), rows(&store));
}
