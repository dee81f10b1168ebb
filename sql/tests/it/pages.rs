//! Tables that have more rows than a page, and rows that differ in their group alone.

use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::statements_client::StatementsClient;
use tidegate_proto::v1::step::Kind;

use crate::support::Lab;

/// One more than the controller gives at once.
const BINDINGS: usize = 1_001;

#[tokio::test]
async fn all_bindings_are_read_where_a_page_does_not_hold_them() {
    let lab = Lab::forgetful().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5").await;
    let bind = |number: usize| {
        let user = format!("u{number}");
        let binding = v1::Binding { tenant: String::new(), user, group: "shop".into() };
        v1::Step { kind: Some(Kind::Binding(binding)) }
    };
    let request =
        v1::ApplyRequest { steps: (0..BINDINGS).map(bind).collect(), ..v1::ApplyRequest::default() };
    AdminClient::new(lab.channel.clone()).apply(request).await.unwrap();
    let read = lab.rows("SELECT count(*), count(DISTINCT user) FROM tidegate.bindings").await;
    assert_eq!(read, [format!("{BINDINGS}|{BINDINGS}")]);
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
