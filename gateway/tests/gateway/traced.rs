//! Traces of statements of both protocols, as a collector has them.

use tidegate_gateway::Config;
use tidegate_test_servers::{Collector, Exported, Manner};
use tidegate_traces::Written;
use tokio::task::block_in_place;

use crate::{mysql, postgres};

/// A caller whose trace is recorded, and the trace and the span of it.
const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OF: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");

/// Sends spans of callers that are recorded, and no others, to this collector.
fn traced(collector: &Collector) -> impl FnOnce(&mut Config) {
    let written =
        Written { endpoint: Some(collector.endpoint()), sample: Some("0".to_owned()), ..Written::default() };
    let traces = written.check().unwrap();
    move |config| config.traces = traces
}

/// A text on behalf of the caller.
fn called(text: &str) -> String {
    format!("{text} /*db_driver='x',traceparent='{CALLER}'*/")
}

/// The spans of so many statements.
fn spans(collector: &Collector, statements: usize) -> Vec<Exported> {
    let roots = |spans: &[Exported]| spans.iter().filter(|span| span.kind == 2).count();
    block_in_place(|| collector.until("the statements", |spans| roots(spans) >= statements))
}

/// The statement of this name, its admission, and its run if there was one.
#[track_caller]
fn family<'s>(spans: &'s [Exported], name: &str) -> (&'s Exported, &'s Exported, Option<&'s Exported>) {
    let mut roots = spans.iter().filter(|span| span.kind == 2 && span.name == name);
    let (root, other) = (roots.next().unwrap_or_else(|| panic!("{name}: {spans:#?}")), roots.next());
    assert!(other.is_none(), "two of {name}: {spans:#?}");
    let part = |kind| {
        let mut parts = spans.iter().filter(|span| span.parent == root.span && span.kind == kind);
        let part = parts.next();
        assert!(parts.next().is_none(), "two parts of a kind: {spans:#?}");
        part
    };
    let (admission, run) = (part(1).expect("an admission"), part(3));
    assert_eq!((root.trace.as_str(), root.parent.as_str()), OF);
    for part in [Some(admission), run].into_iter().flatten() {
        assert_eq!(part.trace, root.trace);
        assert!(root.began <= part.began && part.began <= part.ended && part.ended <= root.ended, "{part:?}");
    }
    assert_eq!(admission.name, "admission");
    (root, admission, run)
}

#[track_caller]
fn number(span: &Exported, key: &str) -> f64 {
    span.attributes.get(key).unwrap_or_else(|| panic!("{key}: {span:?}")).parse().unwrap()
}

