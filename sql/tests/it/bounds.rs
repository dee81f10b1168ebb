//! What a table leaves out is said in a note, and a controller that does not answer is not waited for.

use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;
use tidegate_sql::{Code, Statement, execute};
use tokio::time::{Instant, timeout};

use crate::support::{context, lines, reply, select, serve};

/// How many rows of a table are looked at, and what is noted, with these answers of the controller.
async fn looked_at(table: &str, answers: Vec<Vec<u8>>) -> (String, Vec<String>) {
    let counted = select(answers, &format!("SELECT count(*) FROM {table}")).await;
    (lines(&counted).concat(), counted.notes)
}

fn left_out(table: &str, kept: &str) -> Vec<String> {
    vec![format!("note: {table} has more rows than were looked at; these are {kept}")]
}

#[tokio::test]
async fn a_table_of_more_rows_than_are_looked_at_says_which_it_has() {
    let group = |_| v1::Group { name: "g".into(), ..v1::Group::default() };
    let groups = |at: usize| {
        let groups = (0..1_000).map(group).collect();
        reply(&v1::ListGroupsReply { groups, next_after: format!("g{at:03}"), ..Default::default() })
    };
    let bindings =
        reply(&v1::ListBindingsReply { bindings: vec![v1::Binding::default(); 1_000], more: true });
    let watches = |count| reply(&v1::ListWatchesReply { watches: vec![v1::Watch::default(); count] });
    let runaways =
        |more| reply(&v1::ListRunawaysReply { runaways: vec![v1::Runaway::default(); 1_000], more });
    let usage = |truncated| reply(&v1::UsageReply { rows: vec![v1::UsageRow::default(); 2], truncated });
    let clients =
        |truncated| reply(&v1::ListClientsReply { clients: vec![v1::ClientInfo::default(); 2], truncated });
    let named_first = "those that the controller names first";
    for (table, answers, rows, kept) in [
        ("information_schema.resource_groups", (0..101).map(groups).collect(), "100000", "the first by name"),
        ("tidegate.bindings", vec![bindings], "100000", "the first by tenant and user"),
        ("information_schema.runaway_watches", vec![watches(100_001)], "100000", "the first"),
        ("tidegate.runaways", vec![runaways(true)], "1000", "the newest"),
        ("tidegate.usage", vec![usage(true)], "2", named_first),
        ("tidegate.clients", vec![clients(true)], "2", named_first),
    ] {
        assert_eq!(looked_at(table, answers).await, (rows.to_owned(), left_out(table, kept)));
    }
    let groups =
        vec![groups(1), reply(&v1::ListGroupsReply { groups: vec![group(0)], ..Default::default() })];
    let bindings =
        vec![reply(&v1::ListBindingsReply { bindings: vec![v1::Binding::default()], more: false })];
    for (table, answers, rows) in [
        ("information_schema.resource_groups", groups, "1001"),
        ("tidegate.bindings", bindings, "1"),
        ("information_schema.runaway_watches", vec![watches(100_000)], "100000"),
        ("tidegate.runaways", vec![runaways(false)], "1000"),
        ("tidegate.usage", vec![usage(false)], "2"),
        ("tidegate.clients", vec![clients(false)], "2"),
    ] {
        assert_eq!(looked_at(table, answers).await, (rows.to_owned(), Vec::new()), "{table}");
    }
}

#[tokio::test]
async fn what_a_table_lacks_is_said_before_what_the_answer_lacks() {
    let rows = vec![v1::UsageRow::default(); 101];
    let usage = reply(&v1::UsageReply { rows, truncated: true });
    let table = select(vec![usage], "SELECT a.client FROM tidegate.usage a, tidegate.usage b").await;
    let mut notes = left_out("tidegate.usage", "those that the controller names first");
    notes.push(
        "note: the answer has more rows than these 10000; narrow it with WHERE or LIMIT, or to fewer columns"
            .to_owned(),
    );
    assert_eq!((table.rows.len(), table.notes), (10_000, notes));
}

#[tokio::test]
async fn statements_that_made_room_or_are_not_looked_at_are_counted_in_notes() {
    let statements = |total, evicted| {
        let row =
            |fingerprint: &str| v1::StatementRow { fingerprint: fingerprint.into(), ..Default::default() };
        let rows = vec![row("a"), row("b")];
        vec![reply(&v1::ListStatementsReply { rows, total, evicted, ..Default::default() })]
    };
    let room = "note: tidegate.statements made room for 7 statements, which are not counted any more";
    let most = "note: tidegate.statements has 3 rows, of which these 2 were looked at: the 1000 with the most RU, \
                average, maximum, calls, rows, time, waiting, errors and refusals";
    for (total, evicted, notes) in
        [(2, 0, &[][..]), (2, 7, &[room][..]), (3, 0, &[most][..]), (3, 7, &[room, most][..])]
    {
        let (rows, noted) = looked_at("tidegate.statements", statements(total, evicted)).await;
        assert_eq!(
            (rows.as_str(), noted.iter().map(String::as_str).collect::<Vec<_>>().as_slice()),
            ("2", notes)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_keeps_silent_is_not_waited_for_without_end() {
    let channel = serve(Router::new().fallback(pending::<Response>)).await;
    for text in ["SHOW RESOURCE GROUPS", "SELECT * FROM tidegate.statements"] {
        let statement = Statement::parse(text, SqlDialect::MySql).unwrap().unwrap();
        let (context, began) = (context(), Instant::now());
        let answer = execute(channel.clone(), &statement, &context);
        let error = timeout(Duration::from_secs(60), answer).await.expect(text).unwrap_err();
        assert!(
            error.code() == Code::UNAVAILABLE && error.to_string().contains("does not answer"),
            "{error}"
        );
        assert_eq!(began.elapsed().as_secs(), 10, "{text}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_called_a_wrong_value() {
    const MOST: usize = 32 << 20;
    // The length comes first, and what it says is not waited for.
    let begins = [&[0][..], &u32::try_from(MOST + 1).unwrap().to_be_bytes()].concat();
    let answer = async move || {
        let head = Response::builder().header("content-type", "application/grpc");
        head.body(Body::from(begins)).unwrap()
    };
    let channel = serve(Router::new().fallback(answer)).await;
    let statement = Statement::parse("SELECT * FROM tidegate.usage", SqlDialect::MySql).unwrap().unwrap();
    let error = execute(channel, &statement, &context()).await.unwrap_err();
    assert_eq!(error.code(), Code::FULL, "{error}");
    assert_eq!(
        error.to_string(),
        "the answer of the controller is larger than 32 MiB and was not read; ask for less of it with the tidegate \
         command, or over REST"
    );
}
