//! Journals across simulated kills, torn writes and foreign files.

use std::sync::Arc;

use tidegate_core::node::NodeConfig;
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts};

use super::slot::COPY_BYTES;
use super::*;
use crate::groups::GroupCell;
use crate::shared::Shared;

fn identity() -> Identity {
    Identity::new("node-1").unwrap()
}

fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

fn total(ru: i64) -> Total {
    Consumption { charged: RuParts::flat(Ru(ru)), operations: 1, ..Consumption::default() }.into()
}

fn open(dir: &Path, wall_us: u64) -> (Journal, Vec<Inherited>) {
    Journal::open(dir, &identity(), wall_us).unwrap()
}

#[test]
fn what_was_written_is_inherited_until_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, inherited) = open(dir.path(), 100);
    assert!(inherited.is_empty());
    let (mut a, mut b) = (journal.claim(&group("a")).unwrap(), journal.claim(&group("b")).unwrap());
    for ru in 1..=5 {
        journal.write(&mut a, &group("a"), &total(ru)).unwrap();
    }
    journal.write(&mut b, &group("b"), &total(9)).unwrap();
    drop(journal);

    let (journal, inherited) = open(dir.path(), 50);
    assert_eq!(journal.incarnation(), 101, "grows although the wall clock stepped back");
    let seen: Vec<_> =
        inherited.iter().map(|i| (i.incarnation, &*i.group, i.total.ru().clamped().0)).collect();
    assert_eq!(seen, [(100, "a", 5), (100, "b", 9)]);
    journal.drop_slot(inherited[0].slot).unwrap();
    let mut reused = journal.claim(&group("c")).unwrap();
    assert_eq!(reused.id(), inherited[0].slot);
    journal.write(&mut reused, &group("c"), &total(1)).unwrap();
    drop(journal);

    let (_journal, inherited) = open(dir.path(), 1_000);
    let seen: Vec<_> =
        inherited.iter().map(|i| (i.incarnation, &*i.group, i.total.ru().clamped().0)).collect();
    assert_eq!(seen, [(101, "c", 1), (100, "b", 9)]);
}

#[test]
fn the_slot_of_a_group_that_is_no_more_is_empty_and_handed_out_again() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), 1);
    let (mut a, b) = (journal.claim(&group("a")).unwrap(), journal.claim(&group("b")).unwrap());
    journal.write(&mut a, &group("a"), &total(5)).unwrap();
    for slot in [&a, &b] {
        journal.release(slot).unwrap();
        assert_eq!(journal.claim(&group("c")).unwrap().id(), slot.id());
    }
    assert_eq!(journal.claim(&group("d")).unwrap().id(), SlotId(2), "each is handed out once");
    drop(journal);
    assert!(open(dir.path(), 2).1.is_empty(), "nothing is left to report");
}

#[test]
fn a_slot_that_cannot_be_emptied_is_not_handed_out() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 1);
    let mut slot = journal.claim(&group("a")).unwrap();
    journal.write(&mut slot, &group("a"), &total(5)).unwrap();
    journal.file = File::open(&journal.path).unwrap();
    let error = journal.release(&slot).unwrap_err();
    assert!(error.to_string().contains("node-1.journal: cannot empty a slot"), "{error}");
    assert_ne!(journal.claim(&group("b")).unwrap().id(), slot.id());
}

#[test]
fn a_journal_whose_first_header_was_never_written_begins_now() {
    let dir = tempfile::tempdir().unwrap();
    File::create(dir.path().join("node-1.journal")).unwrap().set_len(HEADER_BYTES).unwrap();
    let (journal, inherited) = open(dir.path(), 7);
    assert_eq!((journal.incarnation(), inherited), (7, Vec::new()));
    drop(journal);
    assert_eq!(open(dir.path(), 7).0.incarnation(), 8);
}

