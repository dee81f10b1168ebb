//! Rules against runaway statements: found while they run, ended, and refused the next time.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};
use tokio::time::Instant;

use super::stage::{Stage, error, is_in, ruled, rules_are_known, used, value};
use crate::common::eventually;

/// How much later than its limit a statement may end on a busy machine.
const LATE: Duration = Duration::from_secs(1);
/// Longer than any test waits.
const ENDLESS: &str = "select count(*) from seq_1_to_100000 a, seq_1_to_100000 b where a.seq <> b.seq";

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_is_killed_in_time_and_watched() {
    let stage = Stage::new().await;
    let rule = "exec_elapsed = '300ms', action = kill, watch = similar duration '10m'";
    let (_admin, mut ann) = ruled(&stage, rule).await;
    let began = Instant::now();
    let (code, message) = error(ann.query_drop(ENDLESS).await);
    assert_eq!(code, 8253, "{message}");
    assert!(began.elapsed() < Duration::from_millis(300) + LATE, "{:?}", began.elapsed());
    assert_eq!(value::<u32>(&mut ann, "select 40 + 2").await, 42);
    eventually("it is watched", async || {
        let (code, _) = error(ann.query_drop(ENDLESS.replace("100000", "99999")).await);
        code == 8254
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exact_watch_covers_a_text_however_it_is_sent_and_no_other() {
    let stage = Stage::new().await;
    let rule = "exec_elapsed = '300ms', action = kill, watch = exact duration '10m'";
    let (mut admin, mut ann) = ruled(&stage, rule).await;
    let (long, other) = (ann.prep(ENDLESS).await.unwrap(), ann.prep("select 40 + 2").await.unwrap());
    assert_eq!(error(ann.exec_drop(&long, ()).await).0, 8253);
    let mut killed = 1;
    eventually("it is watched", async || {
        let (code, _) = error(ann.exec_drop(&long, ()).await);
        killed += u32::from(code == 8253);
        code == 8254
    })
    .await;
    assert_eq!(ann.exec_first::<u32, _, _>(&other, ()).await.unwrap(), Some(42));
    let mut next = stage.ann().await;
    assert_eq!(error(next.exec_drop(ENDLESS, ()).await).0, 8254);
    assert_eq!(error(next.query_drop(format!(" {ENDLESS} ;\n")).await).0, 8254);
    assert_eq!(error(next.query_drop(format!("explain ru {ENDLESS}")).await).0, 8254);
    assert_eq!(error(next.exec_drop(format!("explain ru {ENDLESS}"), ()).await).0, 8254);
    let similar = ENDLESS.replace("_100000", "_100");
    next.query_drop(&similar).await.unwrap();
    next.exec_drop(&similar, ()).await.unwrap();
    next.query_drop("explain ru select 1").await.unwrap();
    next.exec_drop("explain ru select 1", ()).await.unwrap();
    // The rest of a text that is not seen to its end might be another.
    let padded = |many: u32| {
        let pad = "x".repeat(70_000);
        format!("select /* {pad} */ count(*) from seq_1_to_{many} a, seq_1_to_{many} b where a.seq <> b.seq")
    };
    assert_eq!(error(ann.query_drop(padded(100_000)).await).0, 8253);
    assert_eq!(error(ann.exec_drop(padded(100_000), ()).await).0, 8253);
    let recorded = "select coalesce(sum(repeats), 0) from tidegate.runaways where match_type = 'identify'";
    eventually("they are recorded", async || value::<u32>(&mut admin, recorded).await == killed + 2).await;
    rules_are_known(&mut admin, &mut ann).await;
    next.query_drop(padded(100)).await.unwrap();
    next.exec_drop(padded(100), ()).await.unwrap();
    let watches = "select count(*) from information_schema.runaway_watches where source = 'gw'";
    assert_eq!(value::<u32>(&mut admin, watches).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_unknown_text_is_recorded_and_not_watched() {
    let stage = Stage::new().await;
    let rule = "exec_elapsed = '300ms', action = kill, watch = similar duration '10m'";
    let (mut admin, mut ann) = ruled(&stage, rule).await;
    let opts = OptsBuilder::from_opts(ann.opts().clone()).stmt_cache_size(10_000);
    let mut many = Conn::new(opts).await.unwrap();
    let (slow, fast) = (many.prep(ENDLESS).await.unwrap(), many.prep("select 40 + 2").await.unwrap());
    // So many that the gateway forgets the first.
    for number in 0..4_096 {
        many.prep(format!("select {number}")).await.unwrap();
    }
    assert_eq!(error(many.exec_drop(&slow, ()).await).0, 8253);
    let recorded = "select count(*) from tidegate.runaways where match_type = 'identify' and action = 'Kill'";
    eventually("it is recorded", async || value::<u32>(&mut admin, recorded).await == 1).await;
    rules_are_known(&mut admin, &mut ann).await;
    assert_eq!(many.exec_first::<u32, _, _>(&fast, ()).await.unwrap(), Some(42));
    let watches = "select count(*) from information_schema.runaway_watches where source = 'gw'";
    assert_eq!(value::<u32>(&mut admin, watches).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_ends_before_it_is_looked_at_is_judged_all_the_same() {
    let stage = Stage::new().await;
    let (mut admin, mut ann) = ruled(&stage, "rows = 1000, ru = 5, action = kill, watch = similar").await;
    let rows = "select seq from seq_1_to_2000";
    let answer = ann.query_drop(rows).await;
    let recorded = "select count(*) from tidegate.runaways where rule like 'Rows%'";
    eventually("it is recorded", async || value::<u32>(&mut admin, recorded).await == 1).await;
    if answer.is_ok() {
        let action = "select action from tidegate.runaways where rule like 'Rows%'";
        assert_eq!(value::<String>(&mut admin, action).await, "DryRun", "nothing could be done about it");
    }
    eventually("it is watched", async || ann.query_drop(rows).await.is_err()).await;
    assert_eq!(error(ann.exec_drop(rows, ()).await).0, 8254);
    // Some 8 RU for the bytes on the wire.
    drop(ann.query_drop("select repeat('x', 700000)").await);
    let recorded = "select count(*) from tidegate.runaways where rule like 'RequestUnit%'";
    eventually("it is recorded", async || value::<u32>(&mut admin, recorded).await == 1).await;
    assert_eq!(value::<u32>(&mut ann, "select 40 + 2").await, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_and_request_units_are_limits_too() {
    let stage = Stage::new().await;
    let (mut admin, mut ann) = ruled(&stage, "rows = 100, ru = 300, action = kill").await;
    // They come for a minute.
    let rows = "select repeat('x', 3000), sleep(0.01) from seq_1_to_6000";
    let (code, message) = error(ann.query_drop(rows).await);
    assert!(code == 8253 && message.contains("Rows"), "{code} {message}");
    let (code, message) = error(ann.exec_drop(rows, ()).await);
    assert!(code == 8253 && message.contains("Rows"), "{code} {message}");
    let (code, message) = error(ann.query_drop(ENDLESS).await);
    assert!(code == 8253 && message.contains("RequestUnit"), "{code} {message}");
    assert_eq!(value::<u32>(&mut ann, "select 40 + 2").await, 42);
    let recorded = "select count(*) from tidegate.runaways where action = 'Kill' and match_type = 'identify'";
    eventually("both are recorded", async || value::<u32>(&mut admin, recorded).await == 2).await;
}

/// A server that is full of rows that nobody takes does not notice that it is to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_with_a_large_result_is_ended_though_its_group_is_in_debt() {
    let stage = Stage::with(|config| config.policy.max_wait = Duration::from_secs(60)).await;
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    let limit = "query_limit = (ru = 100, action = kill)";
    admin.query_drop(format!("create resource group r ru_per_sec = 10 {limit}")).await.unwrap();
    admin.query_drop("alter user ann resource group r").await.unwrap();
    rules_are_known(&mut admin, &mut ann).await;
    let (code, message) = error(ann.query_drop("select repeat('x', 3000) from seq_1_to_1000000").await);
    assert!(code == 8253 && message.contains("RequestUnit"), "{code} {message}");
    // The session goes on.
    ann.ping().await.unwrap();
}

/// Rows that come for some seconds, one each 10 ms.
const TRICKLE: &str = "select repeat('x', 3000), sleep(0.01) from seq_1_to_250";

/// The longest time between two rows, and how many rows there were.
async fn longest_gap(session: &mut Conn, sql: &str) -> (Duration, usize) {
    let mut answer = session.query_iter(sql).await.unwrap();
    let (mut last, mut longest, mut count) = (Instant::now(), Duration::ZERO, 0);
    while answer.next().await.unwrap().is_some() {
        longest = longest.max(last.elapsed());
        (last, count) = (Instant::now(), count + 1);
    }
    (longest, count)
}

/// Until there is a record of `found` with this action, of other statements than marks.
async fn recorded(admin: &mut Conn, found: &str, action: &str) {
    let sql = format!(
        "select count(*) from tidegate.runaways where match_type = '{found}' and action like '{action}%'"
    );
    eventually("it is recorded", async || value::<u32>(admin, &sql).await > 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_records_and_lets_go() {
    let stage = Stage::new().await;
    let rule = "exec_elapsed = '100ms', action = dryrun, watch = similar duration '10m'";
    let (mut admin, mut ann) = ruled(&stage, rule).await;
    assert_eq!(ann.exec_first::<u32, _, _>("select sleep(0.3)", ()).await.unwrap(), Some(0));
    recorded(&mut admin, "identify", "DryRun").await;
    eventually("it is found on the list", async || {
        ann.query_drop("select sleep(0.01)").await.unwrap();
        let sql = "select count(*) from tidegate.runaways where match_type = 'watch' and action = 'DryRun'";
        value::<u32>(&mut admin, sql).await > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_cools_down_gives_its_rows_slowly_and_to_the_end() {
    let stage = Stage::new().await;
    let rule = "rows = 20, action = cooldown, watch = similar duration '10m'";
    let (mut admin, mut ann) = ruled(&stage, rule).await;
    let (longest, rows) = longest_gap(&mut ann, TRICKLE).await;
    assert!(longest > Duration::from_millis(600) && rows == 250, "{longest:?}, {rows} rows");
    recorded(&mut admin, "identify", "CoolDown").await;
    rules_are_known(&mut admin, &mut ann).await;
    let (longest, rows) = longest_gap(&mut ann, TRICKLE).await;
    assert!(longest > Duration::from_millis(600) && rows == 250, "{longest:?}, {rows} rows");
    recorded(&mut admin, "watch", "CoolDown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switched_statement_is_charged_to_the_other_group() {
    let stage = Stage::new().await;
    let mut root = stage.admin().await;
    let nowhere =
        "create resource group n ru_per_sec = 9 query_limit = (rows = 1, action = switch_group(nowhere))";
    assert_eq!(error(root.query_drop(nowhere).await).0, 1105);
    root.query_drop("create resource group slow ru_per_sec = 100000").await.unwrap();
    let rule = "exec_elapsed = '100ms', action = switch_group(slow), watch = similar duration '10m'";
    let (mut admin, mut ann) = ruled(&stage, rule).await;
    // A second of CPU or more, of which a tenth is the own group's.
    let work = "select count(*) from seq_1_to_5000 a, seq_1_to_5000 b where a.seq <> b.seq";
    ann.query_drop(work).await.unwrap();
    recorded(&mut admin, "identify", "SwitchGroup").await;
    eventually("the other group pays", async || used(&mut root, "slow").await > 50.0).await;
    rules_are_known(&mut admin, &mut ann).await;
    // From its beginning the other group pays.
    let (own, before) = (used(&mut root, "r").await, used(&mut root, "slow").await);
    ann.exec_drop(work, ()).await.unwrap();
    recorded(&mut admin, "watch", "SwitchGroup").await;
    eventually("the other group pays", async || used(&mut root, "slow").await > before + 50.0).await;
    let more = used(&mut root, "r").await - own;
    assert!(more < 20.0, "{more} RU");
}

/// A statement of ann's that waits for a file as no kill reaches it, in a session with a rule against it.
pub(super) async fn one_that_no_kill_reaches_loses_its_session(admin: &mut Conn, mut ann: Conn) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").args(["-m", "644"]).arg(&pipe).status().unwrap();
    assert!(made.success());
    ann.query_drop("create table loaded (line text)").await.unwrap();
    // The server opens the pipe, which blocks until a writer opens it.
    let load = format!("load data infile '{}' into table loaded", pipe.display());
    let waits = tokio::spawn(async move {
        let answer = ann.query_drop(load).await;
        (answer, ann.ping().await)
    });
    eventually("its session has ended", async || waits.is_finished()).await;
    let (answer, later) = waits.await.unwrap();
    assert_eq!(error(answer).0, 8253);
    assert!(later.is_err(), "the session goes on");
    let running = "select count(*) from information_schema.processlist where info like 'load data%'";
    assert_eq!(value::<u32>(admin, running).await, 1, "a kill has reached it");
    drop(std::fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    eventually("it comes to its end", async || value::<u32>(admin, running).await == 0).await;
    let sessions = "select count(*) from information_schema.processlist where user = 'ann'";
    eventually("its connection is gone", async || value::<u32>(admin, sessions).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_that_no_kill_reaches_loses_its_session() {
    let stage = Stage::new().await;
    stage.server.root("grant file on *.* to ann").unwrap();
    let (mut admin, ann) = ruled(&stage, "exec_elapsed = '300ms', action = kill").await;
    one_that_no_kill_reaches_loses_its_session(&mut admin, ann).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_of_an_operator_hold_until_they_end() {
    let stage = Stage::new().await;
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    // Without a rule: an operator's list alone.
    admin.query_drop("create resource group r ru_per_sec = 100000").await.unwrap();
    admin.query_drop("alter user ann resource group r").await.unwrap();
    is_in(&mut ann, "r").await;
    let add = "query watch add resource group r action kill sql";
    for what in ["text exact to 'select 1 as a'", "text similar to 'select 5 as b'"] {
        admin.query_drop(format!("{add} {what}")).await.unwrap();
    }
    rules_are_known(&mut admin, &mut ann).await;
    for (sql, is_watched) in [
        ("select 1 as a", true),
        (" select 1 as a;", true),
        ("select 2 as a", false),
        ("select 1 as b", true),
        ("SELECT  7 AS b -- seven", true),
        ("select 1 as c", false),
    ] {
        let (text, prepared) = (ann.query_drop(sql).await, ann.exec_drop(sql, ()).await);
        assert_eq!(
            (text.is_err(), prepared.is_err()),
            (is_watched, is_watched),
            "{sql}: {text:?}, {prepared:?}"
        );
    }
    let digests = "select text_sha256, fingerprint from tidegate.runaways where template like 'SELECT ? AS%' order by template";
    let mut known: Vec<(String, String)> = Vec::new();
    eventually("they are recorded", async || {
        known = admin.query(digests).await.unwrap();
        known.len() == 2
    })
    .await;
    admin.query_drop("query watch remove resource group r").await.unwrap();
    eventually("they are lifted", async || {
        ann.query_drop("select 1 as a").await.is_ok() && ann.query_drop("select 1 as b").await.is_ok()
    })
    .await;
    // By digests, and for a time.
    for digest in [&known[0].0, &known[1].1] {
        admin.query_drop(format!("{add} digest '{digest}' duration '4s'")).await.unwrap();
    }
    eventually("they are watched", async || {
        ann.exec_drop("select 9 as b", ()).await.is_err() && ann.exec_drop("select 1 as a", ()).await.is_err()
    })
    .await;
    ann.query_drop("select 2 as a").await.unwrap();
    eventually("their time is over", async || {
        ann.query_drop("select 1 as a").await.is_ok() && ann.query_drop("select 9 as b").await.is_ok()
    })
    .await;
}
