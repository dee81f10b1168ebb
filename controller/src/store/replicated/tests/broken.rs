//! A log or a checkpoint of which something is missing or wrong while a controller reads it.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use tidegate_consensus::model::Model;
use tidegate_consensus::{Step, Transaction};

use super::super::super::StoreError;
use super::super::checkpoint::{Checkpoint, Content};
use super::super::keys::Keys;
use super::super::segment::Segment;
use super::counting::copied;
use super::memory::Memory;
use super::rules::{afresh, model, started, taken};
use super::way::{Over, Way};
use super::*;

/// Fills the log with rows, of which one is this round's alone, and makes a checkpoint of it.
fn filled(store: &ReplicatedStore, round: u8) {
    store.commit(&[put(Table::Groups, &[round], b"1")]).unwrap();
    for key in 0..40_u8 {
        store.commit(&[put(Table::Ledger, &[key], &[round; 40])]).unwrap();
    }
    assert!(store.checkpoint_if_due().unwrap());
}

fn refused(model: Arc<Model>) -> String {
    follow(model, &Memory::new()).unwrap_err().to_string()
}

#[test]
fn a_segment_under_the_number_of_another_is_refused() {
    let model = model();
    let store = taken(&model, &Memory::new(), "a");
    for key in [b"a", b"b", b"c"] {
        store.commit(&[put(Table::Ledger, key, b"1")]).unwrap();
    }
    let moved = copied(&model, |keys, key, value| match keys.number(key) {
        Some(2) => Segment { n: 1, ..Segment::decode(&value).unwrap() }.encode(),
        _ => value,
    });
    let error = refused(moved);
    assert!(error.contains("00002") && error.contains("it is number 1"), "{error}");
}

#[test]
fn a_log_with_a_gap_that_no_checkpoint_has_is_refused_and_the_local_store_left_as_it_is() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &Memory::new(), "a");
    store.commit(&[put(Table::Ledger, b"a", b"1")]).unwrap();
    let mut follower = started(&model, &place);
    for key in [b"b", b"c"] {
        store.commit(&[put(Table::Ledger, key, b"1")]).unwrap();
    }
    let keys = Keys::new(PREFIX).unwrap();
    let then = vec![Step::Delete(keys.segment(2), keys.segment(3))];
    model.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    let error = follower.catch_up().unwrap_err();
    assert!(matches!(error, StoreError::Unfit { .. }), "{error}");
    assert!(error.to_string().contains("segments up to 2 are gone, and no checkpoint has them"), "{error}");
    assert_eq!(rows(&*place.store()).len(), 1);
}

#[test]
fn a_checkpoint_whose_rows_are_not_those_that_were_written_is_refused() {
    let model = model();
    let store = taken(&model, &Memory::new(), "a");
    (1..3).for_each(|round| filled(&store, round));
    let keys = Keys::new(PREFIX).unwrap();
    let damaged = copied(&model, |_, key, value| {
        if key != keys.checkpoint() {
            return value;
        }
        let checkpoint = Checkpoint::decode(&value).unwrap();
        let content = Content { hash: [7; 32], ..checkpoint.content };
        Checkpoint { content, ..checkpoint }.encode()
    });
    let error = refused(damaged);
    assert!(error.contains("t/ckpt/0") && error.contains("not those that were written"), "{error}");
}

#[test]
fn a_checkpoint_without_one_of_its_pages_is_refused() {
    let model = model();
    let store = taken(&model, &Memory::new(), "a");
    (1..3).for_each(|round| filled(&store, round));
    let keys = Keys::new(PREFIX).unwrap();
    let row = model.rows().into_iter().find(|row| row.key == keys.checkpoint()).unwrap();
    let generation = Checkpoint::decode(&row.value).unwrap().generation;
    let then = vec![Step::Delete(keys.page(generation, 1), keys.page(generation, 2))];
    model.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    let error = refused(model);
    assert!(error.contains("t/ckpt/0") && error.contains("its pages are missing"), "{error}");
}

/// A shared store that something happens to just before pages of a checkpoint are read for the n-th time.
struct AtPages {
    model: Arc<Model>,
    left: AtomicUsize,
    before: Box<dyn Fn() + Send + Sync>,
}

impl Way for AtPages {
    fn model(&self) -> &Model {
        &self.model
    }

    fn before_page(&self, from: &[u8]) {
        if from.starts_with(b"t/page/") && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            (self.before)();
        }
    }
}

#[test]
fn a_checkpoint_that_is_replaced_while_it_is_read_is_left_for_the_newer_one() {
    // Before the first pages, or between them and the last.
    for left in [1, 2] {
        let model = model();
        let store = Arc::new(taken(&model, &Memory::new(), "a"));
        (1..3).for_each(|round| filled(&store, round));
        let (owner, rounds) = (Arc::clone(&store), Mutex::new(3..));
        let before = Box::new(move || filled(&owner, rounds.lock().unwrap().next().unwrap()));
        let between = Arc::new(AtPages { model: Arc::clone(&model), left: AtomicUsize::new(left), before });
        let consensus = Arc::new(Over(Arc::clone(&between)));
        let follower = follow(consensus, &Memory::new()).unwrap();
        assert_eq!((rows(follower.local()), afresh(&model)), (rows(&*store), rows(&*store)), "{left}");
    }
}
