//! Costs of statements, over several gateways.

use serde_json::json;
use tidegate_proto::v1;
use tonic::Code;

use crate::apply::{apply, gone};
use crate::support::Lab;

fn row(group: &str, fingerprint: u64, calls: u64, ru: i64) -> v1::StatementRow {
    v1::StatementRow {
        group: group.into(),
        fingerprint: format!("{fingerprint:016x}"),
        kind: "select".into(),
        template: format!("SELECT {fingerprint} FROM t WHERE a = ?"),
        calls,
        read_micro_ru: ru * 1_000_000,
        max_micro_ru: 1_000_000,
        first_unix_ms: 1,
        last_unix_ms: 2,
        ..v1::StatementRow::default()
    }
}

fn report(gateway: &str, seq: u64, rows: Vec<v1::StatementRow>) -> v1::ReportStatementsRequest {
    v1::ReportStatementsRequest { gateway: gateway.into(), incarnation: 1, seq, rows, evicted: 1 }
}

async fn list(lab: &Lab, group: &str, order: &str, limit: u32) -> v1::ListStatementsReply {
    list_last(lab, group, order, limit, "").await
}

async fn list_last(lab: &Lab, group: &str, order: &str, limit: u32, last: &str) -> v1::ListStatementsReply {
    let request =
        v1::ListStatementsRequest { group: group.into(), order: order.into(), limit, last: last.into() };
    lab.statements().await.list_statements(request).await.unwrap().into_inner()
}

/// Each figure is another one, so that none can stand for another.
#[tokio::test]
async fn a_statement_is_told_with_all_its_figures_over_grpc_and_rest() {
    let lab = Lab::start().await;
    let usage = v1::Usage {
        cpu_ns: 21,
        read_requests: 22,
        read_batches: 23,
        read_bytes: 24,
        write_requests: 25,
        write_batches: 26,
        write_bytes: 27,
        net_in_bytes: 28,
        net_out_bytes: 29,
        cross_zone_bytes: 30,
    };
    let told = v1::StatementRow {
        group: "default".into(),
        fingerprint: "00000000000000ab".into(),
        kind: "update".into(),
        template: "UPDATE t SET a = ?".into(),
        calls: 2,
        cpu_micro_ru: 2_000_000,
        read_micro_ru: 4_000_000,
        write_micro_ru: 6_000_000,
        network_micro_ru: 8_000_000,
        max_micro_ru: 15_000_000,
        usage: Some(usage),
        rows: 9,
        elapsed_us: 10,
        waited_us: 11,
        errors: 12,
        throttled: 13,
        estimated: 1,
        first_unix_ms: 16,
        last_unix_ms: 17,
    };
    lab.statements().await.report_statements(report("gw", 1, vec![told.clone()])).await.unwrap();
    let listed = list(&lab, "", "", 0).await;
    assert_eq!(listed.rows, [told]);
    let (status, body) = lab.http("GET", "/v1/statements", None).await;
    let since = listed.since_unix_ms;
    let row = json!({
        "group": "default", "fingerprint": "00000000000000ab", "kind": "update", "template": "UPDATE t SET a = ?",
        "calls": 2, "ru": "20", "cpu_ru": "2", "read_ru": "4", "write_ru": "6", "network_ru": "8",
        "average_ru": "10", "max_ru": "15", "rows": 9, "elapsed_us": 10, "waited_us": 11, "errors": 12,
        "throttled": 13, "estimated": 1, "first_unix_ms": 16, "last_unix_ms": 17,
        "usage": {
            "cpu_ns": 21, "read_requests": 22, "read_batches": 23, "read_bytes": 24, "write_requests": 25,
            "write_batches": 26, "write_bytes": 27, "net_in_bytes": 28, "net_out_bytes": 29, "cross_zone_bytes": 30,
        },
    });
    assert_eq!(
        (status, body),
        (200, json!({"rows": [row], "total": 1, "evicted": 1, "since_unix_ms": since}))
    );
}

