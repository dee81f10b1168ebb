//! The watch list, convictions, and what statements cost.

use tidegate_cost_model::{SqlDialect, Template};
use tidegate_proto::v1;
use tidegate_proto::v1::statements_client::StatementsClient;
use tidegate_sql::{Code, Context, Value, exact_digest};

use crate::support::{Lab, context};

#[tokio::test]
async fn watches_are_added_listed_and_removed() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5").await;
    let add =
        "QUERY WATCH ADD RESOURCE GROUP shop ACTION KILL SQL TEXT EXACT TO 'select * from t where a = 7'";
    let table = lab.table(add).await;
    assert_eq!(table.columns[0].name, "WATCH_ID");
    let Value::Int(id) = table.rows[0][0] else { panic!() };
    let template = Template::new(SqlDialect::MySql, "select * from t where a = 7");
    let listed = lab.rows("SELECT id, resource_group_name, end_time, watch, watch_text, source, action, rule FROM information_schema.runaway_watches").await;
    assert_eq!(listed, [format!("{id}|shop|UNLIMITED|Exact|{}|manual|Kill|", template.text())]);

    let digest = template.fingerprint();
    let table = lab.table(&format!("QUERY WATCH ADD ACTION=COOLDOWN SQL DIGEST '{digest}'")).await;
    assert!(table.notes[0].contains("default"), "{:?}", table.notes);
    let error = lab.refused(&format!("QUERY WATCH ADD SQL DIGEST '{digest}' RESOURCE GROUP shop")).await;
    assert!(error.code() == Code::INVALID && error.to_string().contains("action"), "{error}");
    let mut statements = StatementsClient::new(lab.channel.clone());
    let all = statements.list_watches(v1::ListWatchesRequest::default()).await.unwrap().into_inner().watches;
    assert_eq!(all[0].digest, exact_digest("select * from t where a = 7"));

    // The controller counts the time, whatever the session's clock says: slow by years, right, or fast by years.
    let start = all[0].start_unix_ms;
    for now_unix_ms in [1, start, 2 * start] {
        let session = Context { now_unix_ms, ..context() };
        let text = format!("QUERY WATCH ADD ACTION=KILL SQL DIGEST '{digest}' DURATION '10m'");
        lab.send_as(&session, &text).await.unwrap();
        let all =
            statements.list_watches(v1::ListWatchesRequest::default()).await.unwrap().into_inner().watches;
        assert_eq!((all.len(), all[1].end_unix_ms - all[1].start_unix_ms), (2, 600_000));
    }

    lab.done("CREATE RESOURCE GROUP slow RU_PER_SEC=1").await;
    let text = "QUERY WATCH ADD RESOURCE GROUP slow ACTION=SWITCH_GROUP(shop) SQL TEXT SIMILAR TO 'select 1' \
                DURATION '90s'";
    assert!(lab.table(text).await.notes.is_empty());
    let watch = "SELECT watch, watch_text, action, strftime('%s', end_time) - strftime('%s', start_time) \
                 FROM information_schema.runaway_watches WHERE resource_group_name = 'slow'";
    assert_eq!(lab.rows(watch).await, ["Similar|SELECT ?|SwitchGroup(shop)|90"]);

    assert_eq!(lab.done(&format!("QUERY WATCH REMOVE {id}")).await.0, 1);
    let error = lab.refused(&format!("QUERY WATCH REMOVE {id}")).await;
    assert!(error.code() == Code::UNKNOWN && error.to_string().contains("does not exist"), "{error}");
    assert_eq!(lab.done("QUERY WATCH REMOVE RESOURCE GROUP default").await.0, 1);
    let (affected, notes) = lab.done("QUERY WATCH REMOVE RESOURCE GROUP default").await;
    assert!(affected == 0 && notes.contains("no statement is watched"), "{notes}");
    assert_eq!(lab.refused("QUERY WATCH REMOVE RESOURCE GROUP nowhere").await.code(), Code::UNKNOWN);
}

#[tokio::test]
async fn a_watch_that_names_no_group_is_in_that_of_the_session() {
    let lab = Lab::start().await;
    lab.done("CREATE RESOURCE GROUP shop RU_PER_SEC=5").await;
    let session = Context { group: "shop".into(), ..context() };
    lab.send_as(&session, "QUERY WATCH ADD ACTION KILL SQL DIGEST 00000000000000ab").await.unwrap();
    let watched = lab.rows("SELECT resource_group_name FROM information_schema.runaway_watches").await;
    assert_eq!(watched, ["shop"]);
}

