//! Statements that SQL prepared under a name: governed as the statement behind it, by whichever way the name was given
//! and run.

use std::time::Duration;

use tidegate_gateway::Principals;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_postgres::Client;

use super::stage::{Stage, kinds, message, ruled, rules_are_known, state, told, trusted, value};
use crate::common::eventually;

const LONG: &str = "select count(*) from generate_series(1, 100000000) g where g % 2 = 0";

/// A stage where no statement is refused for want of tokens.
async fn patient(switchers: &[&str]) -> Stage {
    let switchers = Principals::parse(switchers.iter().copied()).unwrap();
    Stage::with(|config| {
        (config.policy.max_wait, config.policy.switchers) = (Duration::from_secs(30), switchers);
    })
    .await
}

/// Has statements like this one refused in the group `r`.
async fn watch(admin: &Client, ann: &Client, matching: &str, text: &str) {
    let watch = format!("query watch add resource group r action kill sql text {matching} to '{text}'");
    admin.batch_execute(&watch).await.unwrap();
    rules_are_known(admin, ann).await;
}

/// Whether a text is refused since a watch covers it; it runs if it is not.
async fn is_watched(ann: &Client, text: &str) -> bool {
    let answer = ann.simple_query(text).await;
    answer.is_err_and(|error| {
        let message = error.as_db_error().unwrap().message();
        assert!(message.contains("watch"), "{text}: {message}");
        true
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_by_its_name_is_watched_by_its_text() {
    let stage = patient(&[]).await;
    let rule = "exec_elapsed = '300ms', action = kill, watch = similar duration '10m'";
    let (admin, ann) = ruled(&stage, rule).await;
    ann.batch_execute(&format!("prepare p (int) as {}", LONG.replace("% 2", "% $1"))).await.unwrap();
    let message = told(ann.simple_query("execute p (2)").await);
    assert!(message.contains("runaway of resource group r"), "{message}");
    eventually("it is watched", async || told(ann.simple_query("execute p (3)").await).contains("watch"))
        .await;
    let other = stage.ann().await;
    assert!(is_watched(&other, LONG).await, "sent directly");
    assert!(told(other.query(LONG, &[]).await).contains("watch"), "prepared by the protocol");
    let template = "select count(*) from tidegate.runaways where template like 'SELECT count(*)%'";
    eventually("it is recorded", async || value(&admin, template).await != "0").await;
    let named = "select count(*) from tidegate.runaways where template like 'EXECUTE%'";
    assert_eq!(value(&admin, named).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_statement_is_watched_by_its_name() {
    let stage = patient(&[]).await;
    let (admin, ann) = ruled(&stage, "exec_elapsed = '60s', action = kill").await;
    for text in [
        "prepare s as select 1 as similar",
        "prepare e as select 2 as exact",
        "prepare o as select 3 as exact",
    ] {
        ann.batch_execute(text).await.unwrap();
    }
    watch(&admin, &ann, "similar", "select 7 as similar").await;
    watch(&admin, &ann, "exact", "select 2 as exact").await;
    assert!(is_watched(&ann, "execute s").await && is_watched(&ann, "EXECUTE \"e\";").await);
    assert!(!is_watched(&ann, "execute o").await, "another text of the same template");
    assert!(is_watched(&ann, "explain ru execute s").await);
    for text in ["execute s", "execute e", "explain ru execute s"] {
        assert!(told(ann.query_typed(text, &[]).await).contains("watch"), "{text}");
    }
    // By a message of the protocol that names it, and by SQL what the protocol has prepared.
    let mut raw = trusted(&stage).await;
    let run = |name: &str| {
        let bind = message(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes());
        [bind, message(b'E', b"\0\0\0\0\0"), message(b'S', &[])].concat()
    };
    let query = |text: &str| message(b'Q', format!("{text}\0").as_bytes());
    let parse = message(b'P', b"w\0select 5 as similar\0\0\0");
    for (sent, said) in [
        (query("prepare v as select 4 as similar"), "CZ"),
        (run("v"), "2EZ"),
        ([parse, message(b'S', &[])].concat(), "1Z"),
        (query("execute w"), "EZ"),
        (query("deallocate v"), "CZ"),
        (query("prepare v as select 4 as other"), "CZ"),
        (run("v"), "2DCZ"),
        (query("execute v"), "TDCZ"),
    ] {
        raw.write_all(&sent).await.unwrap();
        assert_eq!(kinds(&mut raw, b'Z').await, said, "{}", String::from_utf8_lossy(&sent));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_stands_for_what_the_server_has_under_it() {
    let stage = patient(&[]).await;
    let (admin, ann) = ruled(&stage, "exec_elapsed = '60s', action = kill").await;
    watch(&admin, &ann, "similar", "select 1 as watched").await;
    ann.batch_execute("prepare p as select 1 as free").await.unwrap();
    assert_eq!(state(ann.batch_execute("prepare p as select 1 as watched").await), "42P05");
    assert_eq!(state(ann.query_typed("prepare p as select 1 as watched", &[]).await), "42P05");
    assert!(!is_watched(&ann, "execute p").await, "it was not prepared");
    ann.batch_execute("deallocate p").await.unwrap();
    assert_eq!(state(ann.batch_execute("execute p").await), "26000");
    // A statement that a transaction prepared stays when the transaction is rolled back.
    ann.batch_execute("begin").await.unwrap();
    ann.batch_execute("prepare p as select 1 as watched").await.unwrap();
    ann.batch_execute("rollback").await.unwrap();
    assert!(is_watched(&ann, "execute P").await);
    assert_eq!(state(ann.batch_execute("deallocate q").await), "26000");
    assert!(is_watched(&ann, "execute p").await);
    // One of several statements takes it away, and another gives it, of which neither is read.
    ann.batch_execute("select 1; deallocate p; prepare p as select 1 as free").await.unwrap();
    assert!(!is_watched(&ann, "execute p").await);
    for reset in ["discard all", "deallocate all"] {
        ann.batch_execute(reset).await.unwrap();
        assert_eq!(state(ann.batch_execute("execute p").await), "26000");
        ann.batch_execute("prepare p as select 1 as watched").await.unwrap();
        assert!(is_watched(&ann, "execute p").await, "{reset}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_by_a_name_counts_with_its_template_and_its_hint() {
    let stage = patient(&["ann"]).await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    admin.batch_execute("create resource group batch ru_per_sec = 100000").await.unwrap();
    ann.batch_execute("prepare h as select /*+ RESOURCE_GROUP(batch) */ 1 as hinted").await.unwrap();
    eventually("the group is known", async || {
        let told = format!("{:?}", ann.simple_query("explain ru execute h").await.unwrap());
        told.contains("in group batch")
    })
    .await;
    ann.batch_execute("prepare c (int) as select $1 as counted").await.unwrap();
    for number in 0..3 {
        ann.batch_execute(&format!("execute c ({number})")).await.unwrap();
        ann.query_typed("execute c (7)", &[]).await.unwrap();
    }
    let named = ann.prepare("execute c (8)").await.unwrap();
    ann.query(&named, &[]).await.unwrap();
    assert_eq!(value(&ann, "select 40 as counted").await, "40");
    let calls = "select coalesce(sum(calls), 0) from tidegate.statements where template";
    eventually("it is counted", async || {
        value(&admin, &format!("{calls} = 'SELECT ? AS counted'")).await == "8"
    })
    .await;
    assert_eq!(value(&admin, &format!("{calls} like 'EXECUTE%' or template like 'execute%'")).await, "0");
}

/// Sent ahead, before the client has read that the first failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_the_gateway_has_its_name_also_behind_one_that_the_server_did_not_prepare() {
    let stage = patient(&[]).await;
    let mut raw = trusted(&stage).await;
    let parse = |name: &str, text: &str| message(b'P', format!("{name}\0{text}\0\0\0").as_bytes());
    let run = |name: &str| {
        let bind = message(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes());
        [bind, message(b'E', b"\0\0\0\0\0")].concat()
    };
    let (sync, own) = (message(b'S', &[]), "select current_resource_group()");
    for (sent, units) in [
        ([parse("s", "selec"), sync.clone(), parse("s", own), sync.clone()].concat(), &["EZ", "1Z"][..]),
        ([run("s"), sync.clone()].concat(), &["2DCZ"]),
        // What the server skips is not prepared.
        ([parse("x", "selec"), parse("t", own), sync.clone()].concat(), &["EZ"]),
        ([run("t"), sync.clone()].concat(), &["EZ"]),
    ] {
        raw.write_all(&sent).await.unwrap();
        assert_eq!(several(&mut raw, units.len()).await, units, "{}", String::from_utf8_lossy(&sent));
    }
}

/// The kinds of what the server says in so many units.
async fn several(server: &mut TcpStream, units: usize) -> Vec<String> {
    let mut said = vec![String::new()];
    while said.len() <= units {
        let kind = server.read_u8().await.unwrap();
        let length = server.read_u32().await.unwrap();
        server.read_exact(&mut vec![0; usize::try_from(length).unwrap() - 4]).await.unwrap();
        said.last_mut().unwrap().push(char::from(kind));
        if kind == b'Z' {
            said.push(String::new());
        }
    }
    said.pop();
    said
}
