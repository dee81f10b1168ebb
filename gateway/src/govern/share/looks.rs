//! Statements that are looked at while they run, and transactions of several: each byte is charged once.

use StatementKind::{Ddl, Insert, Select, Transaction, Unknown, Update};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::tests::{KIB, MIB, charged, did, work};
use super::*;

/// The charge of a statement that nobody looked at: bytes read and bytes written.
fn unseen(server: Server, work: &Work, did: Counted) -> (u64, u64) {
    let mut share = Share::new(server);
    share.add(&did);
    let usage = share.end(work, 0, false, &Unowned::default());
    (usage.read_bytes, usage.write_bytes)
}

#[test]
fn the_difference_of_counters_and_the_larger_of_them_are_of_each() {
    let (small, large) = (
        Counted { cpu_ns: 1, read: 2, written: 3, writes: 4 },
        Counted { cpu_ns: 10, read: 20, written: 30, writes: 40 },
    );
    assert_eq!(large.since(&small), Counted { cpu_ns: 9, read: 18, written: 27, writes: 36 });
    assert_eq!((small.at_least(&large), large.at_least(&small)), (large, large));
    assert_eq!(small.since(&large), Counted::default());
}

#[test]
fn what_a_look_charged_is_not_charged_again() {
    let unowned = Unowned::default();
    for kind in [Select, Update] {
        let mut share = Share::new(Server::Postgres);
        let statement = work(kind, 0, 0);
        share.add(&Counted { cpu_ns: 5, read: 4 * MIB, written: 3 * MIB, writes: 384 });
        share.looked();
        let first = share.so_far(&statement, 3 * MIB);
        assert_eq!((first.cpu_ns, first.read_bytes, first.write_bytes), (5, 7 * MIB, 0));
        assert_eq!(share.so_far(&statement, 3 * MIB), Usage::default(), "nothing was done meanwhile");
        share.add(&Counted { cpu_ns: 2, read: MIB, written: MIB, writes: 128 });
        share.looked();
        let last = share.end(&statement, 4 * MIB, false, &unowned);
        assert_eq!((last.cpu_ns, last.read_bytes, last.write_bytes), (2, 2 * MIB, 0));
        // And nothing of it is the next statement's.
        assert_eq!(share.end(&statement, 0, false, &unowned), Usage::default());
    }
}

#[test]
fn what_a_look_saw_of_one_statement_is_not_taken_for_the_next_one_s() {
    let unowned = Unowned::default();
    let (select, next) = (work(Select, 0, 0), did(0, 2 * MIB, 256));
    let mut share = Share::new(Server::Postgres);
    share.add(&did(0, 3 * MIB, 384));
    share.looked();
    share.end(&select, 3 * MIB, false, &unowned);
    share.add(&next);
    let usage = share.end(&select, 0, false, &unowned);
    assert_eq!((usage.read_bytes, usage.write_bytes), unseen(Server::Postgres, &select, next));
}

#[test]
fn what_is_spilled_explains_neither_the_other_reads_nor_the_other_writes() {
    let select = work(Select, 0, 0);
    // Pages beside temporary files that were read back, and a few calls of the log of others beside them.
    assert_eq!(
        charged(Server::Postgres, &select, did(8 * MIB, 10 * MIB, 1_280), 8 * MIB),
        (16 * MIB, 2 * MIB)
    );
    assert_eq!(charged(Server::Postgres, &select, did(0, 10 * MIB, 1_026), 8 * MIB), (8 * MIB, 16 * KIB));
}

#[test]
fn what_a_thread_spilled_is_known_by_its_calls() {
    let (select, insert) = (work(Select, 0, 0), work(Insert, 1, 60));
    // All of it was read back.
    assert_eq!(charged(Server::MariaDb, &select, did(100 * KIB, 100 * KIB, 30), 0), (200 * KIB, 0));
    // A change with a few calls has written its log alone.
    let own = 4_096 + 512 + 120;
    assert_eq!(charged(Server::MariaDb, &insert, did(8 * KIB, 252 * KIB, MANY - 1), 0), (8 * KIB, own));
    assert_eq!(charged(Server::MariaDb, &insert, did(8 * KIB, 256 * KIB, MANY), 0), (16 * KIB, own));
    // There are no files to look for, so nothing is said by that.
    for (server, block) in [(Server::MariaDb, 4 * KIB), (Server::MySql, 512)] {
        assert_eq!(unseen(server, &select, did(0, 2 * MIB, 2)), (2 * MIB - block, block), "{server:?}");
    }
}

