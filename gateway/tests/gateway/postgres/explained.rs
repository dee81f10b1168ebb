//! `EXPLAIN RU` as drivers send it: prepared, with parameters, in text and in binary.

use futures_util::future::join_all;
use tidegate_test_servers::ROOT;
use tokio::io::AsyncWriteExt as _;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row, Statement};

use super::stage::{Stage, kinds, login, message, state, trusted, value};

/// Part, RU and what was used.
fn parts(rows: &[Row]) -> Vec<(String, f64, String)> {
    rows.iter().map(|row| (row.get("part"), row.get("ru"), row.get("used"))).collect()
}

/// The cost of `statement`, which is to be explained.
async fn cost(session: &Client, statement: &Statement, number: i32) -> Vec<(String, f64, String)> {
    parts(&session.query(statement, &[&number]).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_is_explained_with_its_parameters() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    ann.batch_execute("create table t (a int primary key, b text)").await.unwrap();
    let insert =
        "explain ru insert into t select g, repeat('x', 100) from generate_series(1, $1) g returning a";
    let insert = ann.prepare(insert).await.unwrap();
    assert_eq!(insert.params(), [Type::INT4]);
    let columns: Vec<_> =
        insert.columns().iter().map(|column| (column.name(), column.type_().clone())).collect();
    assert_eq!(columns, [("part", Type::TEXT), ("ru", Type::FLOAT8), ("used", Type::TEXT)]);
    let told = cost(&ann, &insert, 3000).await;
    let names: Vec<&str> = told.iter().map(|part| part.0.as_str()).collect();
    assert_eq!(names, ["cpu", "read", "write", "network", "total"]);
    assert!(told[2].2.ends_with(", 3000 rows"), "{told:?}");
    assert!(told[4].2.contains("in group default, counted by the kernel"), "{told:?}");
    let sum: f64 = told[..4].iter().map(|part| part.1).sum();
    assert!(told[4].1 > 0.0 && (sum - told[4].1).abs() < 1e-3, "{told:?}");
    // It did run, with its parameter, and committed.
    assert_eq!(
        value(&login(stage.postgres.port(), "shop", ROOT).await, "select count(*) from t").await,
        "3000"
    );
    // Each execution shows its own cost; one that fails says why, and the session goes on.
    ann.batch_execute("truncate t").await.unwrap();
    assert!(cost(&ann, &insert, 5).await[2].2.ends_with(", 5 rows"));
    assert_eq!(state(ann.query(&insert, &[&1]).await), "23505");
    assert_eq!(state(ann.prepare("explain ru select nosuch").await), "42703");
    assert_eq!(ann.query_one("select 40 + $1", &[&2]).await.unwrap().get::<_, i32>(0), 42);
    // Without parameters the driver names no types; inside a transaction nothing is committed.
    ann.batch_execute("begin").await.unwrap();
    let all = parts(&ann.query("explain ru delete from t", &[]).await.unwrap());
    assert!(all[2].2.ends_with(", 5 rows"), "{all:?}");
    ann.batch_execute("rollback").await.unwrap();
    assert_eq!(value(&ann, "select count(*) from t").await, "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_work_costs_more_and_a_portal_may_be_bound_before() {
    let stage = Stage::new().await;
    let mut ann = stage.ann().await;
    let count =
        ann.prepare("explain ru select count(*) from generate_series(1, $1) g, generate_series(1, 10) h");
    let count = count.await.unwrap();
    let cpu = async |number| cost(&ann, &count, number).await[0].1;
    let (little, much) = (cpu(1).await, cpu(1_000_000).await);
    assert!(much > 10.0 * little.max(1.0), "{little} and {much}");
    let transaction = ann.transaction().await.unwrap();
    let portal = transaction.bind(&count, &[&1000]).await.unwrap();
    let refused = transaction.query_portal(&portal, 2).await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!((refused.code().code(), refused.severity()), ("0A000", "ERROR"));
    assert!(refused.hint().unwrap().contains("with one above 5"), "{refused:?}");
    let told = parts(&transaction.query_portal(&portal, 100).await.unwrap());
    assert_eq!(told.len(), 5);
    // All rows were counted, though the driver asked for a hundred.
    let network = transaction.prepare("explain ru select g from generate_series(1, $1) g").await.unwrap();
    let portal = transaction.bind(&network, &[&50_000]).await.unwrap();
    let told = parts(&transaction.query_portal(&portal, 100).await.unwrap());
    let out: u64 = told[3].2.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(out > 50_000 * 11, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_statements_keep_their_own_answers() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    let explained = ann.prepare("explain ru select count(*) from generate_series(1, $1)").await.unwrap();
    let plain = ann.prepare("select $1 + 1").await.unwrap();
    let group = ann.prepare("select current_resource_group()").await.unwrap();
    let asked = (0..100_i32).map(|number| {
        let (ann, explained, plain, group) = (&ann, &explained, &plain, &group);
        async move {
            match number % 3 {
                0 => assert_eq!(cost(ann, explained, number).await.len(), 5),
                1 => assert_eq!(ann.query_one(plain, &[&number]).await.unwrap().get::<_, i32>(0), number + 1),
                _ => assert_eq!(ann.query_one(group, &[]).await.unwrap().get::<_, String>(0), "default"),
            }
        }
    });
    join_all(asked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_beyond_what_is_seen_is_refused_and_never_run_cut_off() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    ann.batch_execute("create table t as select g from generate_series(1, 10) g").await.unwrap();
    // Cut off, it would delete everything.
    let long = format!("explain ru delete from t {} where g = 3", " ".repeat(70_000));
    let told = ann.prepare(&long).await.unwrap_err();
    assert!(told.as_db_error().unwrap().message().contains("a statement of at most 65"), "{told:?}");
    assert_eq!(state(ann.simple_query(&long).await), "54000");
    assert_eq!(value(&ann, "select count(*) from t").await, "10");
    let much = "x".repeat(70_000);
    assert_eq!(state(ann.query("explain ru select $1::text", &[&much]).await), "54000");
    assert_eq!(value(&ann, "select 40 + 2").await, "42");
}

/// As psycopg's pipelines, sqlx and node-postgres do: work before it, a close behind it, a flush in place of a sync.
#[tokio::test(flavor = "multi_thread")]
async fn it_may_stand_among_others_before_a_sync_and_before_a_flush() {
    let stage = Stage::new().await;
    let mut server = trusted(&stage).await;
    let text = |name: &str, text: &str| message(b'P', format!("{name}\0{text}\0\0\0").as_bytes());
    let bind = message(b'B', b"\0\0\0\0\0\0\0\0");
    let (describe, execute) = (message(b'D', b"P\0"), message(b'E', b"\0\0\0\0\0"));
    let (close, sync, flush) = (message(b'C', b"P\0"), message(b'S', &[]), message(b'H', &[]));
    let one = |sql: &str| [text("", sql), bind.clone(), describe.clone(), execute.clone()].concat();
    let explained = one("explain ru select generate_series(1, 3)");
    let sent = [one("begin"), explained.clone(), close.clone(), one("select 1"), sync.clone()].concat();
    server.write_all(&sent).await.unwrap();
    assert_eq!(kinds(&mut server, b'Z').await, "12nC12TDDDDDC312TDCZ");
    let own = one("select current_resource_group()");
    server.write_all(&[explained.clone(), own, explained.clone(), sync.clone()].concat()).await.unwrap();
    assert_eq!(kinds(&mut server, b'Z').await, "12TDDDDDC12TDC12TDDDDDCZ");
    server.write_all(&[explained, flush].concat()).await.unwrap();
    assert_eq!(kinds(&mut server, b'C').await, "12TDDDDDC");
    server.write_all(&[close, sync].concat()).await.unwrap();
    assert_eq!(kinds(&mut server, b'Z').await, "3Z");
}
