//! Rows of counters that are kept in memory: those that are removed are gone from there, too, and all others count on.

use tidegate_consensus::model::Model;
use tidegate_core::group::GroupId;

use super::super::super::records::{narrow, pair_key};
use super::super::super::{Batch, Store as _};
use super::super::growth::Growing;
use super::super::known::Known;
use super::memory::Memory;
use super::rules::{afresh, model, started, taken};
use super::slow::Slow;
use super::*;

fn key(number: u64) -> Vec<u8> {
    pair_key(number, GroupId(7))
}

fn row(table: Table, number: u64, sum: u64) -> Write {
    Write::Put(table, key(number), counters([sum]))
}

/// What a row has when it has grown by 1; `None`: it is not there.
fn grown(known: &mut Known, local: &dyn Store, table: Table, number: u64) -> Option<u64> {
    let (mut growing, mut by) = (Growing::default(), Narrow::default());
    by[Total::WORDS - 1] = 1;
    growing.push((number, 7), &by);
    let mut batch = Batch::new();
    known.grow((table, &growing.finish()), local, b"k", &mut batch).ok()?;
    let [Write::Put(of, at, value)] = batch.as_slice() else { panic!("{batch:?}") };
    assert_eq!((*of, at), (table, &key(number)));
    narrow(value).unwrap().last().copied()
}

#[test]
fn rows_below_a_key_are_removed_and_all_others_count_on() {
    let place = Memory::new();
    let (local, mut known) = (place.store(), Known::new(100));
    let (ledger, minutes, hours) = (Table::Ledger, Table::Minutes, Table::Hours);
    local.commit(&[row(ledger, 1, 10), row(ledger, 5, 10), row(minutes, 1, 10), row(hours, 3, 10)]).unwrap();
    // These are not in the local store yet.
    for (table, number) in [(ledger, 2), (ledger, 4), (ledger, 6), (minutes, 2)] {
        known.note(&row(table, number, 20));
    }
    known.note(&Write::DeleteBelow(ledger, key(4)));
    known.note(&Write::DeleteBelow(hours, key(3)));
    for (table, number, expected) in [
        (ledger, 1, None),
        (ledger, 2, None),
        (ledger, 4, Some(21)),
        (ledger, 5, Some(11)),
        (ledger, 6, Some(21)),
        (minutes, 1, Some(11)),
        (minutes, 2, Some(21)),
        (hours, 3, Some(11)),
    ] {
        assert_eq!(grown(&mut known, &*local, table, number), expected, "{table:?} {number}");
    }
}

#[test]
fn rows_that_were_used_a_while_ago_are_removed_with_the_others() {
    let place = Memory::new();
    let (local, mut known) = (place.store(), Known::new(8));
    for number in 1..=5 {
        let write = row(Table::Ledger, number, 10);
        local.commit(std::slice::from_ref(&write)).unwrap();
        known.note(&write);
    }
    known.committed();
    known.note(&Write::DeleteBelow(Table::Ledger, key(4)));
    for (number, expected) in [(1, None), (3, None), (4, Some(11)), (5, Some(11))] {
        assert_eq!(grown(&mut known, &*local, Table::Ledger, number), expected, "{number}");
    }
}

#[test]
fn a_row_that_comes_again_after_a_removal_counts_on() {
    let place = Memory::new();
    let (local, mut known) = (place.store(), Known::new(4));
    let mut commit = |writes: &[Write]| {
        local.commit(writes).unwrap();
        writes.iter().for_each(|write| known.note(write));
        known.committed();
    };
    commit(&[Write::DeleteBelow(Table::Ledger, key(9))]);
    commit(&[row(Table::Ledger, 3, 10)]);
    // More than are kept.
    commit(&(20..26).map(|number| row(Table::Ledger, number, 1)).collect::<Vec<_>>());
    assert_eq!(grown(&mut known, &*local, Table::Ledger, 3), Some(11));
}

#[test]
fn rows_that_are_kept_are_bounded_for_an_owner_and_for_a_follower() {
    let (model, own, followed) = (model(), Slow::new(), Slow::new());
    let follow = |place: &Arc<Slow>| {
        let (consensus, place) = (Arc::<Model>::clone(&model), Arc::<Slow>::clone(place));
        Follower::follow(consensus, PREFIX, place, settings(30), false).unwrap()
    };
    let follower = follow(&own);
    let seen = follower.look().unwrap();
    let store = follower.take(&seen, &owner("a")).unwrap();
    let mut follower = follow(&followed);
    // Four are kept, or a few more.
    for number in 1..=20 {
        store.commit(&[row(Table::Ledger, number, 10)]).unwrap();
        follower.catch_up().unwrap();
    }
    let before = (own.asked(), followed.asked());
    for (number, sum) in [(1, 11), (2, 11), (3, 11)] {
        store.commit(&[row(Table::Ledger, number, sum)]).unwrap();
        follower.catch_up().unwrap();
    }
    assert_eq!((own.asked() - before.0, followed.asked() - before.1), (3, 3), "they were kept");
    store.commit(&[row(Table::Ledger, 3, 12)]).unwrap();
    follower.catch_up().unwrap();
    assert_eq!((own.asked() - before.0, followed.asked() - before.1), (3, 3), "the newest one was not kept");
    assert_eq!(rows(follower.local()), rows(&store));
}

#[test]
fn a_follower_that_starts_again_counts_nothing_twice() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &Memory::new(), "a");
    let mut follower = started(&model, &place);
    let mut applied = follower.applied();
    for sum in [10, 15] {
        store.commit(&[row(Table::Ledger, 1, sum)]).unwrap();
        follower.catch_up().unwrap();
        assert!(follower.applied() > applied);
        applied = follower.applied();
    }
    drop(follower);
    let follower = started(&model, &place);
    assert_eq!((follower.applied(), rows(follower.local())), (applied, rows(&store)));
}

#[test]
fn a_removal_in_the_same_batch_keeps_its_place_before_a_row() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    store.commit(&[row(Table::Ledger, 3, 10)]).unwrap();
    store.commit(&[Write::DeleteBelow(Table::Ledger, key(5)), row(Table::Ledger, 3, 12)]).unwrap();
    assert_eq!(rows(&store)[&(Table::Ledger, key(3))], counters([12]));
    assert_eq!(afresh(&model), rows(&store));
}

#[test]
fn a_row_whose_number_is_too_high_for_an_increment_is_counted() {
    let (model, place) = (model(), Memory::new());
    let store = taken(&model, &place, "a");
    for number in [u64::MAX >> 1, (u64::MAX >> 1) + 1, u64::MAX] {
        for sum in [10, 12] {
            store.commit(&[row(Table::Ledger, number, sum)]).unwrap();
        }
        assert_eq!(rows(&store)[&(Table::Ledger, key(number))], counters([12]));
        assert_eq!(afresh(&model), rows(&store), "{number}");
    }
}
