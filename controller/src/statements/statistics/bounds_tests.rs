//! Sums of all parts, and what is left of rows that were reported often or dropped.

use super::*;

fn row(fingerprint: u64, calls: u64) -> StatementRow {
    StatementRow {
        group: GroupName::parse("a").unwrap(),
        fingerprint: Fingerprint(fingerprint),
        kind: StatementKind::Select,
        template: "SELECT ?".into(),
        sums: Sums { calls, ..Sums::default() },
    }
}

fn report(seq: u64, rows: Vec<StatementRow>) -> StatementReport {
    StatementReport { gateway: "gw".into(), incarnation: 1, seq, rows, evicted: 0 }
}

#[test]
fn each_part_of_two_sums_counts() {
    let one = Sums {
        calls: 1,
        rows: 2,
        elapsed_us: 3,
        waited_us: 4,
        errors: 5,
        throttled: 6,
        estimated: 7,
        first_unix_ms: 90,
        last_unix_ms: 95,
        ..Sums::default()
    };
    let two = Sums {
        calls: 10,
        rows: 20,
        elapsed_us: 30,
        waited_us: 40,
        errors: 50,
        throttled: 60,
        estimated: 70,
        first_unix_ms: 80,
        last_unix_ms: 85,
        ..Sums::default()
    };
    let both = Sums {
        calls: 11,
        rows: 22,
        elapsed_us: 33,
        waited_us: 44,
        errors: 55,
        throttled: 66,
        estimated: 77,
        first_unix_ms: 80,
        last_unix_ms: 95,
        ..Sums::default()
    };
    assert_eq!((one.plus(&two), two.plus(&one)), (both, both));
}

/// The order in which rows go is that of their last reports, however often each was reported.
#[test]
fn a_row_that_is_reported_often_is_there_once_and_goes_last() {
    let mut statements = Statistics::new(0);
    for seq in 1..=5 {
        statements.report(report(seq, vec![row(0, 1)]), 0);
    }
    assert_eq!(statements.used.len(), 1);
    let most = u64::try_from(MAX_STATEMENTS).unwrap();
    statements.report(report(6, (1..most).map(|number| row(number, 1)).collect()), 0);
    for seq in 7..=9 {
        statements.report(report(seq, vec![row(0, 1)]), 0);
    }
    statements.report(report(10, vec![row(most, 1), row(most + 1, 1)]), 0);
    assert_eq!(
        (statements.len(), statements.used.len(), statements.evicted()),
        (MAX_STATEMENTS, MAX_STATEMENTS, 2)
    );
    let group = GroupName::parse("a").unwrap();
    let calls = |number| statements.get(&group, Fingerprint(number)).map(|row| row.sums.calls);
    assert_eq!([0, 1, 2, 3].map(calls), [Some(8), None, None, Some(1)]);
}

#[test]
fn a_reset_of_all_keeps_nothing_of_any_span() {
    let mut statements = Statistics::new(0);
    statements.report(report(1, vec![row(1, 1)]), 0);
    statements.reset(None, 1);
    assert!(statements.recent.within(Range::Day, 1).sums.is_empty());
}
