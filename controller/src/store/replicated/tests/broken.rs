//! A log or a checkpoint of which something is missing or wrong while a controller reads it.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use tidegate_consensus::model::Model;
use tidegate_consensus::{Step, Transaction};

use super::super::super::StoreError;
use super::super::checkpoint::{Checkpoint, Content};
use super::super::keys::{Keys, shown};
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

#[test]
fn whichever_key_holds_what_no_controller_writes_is_named() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &Memory::new(), "a");
    (1..3).for_each(|round| filled(&store, round));
    store.commit(&[put(Table::Ledger, b"last", b"1")]).unwrap();
    started(&model, &place);
    let keys = Keys::new(PREFIX).unwrap();
    let broken = |key: &[u8]| copied(&model, |_, of, value| if of == key { vec![0xff] } else { value });
    let is_named = |error: &StoreError, key: &[u8]| {
        matches!(error, StoreError::Unfit { .. }) && error.to_string().contains(&shown(key))
    };
    let all = model.rows();
    let checkpoint = all.iter().find(|row| row.key == keys.checkpoint()).unwrap();
    let contained = Checkpoint::decode(&checkpoint.value).unwrap().n;
    let is_read = |key: &[u8]| {
        let others = [keys.format(), keys.cluster(), keys.checkpoint()];
        let is_segment = keys.number(key).is_some_and(|n| n > contained);
        is_segment || key.starts_with(b"t/page/") || others.iter().any(|other| other == key)
    };
    let read: Vec<_> = all.iter().map(|row| &row.key).filter(|key| is_read(key)).collect();
    assert!(read.len() > 5, "{read:?}");
    for key in read {
        let error = follow(broken(key), &Memory::new()).unwrap_err();
        assert!(is_named(&error, key), "{}: {error}", shown(key));
    }
    let error = started(&broken(&keys.own()), &Memory::new()).look().unwrap_err();
    assert!(is_named(&error, &keys.own()), "{error}");
    // What a store asks that may be ahead of its log.
    let last = all.iter().filter_map(|row| keys.number(&row.key)).max().unwrap();
    let footing = |model| Footing::of(&*place.store(), model, PREFIX, settings(30));
    assert_eq!(footing(Arc::<Model>::clone(&model)).unwrap(), Footing::Within(last));
    let error = footing(broken(&keys.segment(last))).unwrap_err();
    assert!(is_named(&error, &keys.segment(last)), "{error}");
    // A key among the segments that is none.
    let other = [keys.segment(last), b"x".to_vec()].concat();
    let then = vec![Step::Put(other.clone(), b"1".to_vec())];
    model.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    let error = follow(Arc::<Model>::clone(&model), &Memory::new()).unwrap_err();
    assert!(is_named(&error, &other) && error.to_string().contains("no segment's"), "{error}");
    // An owner makes no checkpoint over one that it cannot read.
    let then = vec![Step::Put(keys.checkpoint(), vec![0xff])];
    model.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    (0..80_u8).for_each(|key| store.commit(&[put(Table::Ledger, &[key], &[7; 40])]).unwrap());
    let error = store.checkpoint_if_due().unwrap_err();
    assert!(is_named(&error, &keys.checkpoint()), "{error}");
    assert!(model.rows().iter().any(|row| row.key == keys.checkpoint() && row.value == [0xff]));
}

#[test]
fn a_controller_whose_record_does_not_read_is_listed_by_its_name_and_not_written_over_unseen() {
    let model = model();
    let key = Keys::new(PREFIX).unwrap().member("b");
    let then = vec![Step::Put(key, b"{}".to_vec())];
    model.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    let members = Members::new(Arc::<Model>::clone(&model), PREFIX, settings(30)).unwrap();
    let [(record, changed)] = &members.all().unwrap()[..] else { panic!() };
    assert_eq!((record.controller.as_str(), record.version.as_str(), record.instance), ("b", "unknown", 0));
    let own = MemberRecord { instance: 5, version: "1".to_owned(), ..record.clone() };
    assert_eq!(members.write(&own, 0).unwrap(), Wrote::Other(Some((record.clone(), *changed))));
    assert!(matches!(members.write(&own, *changed).unwrap(), Wrote::Done(_)));
    assert_eq!(members.all().unwrap()[0].0, own);
}