/// No literal of a statement is in any span.
#[track_caller]
fn tells_no_literal(spans: &[Exported]) {
    let told = format!("{spans:?}");
    assert!(!told.contains("s3cret") && !told.contains("4711"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_postgres_are_in_their_callers_traces() {
    let collector = Collector::start(Manner::Takes).unwrap();
    let stage = postgres::stage::Stage::with(traced(&collector)).await;
    let ann = stage.ann().await;
    ann.batch_execute("create table t (a int, b text); insert into t values (4711, 's3cret')").await.unwrap();
    // Without a caller, and with one that is malformed or not recorded: nothing of them.
    ann.batch_execute("select 1 /*traceparent='00-00-00-01'*/").await.unwrap();
    ann.batch_execute(&called("select 2").replace("-01'", "-00'")).await.unwrap();
    ann.simple_query(&called("select a from t where b = 's3cret'")).await.unwrap();
    // By the extended protocol.
    let insert = called("insert into t values (4711, $1)");
    ann.execute(&insert, &[&"s3cret"]).await.unwrap();
    assert!(ann.batch_execute(&called("delete from t where a / 0 = 4711")).await.is_err());
    let spans = spans(&collector, 3);
    tells_no_literal(&spans);
    assert_eq!(spans.len(), 9, "three of each statement that has a caller, and no others: {spans:#?}");
    let (root, admission, run) = family(&spans, "SELECT t");
    let run = run.unwrap();
    for (span, key, expected) in [
        (root, "db.system.name", "postgresql"),
        (root, "db.namespace", "shop"),
        (root, "db.operation.name", "SELECT"),
        (root, "db.collection.name", "t"),
        (root, "db.query.summary", "SELECT t"),
        (root, "db.query.text", "SELECT a FROM t WHERE b = ?"),
        (root, "db.response.returned_rows", "1"),
        (root, "tidegate.group", "default"),
        (admission, "tidegate.group", "default"),
        (admission, "tidegate.admission", "admitted"),
        (run, "db.system.name", "postgresql"),
        (run, "db.response.returned_rows", "1"),
    ] {
        assert_eq!(span.attributes.get(key).map(String::as_str), Some(expected), "{key}: {span:#?}");
    }
    assert_eq!(
        (root.service.as_str(), root.error.as_deref(), run.name.as_str()),
        ("tidegate-gateway", None, "SELECT t")
    );
    assert!(
        number(root, "tidegate.ru.charged") > 0.0 && number(root, "tidegate.ru.estimated") > 0.0,
        "{root:?}"
    );
    let parts = ["cpu", "read", "write", "network"].map(|part| number(root, &format!("tidegate.ru.{part}")));
    assert!((parts.iter().sum::<f64>() - number(root, "tidegate.ru.charged")).abs() < 1e-5, "{root:?}");
    assert_eq!(number(family(&spans, "INSERT t").0, "tidegate.rows.changed"), 1.0);
    let (failed, _, run) = family(&spans, "DELETE t");
    assert_eq!((failed.attributes["error.type"].as_str(), failed.error.is_some()), ("_OTHER", true));
    assert!(run.unwrap().error.is_some(), "{run:?}");
    assert!(stage.gateway.shutdown().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_a_watch_refuses_has_no_run_and_says_why() {
    let collector = Collector::start(Manner::Takes).unwrap();
    let stage = postgres::stage::Stage::with(traced(&collector)).await;
    let (admin, ann) = postgres::stage::ruled(&stage, "exec_elapsed = '1h', action = dryrun").await;
    let watch = "query watch add resource group r action kill sql text similar to 'select oid from pg_class'";
    admin.batch_execute(watch).await.unwrap();
    postgres::stage::rules_are_known(&admin, &ann).await;
    let state = postgres::stage::state(ann.batch_execute(&called("select oid from pg_class")).await);
    let spans = spans(&collector, 1);
    let (root, admission, run) = family(&spans, "SELECT pg_class");
    assert_eq!((root.attributes["db.response.status_code"].as_str(), run.is_none()), (state.as_str(), true));
    assert_eq!(admission.attributes["tidegate.admission"], "denied");
    for span in [root, admission] {
        assert_eq!(
            (span.attributes["error.type"].as_str(), span.attributes["tidegate.group"].as_str()),
            (state.as_str(), "r")
        );
        assert!(span.error.as_ref().unwrap().contains("watch"), "{span:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_mysql_are_in_their_callers_traces() {
    use mysql_async::prelude::Queryable as _;

    let collector = Collector::start(Manner::Takes).unwrap();
    let stage = mysql::stage::Stage::with(traced(&collector)).await;
    let mut ann = stage.ann().await;
    ann.query_drop("create table t (a int, b text)").await.unwrap();
    ann.query_drop(called("insert into t values (4711, 's3cret')")).await.unwrap();
    // By a prepared statement.
    ann.exec_drop(called("select a from t where b = ?"), ("s3cret",)).await.unwrap();
    let spans = spans(&collector, 2);
    tells_no_literal(&spans);
    assert_eq!(spans.len(), 6, "{spans:#?}");
    let (insert, ..) = family(&spans, "INSERT t");
    let system = insert.attributes["db.system.name"].as_str();
    assert_eq!((system, number(insert, "tidegate.rows.changed")), ("mysql", 1.0));
    assert_eq!(number(family(&spans, "SELECT t").0, "db.response.returned_rows"), 1.0);
}