#[test]
fn rows_that_were_changed_explain_what_is_written_whatever_the_text_is() {
    // A query that changes rows: `WITH .. INSERT .. SELECT`.
    assert_eq!(charged(Server::Postgres, &work(Select, 1_000, 0), did(0, 400 * KIB, 1), 0), (0, 400 * KIB));
    // What is told of an unknown one is no more than its rows; of one that says nothing all single pages are charged.
    let pages = did(0, 66 * 8 * KIB, 66);
    assert_eq!(charged(Server::Postgres, &work(Unknown, 1, 0), pages, 0), (0, 8 * KIB + 512));
    assert_eq!(charged(Server::Postgres, &work(Unknown, 0, 0), pages, 0), (0, 66 * 8 * KIB));
    assert_eq!(charged(Server::Postgres, &work(Ddl, 0, 0), pages, 0), (0, 66 * 8 * KIB));
}

#[test]
fn only_what_is_behind_the_last_look_is_taken_for_spilled() {
    let unowned = Unowned::default();
    let select = work(Select, 0, 0);
    for (behind, spilled) in [(MIB, MIB), (MIB - 8 * KIB, 0)] {
        let mut share = Share::new(Server::Postgres);
        share.add(&did(0, 8 * MIB, 1_024));
        share.looked();
        share.add(&did(0, behind, behind / (8 * KIB)));
        let usage = share.end(&select, 0, false, &unowned);
        assert_eq!((usage.read_bytes, usage.write_bytes), (spilled, 8 * MIB + behind - spilled));
    }
    // Of that, what is charged as written before stays so.
    let mut share = Share::new(Server::Postgres);
    share.add(&did(0, 8 * MIB, 1_024));
    share.looked();
    assert_eq!(share.so_far(&select, 0).write_bytes, 8 * MIB);
    share.add(&did(4 * MIB, 2 * MIB, 256));
    let usage = share.end(&select, 0, false, &unowned);
    assert_eq!((usage.read_bytes, usage.write_bytes, unowned.left()), (4 * MIB, 0, 2 * MIB));
}

#[test]
fn what_others_wrote_since_a_transaction_began_is_its_own_at_its_end() {
    let unowned = Unowned::default();
    let mut share = Share::new(Server::Postgres);
    unowned.give(5 * MIB);
    share.runs(&unowned);
    assert_eq!(share.end(&work(Insert, 1, 60), 0, true, &unowned).write_bytes, 0);
    // Others write its row out between its statements.
    unowned.give(MIB);
    share.runs(&unowned);
    assert_eq!(share.end(&work(Transaction, 0, 12), 0, false, &unowned).write_bytes, 632);
    // It is over: what was given before the next one is none of its business.
    share.runs(&unowned);
    assert_eq!(share.end(&work(Insert, 1, 60), 0, false, &unowned).write_bytes, 0);
}

#[test]
fn a_transaction_waits_for_its_commit_with_little_of_what_others_wrote_for_it() {
    let unowned = Unowned::default();
    let mut share = Share::new(Server::Postgres);
    share.runs(&unowned);
    unowned.give(9 * MIB);
    let (rows, most) = (10_000, 10_000 * ROW);
    assert_eq!(share.end(&work(Insert, rows, 0), 0, true, &unowned).write_bytes, most - LATER);
    assert_eq!(share.end(&work(Insert, 1, 0), 0, true, &unowned).write_bytes, ROW);
    assert_eq!(share.end(&work(Transaction, 0, 0), 0, false, &unowned).write_bytes, LATER);
    assert_eq!(unowned.left(), 9 * MIB - most - ROW);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(512)
    })]

    /// Whatever a statement does and whenever it is looked at, though a temporary file becomes smaller, and though a
    /// query turns out to have changed rows.
    #[test]
    fn no_byte_is_charged_twice_however_a_statement_is_looked_at(
        server in prop_oneof![Just(Server::Postgres), Just(Server::MariaDb), Just(Server::MySql)],
        kind in prop_oneof![Just(Select), Just(Insert), Just(Ddl)],
        steps in vec((0..4 * MIB, 0..4 * MIB, 0_u64..600, prop_oneof![Just(0), 0_u64..2_000], 0..8 * MIB, any::<bool>()), 1..8),
    ) {
        let unowned = Unowned::default();
        let mut share = Share::new(server);
        let (mut all, mut rows, mut charged) = (Counted::default(), 0, Usage::default());
        let count = steps.len();
        for (place, (read, written, writes, changed, files, looks)) in steps.into_iter().enumerate() {
            let more = did(read, written, writes);
            (all, rows) = (all.plus(&more), rows + changed);
            share.add(&more);
            if looks {
                share.looked();
            }
            let files = if server == Server::Postgres { files } else { 0 };
            let work = work(kind, rows, 0);
            let usage = if place + 1 == count { share.end(&work, files, false, &unowned) }
                else { share.so_far(&work, files) };
            charged = charged.plus(&usage);
        }
        let spilled = charged.read_bytes - all.read;
        prop_assert_eq!(charged.write_bytes + spilled + unowned.left(), all.written);
    }
}