#[test]
fn a_torn_slot_falls_back_to_the_previous_total() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), 1);
    let mut slot = journal.claim(&group("a")).unwrap();
    for ru in [10, 20] {
        journal.write(&mut slot, &group("a"), &total(ru)).unwrap();
    }
    // Version 2 lies in the first copy; half of it is lost.
    journal.file.write_all_at(&[0xee; 200], offset(slot.id()) + 100).unwrap();
    drop(journal);
    let (_journal, inherited) = open(dir.path(), 2);
    assert_eq!(inherited.iter().map(|i| i.total.ru().clamped()).collect::<Vec<_>>(), [Ru(10)]);
}

#[test]
fn after_a_write_that_failed_the_newest_whole_total_is_still_the_one_to_fall_back_to() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 1);
    let mut slot = journal.claim(&group("a")).unwrap();
    journal.write(&mut slot, &group("a"), &total(10)).unwrap();
    let only_read = File::open(&journal.path).unwrap();
    let file = std::mem::replace(&mut journal.file, only_read);
    let error = journal.write(&mut slot, &group("a"), &total(20)).unwrap_err().to_string();
    assert!(error.contains("node-1.journal: cannot write a slot"), "{error}");
    journal.file = file;
    journal.write(&mut slot, &group("a"), &total(30)).unwrap();
    // It is version 2, in the first copy; half of it is lost.
    journal.file.write_all_at(&[0xee; 200], offset(slot.id()) + 100).unwrap();
    drop(journal);
    let (_journal, inherited) = open(dir.path(), 2);
    assert_eq!(inherited.iter().map(|i| i.total.ru().clamped()).collect::<Vec<_>>(), [Ru(10)]);
}

#[test]
fn a_slot_damaged_in_both_copies_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), 1);
    journal.file.write_all_at(&[0xee; RECORD_BYTES], offset(SlotId(0))).unwrap();
    drop(journal);
    let error = Journal::open(dir.path(), &identity(), 2).unwrap_err();
    let file = dir.path().join("node-1.journal");
    let expected = format!("journal {}: slot 0 is damaged in both copies", file.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
fn a_first_write_cut_short_at_the_end_of_the_file_is_an_empty_slot() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), 1);
    journal.file.write_all_at(&[0xee; 100], offset(SlotId(0))).unwrap();
    drop(journal);
    let (journal, inherited) = open(dir.path(), 2);
    assert!(inherited.is_empty());
    assert_eq!(journal.claim(&group("a")).unwrap().id(), SlotId(0));
}

/// The first write of a slot goes to its second copy, so that the file ends in the middle of that when it is cut short.
#[test]
fn a_first_write_cut_short_anywhere_is_an_empty_slot_and_one_that_was_whole_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    for length in [1, COPY_BYTES - 1, COPY_BYTES, COPY_BYTES + 100, RECORD_BYTES - 1] {
        let (journal, _) = open(dir.path(), 1);
        journal.file.set_len(offset(SlotId(0))).unwrap();
        journal.file.write_all_at(&vec![0xee; length], offset(SlotId(0))).unwrap();
        drop(journal);
        let (journal, inherited) = open(dir.path(), 2);
        assert!(inherited.is_empty(), "{length} bytes");
        let mut slot = journal.claim(&group("a")).unwrap();
        assert_eq!(slot.id(), SlotId(0), "{length} bytes");
        journal.write(&mut slot, &group("a"), &total(7)).unwrap();
        drop(journal);
        let (journal, inherited) = open(dir.path(), 3);
        assert_eq!(inherited.iter().map(|i| i.total.ru().clamped()).collect::<Vec<_>>(), [Ru(7)]);
        journal.drop_slot(inherited[0].slot).unwrap();
    }
    let (journal, _) = open(dir.path(), 4);
    journal.file.write_all_at(&[0xee; RECORD_BYTES], offset(SlotId(0))).unwrap();
    drop(journal);
    assert!(matches!(Journal::open(dir.path(), &identity(), 5), Err(JournalError::Damaged { slot: 0, .. })));
}

