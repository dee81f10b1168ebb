//! Hashes that are made beside all else, and what they are compared with.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::thread::yield_now;

use tidegate_consensus::Step;
use tidegate_consensus::model::{Fault, Model};

use super::super::super::{Store as _, StoreError};
use super::super::checkpoint::{Checkpoint, Content, Pager};
use super::super::comparing::{Compared, Comparing};
use super::super::keys::Keys;
use super::memory::Memory;
use super::rules::{Meanwhile, model, taken};
use super::slow::Slow;
use super::way::Over;
use super::*;

fn filled() -> Arc<Slow> {
    let place = Slow::new();
    let batch: Vec<_> = (0..20_u8).map(|key| put(Table::Groups, &[key], &[7; 50])).collect();
    place.memory.store().commit(&batch).unwrap();
    place
}

#[test]
fn a_hash_is_made_beside_and_compared_with_the_checkpoint_of_its_place() {
    let place = filled();
    let go = place.gate();
    let mut comparing = Comparing::begin(place.open().unwrap(), 7, 100).unwrap();
    assert!(!comparing.is_ready(false).unwrap(), "it is not waited for");
    go.send(()).unwrap();
    while !comparing.is_ready(false).unwrap() {
        yield_now();
    }
    let mut pager = Pager::new(3, 100, |_, _| Ok(()));
    let of_all = &mut |table, key: &[u8], value: &[u8]| {
        if !scope::is_local(table, key) {
            pager.row(table, key, value)?;
        }
        Ok(ControlFlow::Continue(()))
    };
    place.memory.store().copy(of_all).unwrap();
    let content = pager.finish().unwrap();
    let with =
        |n, content| comparing.with(Some(&Checkpoint { generation: 3, n, epoch: 1, logged: 9, content }));
    let other = Content { hash: [7; 32], ..content };
    assert_eq!((with(7, content), with(7, other)), (Compared::Over, Compared::Differs));
    assert_eq!((with(6, other), comparing.with(None)), (Compared::NotYet, Compared::NotYet));
    assert_eq!(with(8, other), Compared::Over, "nobody will ever know");
}

#[test]
fn a_hash_that_nobody_waits_for_any_more_ends() {
    let place = filled();
    let (go, store) = (place.gate(), place.open().unwrap());
    let comparing = Comparing::begin(Arc::clone(&store), 7, 100).unwrap();
    drop(comparing);
    go.send(()).unwrap();
    while Arc::strong_count(&store) > 1 {
        yield_now();
    }
    assert!(place.visited() <= 2, "the row that it was at, and the next");
}

#[test]
fn a_follower_goes_on_while_its_rows_are_hashed_and_hears_of_what_differs() {
    for differs in [false, true] {
        let (model, place) = (model(), Slow::new());
        let store = taken(&model, &Memory::new(), "a");
        for key in 0..40_u8 {
            store.commit(&[put(Table::Groups, &[key], &[7; 100])]).unwrap();
        }
        let (consensus, beside) =
            (Arc::<Model>::clone(&model), Settings { hashes_beside: true, ..settings(30) });
        let mut follower =
            Follower::follow(consensus, PREFIX, Arc::<Slow>::clone(&place), beside, false).unwrap();
        if differs {
            place.memory.store().commit(&[put(Table::Ledger, b"more", b"1")]).unwrap();
        }
        let go = place.gate();
        assert!(store.checkpoint_if_due().unwrap());
        follower.catch_up().unwrap();
        assert!(follower.is_comparing());
        store.commit(&[put(Table::Groups, b"later", b"1")]).unwrap();
        follower.catch_up().unwrap();
        assert!(follower.is_comparing() && rows(follower.local()).len() == 41 + usize::from(differs));
        go.send(()).unwrap();
        let compared = loop {
            match follower.catch_up() {
                Ok(()) if follower.is_comparing() => yield_now(),
                compared => break compared,
            }
        };
        assert_eq!(matches!(compared, Err(StoreError::Differs { .. })), differs, "{compared:?}");
        assert_eq!(compared.is_ok(), !differs, "{compared:?}");
    }
}

#[test]
fn rows_are_compared_also_where_the_checkpoint_could_not_be_read_at_first() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &Memory::new(), "a");
    for key in 0..40_u8 {
        store.commit(&[put(Table::Groups, &[key], &[7; 100])]).unwrap();
    }
    let step = |keys: &Keys, step: &Step| matches!(step, Step::Get(key) if *key == keys.checkpoint());
    let away = Arc::new(Meanwhile { model: Arc::clone(&model), step, before: Mutex::default() });
    let mut follower = follow(Arc::new(Over(Arc::clone(&away))), &place).unwrap();
    place.store().commit(&[put(Table::Ledger, b"more", b"1")]).unwrap();
    assert!(store.checkpoint_if_due().unwrap());
    // As long as it is patient.
    *away.before.lock().unwrap() = Some(Box::new(move || model.plan([Some(Fault::Away); 3])));
    let error = follower.catch_up().unwrap_err();
    assert!(matches!(error, StoreError::Shared { .. }), "{error}");
    let error = follower.catch_up().unwrap_err();
    assert!(matches!(error, StoreError::Differs { .. }), "{error}");
}

#[test]
fn rows_that_are_hashed_before_the_checkpoint_is_there_are_compared_with_it_afterwards() {
    let (model, place) = (model(), Memory::new());
    let step = |keys: &Keys, step: &Step| matches!(step, Step::Put(key, _) if *key == keys.checkpoint());
    let between = Arc::new(Meanwhile { model: Arc::clone(&model), step, before: Mutex::default() });
    let first = follow(Arc::new(Over(Arc::clone(&between))), &Memory::new()).unwrap();
    let seen = first.look().unwrap();
    let store = first.take(&seen, &owner("a")).unwrap();
    for key in 0..40_u8 {
        store.commit(&[put(Table::Groups, &[key], &[7; 100])]).unwrap();
    }
    let follower = Arc::new(Mutex::new(follow(model, &place).unwrap()));
    place.store().commit(&[put(Table::Ledger, b"more", b"1")]).unwrap();
    let early = Arc::clone(&follower);
    let before = move || early.lock().unwrap().catch_up().unwrap();
    *between.before.lock().unwrap() = Some(Box::new(before));
    assert!(store.checkpoint_if_due().unwrap());
    let mut follower = follower.lock().unwrap();
    assert!(follower.is_comparing());
    let error = follower.catch_up().unwrap_err();
    assert!(matches!(error, StoreError::Differs { .. }), "{error}");
}
