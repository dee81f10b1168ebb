//! Statements that SQL prepared under a name: governed as the statement behind it.

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tidegate_gateway::Principals;

use super::stage::{Stage, error, ruled, rules_are_known, value};
use crate::common::eventually;

/// Longer than any test waits.
const ENDLESS: &str = "select count(*) from seq_1_to_100000 a, seq_1_to_100000 b where a.seq <> b.seq";

/// A stage where no statement is refused for want of tokens.
async fn patient(switchers: &[&str]) -> Stage {
    let switchers = Principals::parse(switchers.iter().copied()).unwrap();
    Stage::with(|config| {
        (config.policy.max_wait, config.policy.switchers) = (Duration::from_secs(30), switchers)
    })
    .await
}

/// Has statements like this one refused in the group `r`.
async fn watch(admin: &mut Conn, ann: &mut Conn, matching: &str, text: &str) {
    let watch = format!("query watch add resource group r action kill sql text {matching} to '{text}'");
    admin.query_drop(watch).await.unwrap();
    rules_are_known(admin, ann).await;
}

/// Whether a text is refused since a watch covers it; it runs if it is not.
async fn is_watched(ann: &mut Conn, text: &str) -> bool {
    let answer = ann.query_drop(text).await;
    let watched = answer.is_err();
    if watched {
        let (code, message) = error(answer);
        assert_eq!(code, 8254, "{text}: {message}");
    }
    watched
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_by_its_name_is_watched_by_its_text() {
    let stage = patient(&[]).await;
    let rule = "exec_elapsed = '300ms', action = kill, watch = exact duration '10m'";
    let (mut admin, mut ann) = ruled(&stage, rule).await;
    ann.query_drop(format!("prepare s from '{ENDLESS}'")).await.unwrap();
    assert_eq!(error(ann.query_drop("execute s").await).0, 8253);
    eventually("it is watched", async || error(ann.query_drop("execute s").await).0 == 8254).await;
    let mut other = stage.ann().await;
    assert!(is_watched(&mut other, ENDLESS).await, "sent directly");
    assert_eq!(error(other.exec_drop(ENDLESS, ()).await).0, 8254, "prepared by the protocol");
    assert!(is_watched(&mut other, &format!("execute immediate '{ENDLESS}'")).await);
    assert!(is_watched(&mut ann, "explain ru execute s").await);
    let template = "select count(*) from tidegate.runaways where template like 'SELECT count(*)%'";
    eventually("it is recorded", async || value::<u32>(&mut admin, template).await > 0).await;
    let named = "select count(*) from tidegate.runaways where template like 'EXECUTE%'";
    assert_eq!(value::<u32>(&mut admin, named).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_stands_for_what_the_server_has_under_it() {
    let stage = patient(&[]).await;
    let (mut admin, mut ann) = ruled(&stage, "exec_elapsed = '60s', action = kill").await;
    watch(&mut admin, &mut ann, "similar", "select 1 as watched").await;
    ann.query_drop("prepare S from \"select 'it''s' as watched\"").await.unwrap();
    assert!(is_watched(&mut ann, "execute `s` -- x\n").await);
    // A statement that cannot be prepared, and one that is not known.
    assert_eq!(error(ann.query_drop("prepare s from 'selec'").await).0, 1064);
    assert!(is_watched(&mut ann, "execute s").await, "the server has nothing else there");
    ann.query_drop("set @text = 'select 1 as free'").await.unwrap();
    ann.query_drop("prepare s from @text").await.unwrap();
    assert!(!is_watched(&mut ann, "execute s").await);
    ann.query_drop("prepare s from 'select 1 as watched'").await.unwrap();
    assert!(is_watched(&mut ann, "execute s").await);
    ann.query_drop("deallocate prepare s").await.unwrap();
    assert_eq!(error(ann.query_drop("execute s").await).0, 1243);
    // A session that was reset has nothing prepared.
    ann.query_drop("prepare s from 'select 1 as watched'").await.unwrap();
    assert!(ann.reset().await.unwrap());
    assert_eq!(error(ann.query_drop("execute s").await).0, 1243);
    ann.query_drop("prepare s from 'select 1 as watched'").await.unwrap();
    ann.change_user(Default::default()).await.unwrap();
    assert_eq!(error(ann.query_drop("execute s").await).0, 1243);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_procedure_or_one_of_several_statements_prepares_is_not_taken_for_another() {
    let stage = patient(&[]).await;
    let (mut admin, mut ann) = ruled(&stage, "exec_elapsed = '60s', action = kill").await;
    watch(&mut admin, &mut ann, "similar", "select 1 as watched").await;
    let procedure = "create procedure free() begin prepare s from 'select 1 as free'; end";
    ann.query_drop(procedure).await.unwrap();
    ann.query_drop("prepare call_it from 'call free()'").await.unwrap();
    for change in [
        "call free()",
        "execute call_it",
        "select 1; prepare s from 'select 1 as free'",
        "begin not atomic prepare s from 'select 1 as free'; end",
    ] {
        for text in ["prepare call_it from 'call free()'", "prepare s from 'select 1 as watched'"] {
            ann.query_drop(text).await.unwrap();
        }
        assert!(is_watched(&mut ann, "execute s").await, "before {change}");
        ann.query_drop(change).await.unwrap();
        assert!(!is_watched(&mut ann, "execute s").await, "after {change}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_by_a_name_counts_with_its_template_and_its_hint() {
    let stage = patient(&["ann"]).await;
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    admin.query_drop("create resource group batch ru_per_sec = 100000").await.unwrap();
    ann.query_drop("prepare h from 'select /*+ RESOURCE_GROUP(batch) */ 1 as hinted'").await.unwrap();
    eventually("the group is known", async || {
        let told: Vec<(String, f64, String)> = ann.query("explain ru execute h").await.unwrap();
        told.iter().any(|(_, _, used)| used.contains("in group batch"))
    })
    .await;
    ann.query_drop("set @number = 7").await.unwrap();
    ann.query_drop("prepare c from 'select ? as counted'").await.unwrap();
    for _ in 0..3 {
        ann.query_drop("execute c using @number").await.unwrap();
        ann.query_drop("execute immediate 'select 5 as counted'").await.unwrap();
    }
    assert_eq!(value::<u32>(&mut ann, "select 40 as counted").await, 40);
    let calls = "select coalesce(sum(calls), 0) from tidegate.statements where template";
    eventually("it is counted", async || {
        value::<u32>(&mut admin, &format!("{calls} = 'SELECT ? AS counted'")).await == 7
    })
    .await;
    assert_eq!(value::<u32>(&mut admin, &format!("{calls} like 'EXECUTE%'")).await, 0);
}