#[tokio::test]
async fn convictions_are_listed() {
    let lab = Lab::start().await;
    let mut statements = StatementsClient::new(lab.channel.clone());
    let conviction = v1::ConvictRequest {
        gateway: "gw".into(),
        group: "default".into(),
        r#match: "identify".into(),
        action: "kill".into(),
        fingerprint: "0123456789abcdef".into(),
        template: "SELECT ?".into(),
        text_sha256: exact_digest("select 1"),
        rule: "RU = 1200 (1000)".into(),
        tenant: "store".into(),
        user: "ann".into(),
        ..v1::ConvictRequest::default()
    };
    for _ in 0..2 {
        statements.convict(conviction.clone()).await.unwrap();
    }
    assert_eq!(
        lab.rows("SELECT resource_group, repeats, match_type, action, switch_group, rule, template, tenant, user, gateway FROM tidegate.runaways").await,
        ["default|2|identify|Kill|NULL|RU = 1200 (1000)|SELECT ?|store|ann|gw"]
    );
    // More than the controller gives to those that ask for no number.
    for number in 0..150 {
        let fingerprint = format!("{number:016x}");
        statements.convict(v1::ConvictRequest { fingerprint, ..conviction.clone() }).await.unwrap();
    }
    let table = lab.table("SELECT count(*) FROM tidegate.runaways").await;
    assert_eq!((crate::support::lines(&table), table.notes), (vec!["151".to_owned()], Vec::new()));
}

fn row(number: u64) -> v1::StatementRow {
    v1::StatementRow {
        group: "default".into(),
        fingerprint: format!("{number:016x}"),
        kind: "select".into(),
        template: format!("SELECT {number}"),
        calls: number,
        read_micro_ru: 1_500_000,
        cpu_micro_ru: 500_000,
        max_micro_ru: 2_000_000,
        rows: 10_000 - number,
        elapsed_us: 2_500_000,
        first_unix_ms: 1_000,
        last_unix_ms: 2_000,
        usage: Some(v1::Usage { cpu_ns: 1_500_000_000, read_bytes: 7, ..v1::Usage::default() }),
        ..v1::StatementRow::default()
    }
}

#[tokio::test]
async fn statements_are_listed_by_cost_and_counted_again() {
    let lab = Lab::start().await;
    let mut statements = StatementsClient::new(lab.channel.clone());
    let report = |seq: u64, rows: Vec<v1::StatementRow>| v1::ReportStatementsRequest {
        gateway: "gw".into(),
        incarnation: 1,
        seq,
        rows,
        evicted: 0,
    };
    statements.report_statements(report(1, vec![row(4)])).await.unwrap();
    let columns = "resource_group, kind, template, calls, ru, average_ru, max_ru, cpu_ru, read_ru, rows, \
                   elapsed_seconds, first_time, last_time, cpu_seconds, read_bytes";
    let table = lab.table(&format!("SELECT {columns} FROM tidegate.statements")).await;
    assert!(table.notes.is_empty(), "{:?}", table.notes);
    assert_eq!(
        crate::support::lines(&table),
        [
            "default|select|SELECT 4|4|2|0.5|2|0.5|1.5|9996|2.5|1970-01-01 00:00:01.000|1970-01-01 00:00:02.000|1.5|7"
        ]
    );
    // More than a page: the first of every order are looked at.
    for seq in 2..5 {
        let rows = (0..1_000).map(|number| row(seq * 1_000 + number)).collect();
        statements.report_statements(report(seq, rows)).await.unwrap();
    }
    let table = lab.table("SELECT max(calls), max(rows), count(*) FROM tidegate.statements").await;
    let line = crate::support::lines(&table).concat();
    let read = line.strip_prefix("4999|9996|").and_then(|count| count.parse::<u64>().ok());
    assert!(read.is_some_and(|count| count >= 1_000), "{line}");
    assert!(table.notes.iter().any(|note| note.contains("has 3001 rows")), "{:?}", table.notes);

    assert_eq!(lab.done("TRUNCATE TABLE tidegate.statements").await.0, 3_001);
    assert!(lab.rows("SELECT * FROM tidegate.statements").await.is_empty());
}
