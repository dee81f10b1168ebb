//! Reports as operators see them: what is refused or makes room is counted, and one statement has its own sums.

use super::*;
use crate::limits::MAX_STATEMENTS;
use crate::statements::testing::Stage;
use tidegate_cost_model::StatementKind;

const HOUR_MS: u64 = 3_600_000;

fn row(group: &str, fingerprint: u64, calls: u64) -> StatementRow {
    StatementRow {
        group: GroupName::parse(group).unwrap(),
        fingerprint: Fingerprint(fingerprint),
        kind: StatementKind::Select,
        template: "SELECT ?".into(),
        sums: Sums { calls, ..Sums::default() },
    }
}

fn report(stage: &Stage, seq: u64, rows: Vec<StatementRow>) {
    let report = StatementReport { gateway: "gw".into(), incarnation: 1, seq, rows, evicted: 0 };
    stage.calls().report_statements(report);
}

#[test]
fn rows_that_are_left_out_or_make_room_are_counted_once() {
    let stage = Stage::new();
    report(&stage, 1, vec![row("gone", 1, 1), row("default", 1, 1), row("gone", 2, 1)]);
    let page = stage.service.metrics.page(&[]).unwrap();
    assert!(page.contains("refused_total{reason=\"unknown_group\"} 2\n"), "{page}");
    let most = u64::try_from(MAX_STATEMENTS).unwrap();
    report(&stage, 2, (0..most).map(|number| row("default", number, 1)).collect());
    assert_eq!(stage.service.metrics.statements_evicted.get(), 0);
    for number in most..most + 3 {
        report(&stage, number, vec![row("default", number, 1)]);
    }
    assert_eq!(stage.service.metrics.statements_evicted.get(), 3);
}

#[test]
fn one_statement_has_the_sums_of_the_range_asked_for() {
    let stage = Stage::new();
    report(&stage, 1, vec![row("default", 1, 5), row("default", 2, 100)]);
    stage.pass_ms(10 * HOUR_MS);
    report(&stage, 2, vec![row("default", 1, 2)]);
    let now = stage.service.clock().unix_ms();
    let of = |last| {
        let (row, history) = stage.calls().statement("default", "1", last).unwrap();
        let history: Vec<(u64, u64)> = history.iter().map(|(at, sums)| (now - at, sums.calls)).collect();
        (row.sums.calls, history)
    };
    assert_eq!(of(None), (7, vec![(0, 2)]));
    assert_eq!(of(Some(Range::Minutes)), (2, vec![(0, 2)]));
    assert_eq!(of(Some(Range::Hour)), (2, vec![(0, 2)]));
    assert_eq!(of(Some(Range::Day)), (7, vec![(10 * HOUR_MS, 5), (0, 2)]));
}