#[tokio::test]
async fn reports_of_gateways_add_up_once() {
    let lab = Lab::start().await;
    lab.group("web", "10").await;
    let mut statements = lab.statements().await;
    for (gateway, seq) in [("gw-1", 1), ("gw-1", 1), ("gw-2", 1), ("gw-1", 2)] {
        let rows = vec![row("web", 1, 2, 3), row("default", 2, 100, 1), row("gone", 3, 1, 1)];
        statements.report_statements(report(gateway, seq, rows)).await.unwrap();
    }
    let all = list(&lab, "", "", 0).await;
    assert_eq!((all.total, all.evicted, all.since_unix_ms > 0), (2, 3, true));
    let figures: Vec<_> =
        all.rows.iter().map(|row| (row.group.as_str(), row.calls, row.read_micro_ru)).collect();
    assert_eq!(figures, [("web", 6, 9_000_000), ("default", 300, 3_000_000)]);
    assert_eq!(list(&lab, "", "calls", 1).await.rows[0].group, "default");
    assert_eq!(list(&lab, "web", "", 0).await.total, 1);
    // All of it came just now.
    for last in ["5m", "1h", "24h"] {
        let recent = list_last(&lab, "", "", 0, last).await;
        assert_eq!((&recent.rows, recent.since_unix_ms), (&all.rows, all.since_unix_ms), "{last}");
    }

    let reset = v1::ResetStatementsRequest { group: "default".into() };
    assert_eq!(statements.reset_statements(reset).await.unwrap().into_inner().removed, 1);
    assert_eq!(list(&lab, "", "", 0).await.total, 1);
    let log = lab.admin().await.audit_log(v1::AuditLogRequest::default()).await.unwrap().into_inner().entries;
    assert_eq!((log[0].action.as_str(), log[0].subject.as_str()), ("reset statements", "group default"));

    let delete = v1::DeleteGroupRequest { name: "web".into(), ..Default::default() };
    lab.admin().await.delete_group(delete).await.unwrap();
    assert_eq!(list(&lab, "", "", 0).await.total, 0);
    let reset = v1::ResetStatementsRequest::default();
    assert_eq!(statements.reset_statements(reset).await.unwrap().into_inner().removed, 0);
    assert_eq!(list(&lab, "", "", 0).await.evicted, 0);
}

#[tokio::test]
async fn groups_that_are_removed_in_one_change_leave_no_statements_to_later_ones_of_their_names() {
    let lab = Lab::start().await;
    let names = ["api", "batch", "web"];
    for name in names {
        lab.group(name, "10").await;
    }
    let rows = names.into_iter().chain(["default"]).map(|name| row(name, 1, 2, 3)).collect();
    lab.statements().await.report_statements(report("gw", 1, rows)).await.unwrap();
    assert_eq!(list(&lab, "", "", 0).await.total, 4);
    apply(&lab, names.map(gone).into());
    for name in names {
        lab.group(name, "10").await;
        assert_eq!(list(&lab, name, "", 0).await.total, 0, "{name}");
    }
    assert_eq!(list(&lab, "", "", 0).await.total, 1, "the group that stays keeps its own");
}

#[tokio::test]
async fn bad_requests_are_refused_by_name() {
    let lab = Lab::start().await;
    let mut statements = lab.statements().await;
    let negative = v1::StatementRow { cpu_micro_ru: -1, ..row("default", 1, 1, 1) };
    let error = statements.report_statements(report("gw", 1, vec![negative])).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("rows[0].cpu_micro_ru: -1"), "{error}");
    for (group, order, limit, last, code) in [
        ("nobody", "", 0, "", Code::NotFound),
        ("a b", "", 0, "", Code::InvalidArgument),
        ("", "size", 0, "", Code::InvalidArgument),
        ("", "", 1_001, "", Code::InvalidArgument),
        ("", "", 0, "90d", Code::InvalidArgument),
    ] {
        let request =
            v1::ListStatementsRequest { group: group.into(), order: order.into(), limit, last: last.into() };
        assert_eq!(statements.list_statements(request).await.unwrap_err().code(), code, "{group} {order}");
    }
    let nobody = v1::ResetStatementsRequest { group: "nobody".into() };
    assert_eq!(statements.reset_statements(nobody).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(list(&lab, "", "", 0).await.total, 0);
}

#[tokio::test]
async fn a_list_of_the_longest_templates_fits_a_message() {
    let lab = Lab::start().await;
    let mut statements = lab.statements().await;
    for seq in 1..=10 {
        let long = |number| v1::StatementRow {
            template: "x".repeat(8_192),
            ..row("default", seq * 1_000 + number, 1, 1)
        };
        statements.report_statements(report("gw", seq, (0..100).map(long).collect())).await.unwrap();
    }
    let all = list(&lab, "", "", 1_000).await;
    assert_eq!((all.rows.len(), list(&lab, "", "", 10).await.rows[0].template.len()), (1_000, 8_192));
}