#[test]
fn a_torn_header_falls_back_to_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), 100));
    let (journal, _) = open(dir.path(), 200);
    // The second header lies in the first copy; half of it is lost.
    journal.file.write_all_at(&[0xee; 200], 100).unwrap();
    drop(journal);
    let (journal, _) = open(dir.path(), 1);
    assert_eq!(journal.incarnation(), 101);
}

#[test]
fn no_more_slots_are_read_or_handed_out_than_there_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), 1);
    journal.file.set_len(offset(SlotId(MAX_SLOTS + 5))).unwrap();
    journal.file.write_all_at(&[0xee; RECORD_BYTES], offset(SlotId(MAX_SLOTS))).unwrap();
    drop(journal);
    let (journal, _) = open(dir.path(), 2);
    for _ in 0..MAX_SLOTS {
        assert!(journal.claim(&group("a")).unwrap().id().0 < MAX_SLOTS);
    }
    assert!(matches!(journal.claim(&group("a")), Err(JournalError::Full { .. })));
}

#[test]
fn every_write_that_fails_is_counted_and_work_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 1);
    let name = group("a");
    let slot = journal.claim(&name).unwrap();
    let only_read = File::open(&journal.path).unwrap();
    let file = std::mem::replace(&mut journal.file, only_read);
    let shared = Shared::new(NodeConfig::default(), Some(journal));
    let cell = GroupCell::new(0, name, Arc::clone(&shared), Arc::default(), Some(slot));
    for failures in 1..=3 {
        let charged = RuParts::flat(Ru(5));
        let actual = Consumption { charged, operations: 1, ..Consumption::default() };
        cell.with(|state, now| state.charge(now, &actual));
        assert_eq!(shared.counters.journal_failures.get(), failures);
    }
    assert_eq!(cell.consumption().ru().clamped(), Ru(15), "work goes on");
    drop((cell, shared, file));
    assert!(open(dir.path(), 2).1.is_empty());
}

#[test]
fn foreign_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node-1.journal");
    for content in [&b"#!/bin/sh\n"[..], &[0xaa; 10_000], &encode(1, b"something else").unwrap().repeat(2)] {
        std::fs::write(&path, content).unwrap();
        let error = Journal::open(dir.path(), &identity(), 1).unwrap_err();
        assert!(matches!(error, JournalError::NotAJournal { .. }), "{error}");
        let expected = format!(
            "journal {} is not a tidegate journal of format 1 for node \"node-1\"; move the file away",
            path.display()
        );
        assert_eq!(error.to_string(), expected);
        assert_eq!(std::fs::read(&path).unwrap(), content, "left as it was");
    }
    let other = Identity::new("node-2").unwrap();
    std::fs::remove_file(&path).unwrap();
    drop(open(dir.path(), 1));
    std::fs::rename(&path, dir.path().join("node-2.journal")).unwrap();
    assert!(matches!(Journal::open(dir.path(), &other, 1), Err(JournalError::NotAJournal { .. })));
}

#[test]
fn a_second_opener_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), 1);
    let error = Journal::open(dir.path(), &identity(), 2).unwrap_err();
    let file = dir.path().join("node-1.journal");
    assert!(error.to_string().starts_with(&format!("journal {} is in use", file.display())), "{error}");
    drop(journal);
    open(dir.path(), 3);
    let missing = Journal::open(&dir.path().join("missing"), &identity(), 1).unwrap_err();
    assert!(matches!(missing, JournalError::Io { action: "open it", .. }), "{missing}");
}

#[test]
fn a_full_journal_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), 1);
    for _ in 0..MAX_SLOTS {
        journal.claim(&group("a")).unwrap();
    }
    let error = journal.claim(&group("b")).unwrap_err().to_string();
    let file = dir.path().join("node-1.journal");
    let expected = format!("journal {} has no room for group b: all 65536 slots", file.display());
    assert!(error.starts_with(&expected), "{error}");
}
