//! What the spans of statements say beside what tests with real servers see.

use super::*;
use crate::metrics::Sample;

/// A value of a span.
#[track_caller]
fn number(span: &Exported, key: &str) -> f64 {
    span.attributes.get(key).unwrap_or_else(|| panic!("{key}: {span:?}")).parse().unwrap()
}

/// The spans of statements, without those of their parts.
fn roots(collector: &Collector) -> Vec<Exported> {
    collector.taken().into_iter().filter(|span| span.kind == 2).collect()
}

/// An estimate is of what is asked for in the group that pays, also behind a hint that leads nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn an_estimate_is_learnt_of_the_group_that_pays() {
    let collector = Collector::start(Manner::Takes).unwrap();
    let (traces, exporter) = traces(&collector);
    let stage = Stage::with(Policy::default(), Some(traces)).await;
    let group = stage.group("own", "").await;
    for text in ["select 1 from a", "select 1 from a", "select /*+ RESOURCE_GROUP(nowhere) */ 1 from a"] {
        // A hundred RU.
        drop(stage.answered(&group, text, false).await.unwrap().end(cpu(300), rows(1), false));
    }
    drop(stage);
    exporter.end().await;
    let estimates: Vec<f64> =
        roots(&collector).iter().map(|span| number(span, "tidegate.ru.estimated")).collect();
    assert!(estimates[0] < 20.0 && estimates[1] > 50.0 && estimates[2] > 50.0, "{estimates:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_nobody_ended_waited_until_it_was_admitted_and_no_longer() {
    let collector = Collector::start(Manner::Takes).unwrap();
    let (traces, exporter) = traces(&collector);
    let stage = Stage::with(Policy::default(), Some(traces)).await;
    let group = stage.group("own", "").await;
    let Admission::Now(running) = stage.asked(&group, "select 1", false) else { panic!("it has tokens") };
    running_for(&running, Duration::from_millis(5)).await;
    drop(running);
    drop(stage);
    exporter.end().await;
    let roots = roots(&collector);
    let [root] = roots.as_slice() else { panic!("{roots:#?}") };
    assert_eq!(number(root, "tidegate.wait"), 0.0);
    assert!(number(root, "tidegate.ru.estimated") > 0.0 && root.ended - root.began >= 5_000_000, "{root:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_names_the_payer_that_is_another_and_the_database_that_is_known() {
    let collector = Collector::start(Manner::Takes).unwrap();
    let (traces, exporter) = traces(&collector);
    let stage = Stage::with(Policy::default(), Some(traces)).await;
    let _other = stage.group("other", "").await;
    let own = stage.group("own", &ruled("switch_group(other)")).await;
    // The statements that ask for the rule have no end.
    let began = "select 1 from a";
    for sent in [0, TOO_MANY] {
        let mut running = stage.answered(&own, began, false).await.unwrap();
        let _ = running.look(cpu(1), rows(sent));
        drop(running.end(cpu(1), rows(sent), sent > 0));
    }
    let unnamed = stage.governor.subject(Login { user: "root".into(), ..Login::default() }).await.unwrap();
    let subject = Subject { chosen: Some(own.clone()), ..unnamed };
    let template = Arc::new(Template::new(SqlDialect::MySql, began));
    let admission = stage.governor.admit(&subject, SqlDialect::MySql, &template, SqlText::Unseen, false);
    let Admission::Now(running) = admission else { panic!("it has tokens") };
    drop(running.end(cpu(1), rows(0), false));
    drop(stage);
    exporter.end().await;
    let spans = roots(&collector);
    let ended = spans.iter().filter(|span| span.name == "SELECT a");
    let keys = ["tidegate.payer", "tidegate.runaway.action", "db.namespace", "db.system.name", "error.type"];
    let told: Vec<_> =
        ended.map(|span| keys.map(|key| span.attributes.get(key).map_or("", String::as_str))).collect();
    let expected = [
        ["", "", "shop", "postgresql", ""],
        ["other", "switch_group", "shop", "postgresql", "_OTHER"],
        ["", "", "", "mysql", ""],
    ];
    assert_eq!(told, expected);
}

/// From a time on the page one comes to the trace of a statement that took so long, or waited so long in vain.
#[tokio::test(flavor = "multi_thread")]
async fn times_on_the_page_name_the_traces_of_what_ran_and_of_what_was_refused() {
    let collector = Collector::start(Manner::Takes).unwrap();
    let (traces, exporter) = traces(&collector);
    let policy = Policy { max_wait: Duration::from_millis(1), ..Policy::default() };
    let stage = Stage::with(policy, Some(traces)).await;
    let group = stage.group("own", "").await;
    let page = || stage.governor.metrics().page(Sample::default()).unwrap();
    drop(stage.answered(&group, "select 1 from ran", false).await.unwrap().end(cpu(1), rows(1), false));
    let ran = page();
    stage.watch(&group, "select 1 from watched").await;
    let watched = page();
    lead_into_debt(&group).await;
    assert!(stage.answered(&group, "select 1 from throttled", false).await.is_err());
    let pages = [("SELECT ran", ran), ("SELECT watched", watched), ("SELECT throttled", page())];
    drop(stage);
    exporter.end().await;
    let roots = roots(&collector);
    for (name, page) in pages {
        let root = roots.iter().rfind(|root| root.name == name).unwrap_or_else(|| panic!("{roots:#?}"));
        assert!(page.contains(&format!("# {{trace_id=\"{}\"}}", root.trace)), "{name}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_has_spans_that_say_why_and_how_long_it_waited() {
    let collector = Collector::start(Manner::Takes).unwrap();
    let (traces, exporter) = traces(&collector);
    // As long as a controller may take to say that there is no such group.
    let policy = Policy { max_wait: PATIENCE, ..Policy::default() };
    let stage = Stage::with(policy, Some(traces)).await;
    let group = stage.group("own", "").await;
    stage.watch(&group, "select 1 from w").await;
    let never = stage.governor.group("never").unwrap();
    for dialect in [SqlDialect::PostgreSql, SqlDialect::MySql] {
        let subject = Subject { chosen: Some(never.clone()), ..stage.subject.clone() };
        let template = Arc::new(Template::new(dialect, "select 1 from n"));
        match stage.governor.admit(&subject, dialect, &template, SqlText::Unseen, false) {
            Admission::Wait(waits) => {
                drop(timeout(PATIENCE, waits).await.expect("it is refused").err().unwrap())
            }
            _ => panic!("the controller says that there is no such group"),
        }
    }
    drop(stage);
    exporter.end().await;
    let spans = collector.taken();
    let refused = |name: &str| {
        let roots = spans.iter().filter(|span| span.kind == 2 && span.name == name);
        roots
            .map(|root| (root, spans.iter().find(|span| span.parent == root.span).unwrap()))
            .collect::<Vec<_>>()
    };
    let watched = refused("SELECT w");
    let of_no_group = refused("SELECT n");
    assert_eq!(of_no_group.len(), 2, "{spans:#?}");
    for (at, code, group, message) in [
        (&of_no_group[0], "42704", "never", "resource group never does not exist"),
        (&of_no_group[1], "8249", "never", "resource group never does not exist"),
        (watched.last().unwrap(), "57014", "own", "watch"),
    ] {
        let (root, admission) = at;
        assert_eq!(root.attributes["db.response.status_code"], code);
        assert_eq!(
            (admission.name.as_str(), admission.attributes["tidegate.admission"].as_str()),
            ("admission", "denied")
        );
        for span in [root, admission] {
            assert_eq!(
                (span.attributes["error.type"].as_str(), span.attributes["tidegate.group"].as_str()),
                (code, group)
            );
            assert!(span.error.as_deref().unwrap().contains(message), "{span:?}");
        }
        let seconds = number(root, "tidegate.wait");
        assert!((seconds * 1e9 - (root.ended - root.began) as f64).abs() < 2e3, "{root:?}");
    }
}
