//! Rules against runaway statements: found while they run, ended, and refused the next time.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;
use tokio_postgres::Client;

use super::stage::{Stage, is_in, kinds, message, ruled, rules_are_known, state, told, trusted, used, value};
use crate::common::eventually;

/// How much later than its limit a statement may end on a busy machine.
const LATE: Duration = Duration::from_secs(1);

const LONG: &str = "select count(*) from generate_series(1, 100000000) g where g % 2 = 0";

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_is_killed_recorded_and_refused_the_next_time() {
    let stage = Stage::new().await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    let rule = "query_limit = (exec_elapsed = '500ms', action = kill, watch = similar duration = '10m')";
    admin.batch_execute(&format!("create resource group r ru_per_sec = 100000 {rule}")).await.unwrap();
    admin.batch_execute("alter user ann resource group r").await.unwrap();
    is_in(&ann, "r").await;
    rules_are_known(&admin, &ann).await;
    let began = Instant::now();
    let error = ann.simple_query(LONG).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "57014");
    assert!(
        error.message().contains("runaway of resource group r") && error.message().contains("ElapsedTime")
    );
    assert!(began.elapsed() < Duration::from_millis(500) + LATE, "{:?}", began.elapsed());
    // The session is whole, and other statements run.
    assert_eq!(value(&ann, "select 1").await, "1");
    let similar = LONG.replace("% 2", "% 3");
    eventually("it is watched", async || {
        let answer = ann.simple_query(&similar).await;
        answer.unwrap_err().as_db_error().unwrap().message().contains("watch")
    })
    .await;
    let watched = "select count(*) from information_schema.runaway_watches
        where resource_group_name = 'r' and watch = 'Similar'";
    assert_eq!(value(&admin, watched).await, "1");
    let found = "select count(*) > 0 from tidegate.runaways where match_type = 'identify'";
    assert_eq!(value(&admin, found).await, "1");
    admin.batch_execute("query watch remove resource group r").await.unwrap();
    admin.batch_execute("alter resource group r query_limit = null").await.unwrap();
    eventually("it may run again", async || {
        ann.simple_query("select count(*) from generate_series(1, 1000) g where g % 2 = 0").await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_and_request_units_are_limits_too() {
    let stage = Stage::new().await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    let group =
        "create resource group r ru_per_sec = 100000 query_limit = (rows = 1000, ru = 300, action = kill)";
    admin.batch_execute(group).await.unwrap();
    admin.batch_execute("alter user ann resource group r").await.unwrap();
    eventually("the rule is in force", async || {
        // Wide rows are slow enough for a look while they pass.
        let rows = "select repeat('x', 1000), pg_sleep(0.001) from generate_series(1, 30000)";
        ann.simple_query(rows)
            .await
            .is_err_and(|error| error.to_string().contains("db error") && state::<()>(Err(error)) == "57014")
    })
    .await;
    let error = ann.simple_query(LONG).await.unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("RequestUnit"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exact_watch_covers_a_text_however_it_is_sent_and_no_other() {
    let stage = Stage::new().await;
    let rule = "exec_elapsed = '300ms', action = kill, watch = exact duration = '10m'";
    let (admin, ann) = ruled(&stage, rule).await;
    let guilty = "select pg_sleep(3)";
    let (long, other) = (ann.prepare(guilty).await.unwrap(), ann.prepare("select 40 + 2").await.unwrap());
    assert!(told(ann.query(&long, &[]).await).contains("ElapsedTime"));
    let mut killed = 1;
    eventually("it is watched", async || {
        let told = told(ann.query(&long, &[]).await);
        killed += u32::from(told.contains("ElapsedTime"));
        told.contains("watch")
    })
    .await;
    assert_eq!(ann.query_one(&other, &[]).await.unwrap().get::<_, i32>(0), 42);
    let next = stage.ann().await;
    assert!(told(next.query(guilty, &[]).await).contains("watch"));
    assert!(told(next.query_typed(guilty, &[]).await).contains("watch"), "without a name");
    assert!(told(next.simple_query(" select pg_sleep(3);\n").await).contains("watch"));
    assert!(told(next.simple_query("explain ru select pg_sleep(3)").await).contains("watch"));
    assert!(told(next.query("explain ru select pg_sleep(3)", &[]).await).contains("watch"));
    next.query("explain ru select pg_sleep(0)", &[]).await.unwrap();
    next.simple_query("explain ru select pg_sleep(0)").await.unwrap();
    next.query("select pg_sleep(0)", &[]).await.unwrap();
    next.query_typed("select pg_sleep(0)", &[]).await.unwrap();
    next.simple_query("").await.unwrap();
    // The rest of a text that is not seen to its end might be another.
    let padded = |seconds: u32| format!("select /* {} */ pg_sleep({seconds})", "x".repeat(70_000));
    assert!(told(ann.simple_query(&padded(3)).await).contains("ElapsedTime"));
    assert!(told(ann.query(&padded(3), &[]).await).contains("ElapsedTime"));
    let recorded = "select coalesce(sum(repeats), 0) from tidegate.runaways where match_type = 'identify'";
    eventually("they are recorded", async || value(&admin, recorded).await == (killed + 2).to_string()).await;
    rules_are_known(&admin, &ann).await;
    next.simple_query(&padded(0)).await.unwrap();
    next.query(&padded(0), &[]).await.unwrap();
    let watches = "select count(*) from information_schema.runaway_watches where source = 'gw'";
    assert_eq!(value(&admin, watches).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_unknown_text_is_recorded_and_not_watched() {
    let stage = Stage::new().await;
    let rule = "exec_elapsed = '300ms', action = kill, watch = similar duration = '10m'";
    let (admin, ann) = ruled(&stage, rule).await;
    let mut server = trusted(&stage).await;
    // Names that are given in a text of several statements are not read.
    for (name, sql) in [("slow", "pg_sleep(3)"), ("fast", "1")] {
        let prepare = message(b'Q', format!("select 1; prepare {name} as select {sql}\0").as_bytes());
        server.write_all(&prepare).await.unwrap();
        assert_eq!(kinds(&mut server, b'Z').await, "TDCCZ");
    }
    let run = |name: &str| {
        let bind = message(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes());
        [bind, message(b'E', b"\0\0\0\0\0"), message(b'S', &[])].concat()
    };
    server.write_all(&run("slow")).await.unwrap();
    assert_eq!(kinds(&mut server, b'Z').await, "2EZ");
    let recorded = "select count(*) from tidegate.runaways where match_type = 'identify' and action = 'Kill'";
    eventually("it is recorded", async || value(&admin, recorded).await == "1").await;
    rules_are_known(&admin, &ann).await;
    server.write_all(&run("fast")).await.unwrap();
    assert_eq!(kinds(&mut server, b'Z').await, "2DCZ");
    let watches = "select count(*) from information_schema.runaway_watches where source = 'gw'";
    assert_eq!(value(&admin, watches).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_ends_before_it_is_looked_at_is_judged_all_the_same() {
    let stage = Stage::new().await;
    let (admin, ann) = ruled(&stage, "rows = 1000, ru = 5, action = kill, watch = similar").await;
    let recorded = async |broken: &str| {
        let sql = format!("select count(*) from tidegate.runaways where rule like '{broken}%'");
        value(&admin, &sql).await
    };
    let answer = ann.query("select generate_series(1, 2000)", &[]).await;
    eventually("it is recorded", async || recorded("Rows").await == "1").await;
    if answer.is_ok() {
        let action = "select action from tidegate.runaways where rule like 'Rows%'";
        assert_eq!(value(&admin, action).await, "DryRun", "nothing could be done about it any more");
    }
    eventually("it is watched", async || {
        ann.query("select generate_series(1, 2000)", &[])
            .await
            .is_err_and(|error| state::<()>(Err(error)) == "57014")
    })
    .await;
    // Some 8 RU for the bytes on the wire.
    drop(ann.simple_query("select repeat('x', 700000)").await);
    eventually("it is recorded", async || recorded("RequestUnit").await == "1").await;
    assert_eq!(value(&ann, "select 40 + 2").await, "42");
}

/// Rows that come for some seconds, a few each 10 ms.
const TRICKLE: &str = "select repeat('x', 3000), pg_sleep(0.01) from generate_series(1, 250)";

/// The longest time between two rows, and how many rows there were.
async fn longest_gap(session: &Client, sql: &str) -> (Duration, usize) {
    let mut rows = pin!(session.query_raw(sql, &[] as &[i32]).await.unwrap());
    let (mut last, mut longest, mut count) = (Instant::now(), Duration::ZERO, 0);
    while let Some(row) = rows.next().await {
        row.unwrap();
        longest = longest.max(last.elapsed());
        (last, count) = (Instant::now(), count + 1);
    }
    (longest, count)
}

/// Until there is a record of `found` with this action.
async fn recorded(admin: &Client, found: &str, action: &str) {
    let sql = format!(
        "select count(*) from tidegate.runaways where match_type = '{found}' and action like '{action}%'"
    );
    eventually("it is recorded", async || value(admin, &sql).await != "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_records_and_lets_go() {
    let stage = Stage::new().await;
    let (admin, ann) =
        ruled(&stage, "exec_elapsed = '100ms', action = dryrun, watch = similar duration '10m'").await;
    let sleep = ann.prepare("select pg_sleep(0.3)").await.unwrap();
    assert_eq!(ann.query(&sleep, &[]).await.unwrap().len(), 1);
    recorded(&admin, "identify", "DryRun").await;
    eventually("it is found on the list", async || {
        ann.simple_query("select pg_sleep(0.01)").await.unwrap();
        let sql = "select count(*) from tidegate.runaways where match_type = 'watch' and action = 'DryRun'";
        value(&admin, sql).await != "0"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_cools_down_gives_its_rows_slowly_and_to_the_end() {
    let stage = Stage::new().await;
    let (admin, ann) = ruled(&stage, "rows = 20, action = cooldown, watch = similar duration '10m'").await;
    let (longest, rows) = longest_gap(&ann, TRICKLE).await;
    assert!(longest > Duration::from_millis(600) && rows == 250, "{longest:?}, {rows} rows");
    recorded(&admin, "identify", "CoolDown").await;
    rules_are_known(&admin, &ann).await;
    let (longest, rows) = longest_gap(&ann, TRICKLE).await;
    assert!(longest > Duration::from_millis(600) && rows == 250, "{longest:?}, {rows} rows");
    recorded(&admin, "watch", "CoolDown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switched_statement_is_charged_to_the_other_group() {
    let stage = Stage::new().await;
    let nowhere =
        "create resource group n ru_per_sec = 9 query_limit = (rows = 1, action = switch_group(nowhere))";
    assert_eq!(state(stage.admin().await.batch_execute(nowhere).await), "22023");
    stage.admin().await.batch_execute("create resource group slow ru_per_sec = 100000").await.unwrap();
    let rule = "exec_elapsed = '100ms', action = switch_group(slow), watch = similar duration '10m'";
    let (admin, ann) = ruled(&stage, rule).await;
    assert_eq!(state(admin.batch_execute("drop resource group slow").await), "55000");
    // Some seconds of CPU, of which a tenth of a second is the own group's.
    let work =
        "select count(*) from generate_series(1, 3000000) g where g % 2 = 0 and pg_sleep(0) is not null";
    ann.simple_query(work).await.unwrap();
    recorded(&admin, "identify", "SwitchGroup").await;
    eventually("the other group pays", async || used(&admin, "slow").await > 100.0).await;
    rules_are_known(&admin, &ann).await;
    // Another number of rows is the same template. From its beginning the other group pays.
    let own = used(&admin, "r").await;
    let before = used(&admin, "slow").await;
    ann.simple_query(&work.replace("3000000", "2000000")).await.unwrap();
    recorded(&admin, "watch", "SwitchGroup").await;
    eventually("the other group pays", async || used(&admin, "slow").await > before + 100.0).await;
    let more = used(&admin, "r").await - own;
    assert!(more < 20.0, "{more} RU for {before} and more");
    // It needs nothing of its own group, which has nothing left.
    admin.batch_execute("alter resource group r ru_per_sec = 0.1").await.unwrap();
    // A template of its own each time: one that a busy machine makes slow is switched to the other group from then on.
    let mut tries = 0;
    eventually("the group owes", async || {
        tries += 1;
        ann.simple_query(&format!("select repeat('x', 60000) as try_{tries}")).await.is_err()
    })
    .await;
    ann.simple_query(&work.replace("3000000", "1000")).await.unwrap();
    ann.query(&work.replace("3000000", "1000"), &[]).await.unwrap();
    // The other group's limit is the one that holds.
    admin.batch_execute("alter resource group slow ru_per_sec = 0.1").await.unwrap();
    eventually("the other group owes", async || {
        let answer = ann.simple_query(&work.replace("3000000", "30000")).await;
        answer
            .is_err_and(|error| error.as_db_error().unwrap().message().contains("resource group slow is out"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_of_an_operator_hold_until_they_end() {
    let stage = Stage::new().await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    // Without a rule: an operator's list alone.
    admin.batch_execute("create resource group r ru_per_sec = 100000").await.unwrap();
    admin.batch_execute("alter user ann resource group r").await.unwrap();
    is_in(&ann, "r").await;
    let watch = async |what: &str| {
        let sql = format!("query watch add resource group r action kill sql {what}");
        admin.batch_execute(&sql).await.unwrap();
        rules_are_known(&admin, &ann).await;
    };
    let refuses = async |sql: &str| {
        let answer = ann.simple_query(sql).await;
        answer.is_err_and(|error| error.as_db_error().unwrap().message().contains("watch"))
    };
    let refused = async |sql: &str| {
        let (simple, prepared) = (refuses(sql).await, ann.query(sql, &[]).await);
        assert_eq!(simple, prepared.is_err(), "{sql}: {prepared:?}");
        simple
    };
    watch("text exact to 'select 1 as a'").await;
    assert!(refused("select 1 as a").await && refused(" select 1 as a;").await);
    assert!(!refused("select 2 as a").await && !refused("select 1 as  a").await);
    watch("text similar to 'select 5 as b'").await;
    assert!(refused("select 1 as b").await && refused("SELECT  7 AS b -- seven").await);
    assert!(!refused("select 1 as c").await);
    // By what tidegate.statements shows, and by the digest of a text.
    ann.simple_query("select 1 as d").await.unwrap();
    let shown =
        "select coalesce(max(fingerprint), '') from tidegate.statements where template = 'SELECT ? AS d'";
    eventually("it is reported", async || !value(&admin, shown).await.is_empty()).await;
    let fingerprint = value(&admin, shown).await;
    watch(&format!("digest '{fingerprint}'")).await;
    assert!(refused("select 3 as d").await && !refused("select 3 as e").await);
    let digest = "select text_sha256 from tidegate.runaways where template = 'SELECT ? AS a' limit 1";
    eventually("it is recorded", async || {
        let messages = admin.simple_query(digest).await.unwrap();
        format!("{messages:?}").contains("Row")
    })
    .await;
    let digest = value(&admin, digest).await;
    assert_eq!(digest.len(), 64);
    admin.batch_execute("query watch remove resource group r").await.unwrap();
    eventually("they are lifted", async || {
        !refuses("select 1 as a").await && !refuses("select 1 as b").await
    })
    .await;
    watch(&format!("digest '{digest}'")).await;
    assert!(refused("select 1 as a").await && !refused("select 2 as a").await);
    let empty = "query watch add resource group r action kill sql digest 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'";
    assert!(told(admin.batch_execute(empty).await).contains("empty text"));
    // One ends by itself.
    let brief =
        "query watch add resource group r action kill sql text exact to 'select 1 as f' duration '3s'";
    admin.batch_execute(brief).await.unwrap();
    eventually("it is watched", async || refuses("select 1 as f").await).await;
    eventually("its time is over", async || !refuses("select 1 as f").await).await;
    let id = format!("select id from information_schema.runaway_watches where watch_text = '{digest}'");
    admin.batch_execute(&format!("query watch remove {}", value(&admin, &id).await)).await.unwrap();
    eventually("it is lifted", async || !refuses("select 1 as a").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_that_catches_its_cancel_loses_its_session_and_is_charged_to_its_end() {
    let stage = Stage::new().await;
    let (admin, ann) = ruled(&stage, "exec_elapsed = '300ms', action = kill").await;
    // Each round ends with a cancel, or by itself, and is charged; wherever a cancel comes, it is caught.
    let stubborn = "do $$ begin for n in 1..30 loop
        begin perform pg_sleep(2); exception when query_canceled then null; end;
        begin perform count(*) from generate_series(1, 300000); exception when query_canceled then null; end;
        end loop; end $$";
    let answer = ann.simple_query(stubborn).await;
    assert!(told(answer).contains("runaway of resource group r"));
    eventually("its session has ended", async || ann.is_closed()).await;
    let then = used(&admin, "r").await;
    eventually("what it goes on with is charged", async || used(&admin, "r").await > then + 20.0).await;
    let running = "select count(*) from pg_stat_activity where usename = 'ann' and state = 'active'";
    let root = stage.direct().await;
    eventually("it comes to its end", async || value(&root, running).await == "0").await;
    eventually("its connection is gone", async || {
        value(&root, "select count(*) from pg_stat_activity where usename = 'ann'").await == "0"
    })
    .await;
}
