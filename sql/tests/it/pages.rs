//! Tables that have more rows than a page, and rows that differ in their group alone.

use std::cell::Cell;

use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::statements_client::StatementsClient;
use tidegate_proto::v1::step::Kind;

use crate::support::Lab;

/// Three times what the controller gives at once, and one more.
const BINDINGS: usize = 3_001;

#[tokio::test]
async fn all_bindings_are_read_where_a_page_does_not_hold_them() {
    let lab = Lab::forgetful().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5").await;
    // Of users alone, of one tenant's users, and of tenants alone, so that each page ends within one of these.
    let bind = |number: usize| {
        let (tenant, user) = match number % 3 {
            0 => (String::new(), format!("u{number}")),
            1 => ("acme".to_owned(), format!("u{number}")),
            _ => (format!("t{number}"), String::new()),
        };
        let binding = v1::Binding { tenant, user, group: "shop".into() };
        v1::Step { kind: Some(Kind::Binding(binding)) }
    };
    let request =
        v1::ApplyRequest { steps: (0..BINDINGS).map(bind).collect(), ..v1::ApplyRequest::default() };
    AdminClient::new(lab.channel.clone()).apply(request).await.unwrap();
    assert_eq!(lab.rows("SELECT count(*) FROM tidegate.bindings").await, [BINDINGS.to_string()]);
    let different = "SELECT count(*) FROM (SELECT DISTINCT tenant, user FROM tidegate.bindings) b";
    assert_eq!(lab.rows(different).await, [BINDINGS.to_string()]);
}

#[tokio::test]
async fn the_same_statement_of_two_groups_is_two_rows() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5").await;
    let row = |group: &str, calls: u64| v1::StatementRow {
        group: group.into(),
        fingerprint: "00000000000000ab".into(),
        kind: "select".into(),
        template: "SELECT ?".into(),
        calls,
        first_unix_ms: 1,
        last_unix_ms: 2,
        ..v1::StatementRow::default()
    };
    let report = v1::ReportStatementsRequest {
        gateway: "gw".into(),
        incarnation: 1,
        seq: 1,
        rows: vec![row("default", 2), row("shop", 3)],
        evicted: 0,
    };
    StatementsClient::new(lab.channel.clone()).report_statements(report).await.unwrap();
    let text = "SELECT resource_group, calls FROM tidegate.statements ORDER BY calls";
    assert_eq!(lab.rows(text).await, ["default|2", "shop|3"]);
}

/// Each is the first of one order alone, and behind the first thousand of every other one.
#[tokio::test]
async fn the_first_of_every_order_is_among_the_statements_that_are_looked_at() {
    let lab = Lab::forgetful().await;
    let count = Cell::new(0_u64);
    let row = |name: &str, change: &dyn Fn(&mut v1::StatementRow)| {
        count.set(count.get() + 1);
        let mut row = v1::StatementRow {
            group: "default".into(),
            fingerprint: format!("{:016x}", count.get()),
            kind: "select".into(),
            template: name.into(),
            first_unix_ms: 1,
            last_unix_ms: 2,
            ..v1::StatementRow::default()
        };
        change(&mut row);
        row
    };
    let dear = (0..1_000).map(|number| {
        row(&format!("dear {number}"), &|row| {
            (row.calls, row.cpu_micro_ru, row.max_micro_ru) = (10, 10_000_000, 2_000_000);
            (row.rows, row.elapsed_us, row.waited_us, row.errors, row.throttled) = (10, 10, 10, 10, 10);
        })
    });
    let frequent = (0..1_000).map(|number| {
        row(&format!("frequent {number}"), &|row| (row.calls, row.cpu_micro_ru) = (100, 1_000_000))
    });
    let first = [
        row("first ru", &|row| (row.calls, row.cpu_micro_ru) = (50, 11_000_000)),
        row("first average", &|row| (row.calls, row.cpu_micro_ru) = (1, 9_000_000)),
        row("first maximum", &|row| row.max_micro_ru = 3_000_000),
        row("first calls", &|row| row.calls = 200),
        row("first rows", &|row| row.rows = 11),
        row("first elapsed", &|row| row.elapsed_us = 11),
        row("first waited", &|row| row.waited_us = 11),
        row("first errors", &|row| row.errors = 11),
        row("first throttled", &|row| row.throttled = 11),
    ];
    let mut statements = StatementsClient::new(lab.channel.clone());
    for (seq, rows) in (1..).zip([dear.collect::<Vec<_>>(), frequent.collect(), first.to_vec()]) {
        let report =
            v1::ReportStatementsRequest { gateway: "gw".into(), incarnation: 1, seq, rows, evicted: 0 };
        statements.report_statements(report).await.unwrap();
    }
    let table = lab.table("SELECT template FROM tidegate.statements WHERE template LIKE 'first%'").await;
    let mut read = crate::support::lines(&table);
    read.sort_unstable();
    let mut expected: Vec<&str> = first.iter().map(|row| row.template.as_str()).collect();
    expected.sort_unstable();
    assert_eq!(read, expected);
}
