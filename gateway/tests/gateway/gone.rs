//! Clients and databases that are gone in the middle of something, over both protocols.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidegate_gateway::Config;
use tidegate_test_servers::ROOT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout};

use crate::common::eventually;
use crate::postgres::stage::{login, used, value};
use crate::scene::{Scene, message, packet};

/// Bytes taken or sent before a peer is gone.
const SOME: usize = 1_000_000;
/// 200 MB, which no buffer holds.
const RESULT: [&str; 2] = [
    "copy (select repeat('x', 1000) from generate_series(1, 200000)) to stdout",
    "select repeat('x', 1000) from seq_1_to_200000",
];
/// A client that sends rows for as long as it has some.
const ROWS: [&str; 2] = ["copy t from stdin", "load data local infile '/dev/stdin' into table t"];

fn client(scene: &Scene, [postgres, mysql]: [&str; 2]) -> Child {
    scene.client(scene.pick(postgres, mysql)).stdin(Stdio::piped()).spawn().unwrap()
}

/// One that has the first of a large result.
fn reading(scene: &Scene) -> Child {
    let mut child = client(scene, RESULT);
    block_in_place(|| child.stdout.as_mut().unwrap().read_exact(&mut vec![0; SOME]).unwrap());
    child
}

/// One that has sent the first of many rows.
async fn sending(scene: &Scene) -> Child {
    let before = scene.sessions("ann").await;
    assert_eq!(scene.says("create table if not exists t (a text)").matches("ERROR").count(), 0);
    let mut child = client(scene, ROWS);
    let rows = format!("{}\n", "x".repeat(999)).repeat(SOME / 1_000);
    block_in_place(|| child.stdin.as_mut().unwrap().write_all(rows.as_bytes()).unwrap());
    eventually("it is at it", async || scene.sessions("ann").await == before + 1).await;
    child
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Whether it ended by itself, with a failure that it reported.
fn failed(mut child: Child) -> bool {
    drop(child.stdin.take());
    let output = block_in_place(|| child.wait_with_output().unwrap());
    !output.status.success() && !output.stderr.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_leaves_nothing_behind_and_has_paid() {
    for scene in Scene::both(|_| {}).await {
        let name = scene.name();
        end(reading(&scene));
        eventually("its result is given up", async || scene.sessions("ann").await == 0).await;
        end(sending(&scene).await);
        eventually("its rows are given up", async || scene.sessions("ann").await == 0).await;
        // Rows that were not committed are not there.
        assert_eq!(scene.says("select count(*) from t"), "0\n", "{name}");
        let counted = "select count(*) from tidegate.statements where calls = 1 and ";
        for what in ["net_out_bytes > 1000000 and net_out_bytes < 199000000", "net_in_bytes > 900000"] {
            eventually("its statement is settled", async || {
                scene.admin(&format!("{counted}{what}")).await.as_deref() == Some("1")
            })
            .await;
        }
        assert!(scene.settles().await, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_while_it_waits_for_admission_waits_no_longer() {
    let impatient = |config: &mut Config| {
        config.policy.max_wait = Duration::from_secs(60);
        config.kill_abandoned = true;
    };
    for scene in Scene::both(impatient).await {
        scene.group("1").await;
        // A minute's worth and more, which the group owes then.
        let heavy = scene.pick(
            "select count(*) from generate_series(1, 3000000)",
            "select count(*) from seq_1_to_10000 a, seq_1_to_5000 b where a.seq <> b.seq",
        );
        let mut heavy = scene.client(heavy).spawn().unwrap();
        eventually("it runs", async || scene.sessions("ann").await == 1).await;
        // Until it has used more than the group has.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let mut waiting = scene.client("select 40 + 2").spawn().unwrap();
        eventually("both are there", async || scene.sessions("ann").await == 2).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(waiting.try_wait().unwrap().is_none(), "{}: it does not wait", scene.name());
        let began = Instant::now();
        end(waiting);
        eventually("it waits no longer", async || scene.sessions("ann").await == 1).await;
        assert!(began.elapsed() < Duration::from_secs(20), "{}: {:?}", scene.name(), began.elapsed());
        heavy.kill().unwrap();
        heavy.wait().unwrap();
    }
}

/// A raw session that has just sent a statement.
async fn asked(scene: &Scene, sql: &str) -> TcpStream {
    let mut session = scene.raw().await;
    session.write_all(&question(scene, sql)).await.unwrap();
    session
}

fn question(scene: &Scene, sql: &str) -> Vec<u8> {
    let sql = sql.as_bytes();
    scene.pick(message(b'Q', &[sql, b"\0"].concat()), packet(0, &[b"\x03", sql].concat()))
}

/// A table of texts for ann and for those sessions.
async fn table(scene: &Scene) {
    scene.open_to_raw().await;
    assert_eq!(scene.says("create table t (a text)").matches("ERROR").count(), 0);
    if let Scene::Postgres(stage) = scene {
        let root = login(stage.postgres.port(), "shop", ROOT).await;
        root.batch_execute("grant all on t to raw").await.unwrap();
    }
}

const QUICK: &str = "insert into t values ('quick')";
const SLOW: [&str; 2] = [
    "insert into t select 'slow' from pg_sleep(2)",
    "insert into t select 'slow' from dual where sleep(2) = 0",
];

fn hours(scene: &Scene) -> &'static str {
    scene.pick(
        "insert into t select 'hours' from pg_sleep(7200)",
        "insert into t select 'hours' from dual where sleep(7200) = 0",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_sent_is_done_though_it_says_no_more() {
    for scene in Scene::both(|config| config.policy.max_wait = Duration::from_secs(60)).await {
        let name = scene.name();
        table(&scene).await;
        for round in 0..30 {
            let mut session = asked(&scene, QUICK).await;
            session.shutdown().await.unwrap();
            // It hears the answer, and the end behind it.
            let mut answer = Vec::new();
            let read = timeout(Duration::from_secs(60), session.read_to_end(&mut answer)).await;
            read.unwrap_or_else(|_| panic!("{name}, {round}: it goes on")).unwrap();
            assert!(answer.len() > 8, "{name}, {round}: {answer:?}");
            drop(asked(&scene, QUICK).await);
        }
        drop(asked(&scene, scene.pick(SLOW[0], SLOW[1])).await);
        eventually("all of it is done", async || {
            let counts = "select concat(a, ' ', count(*)) from t group by a order by a";
            scene.says(counts) == "quick 60\nslow 1\n"
        })
        .await;
        eventually("all are gone", async || scene.sessions("raw").await == 0).await;
        // So is what has to wait for its group.
        scene.group("100").await;
        scene.admin("alter user raw resource group anns").await;
        scene.says(scene.pick(
            "select count(*) from (select generate_series(1, 1500000)) g",
            "select count(*) from seq_1_to_3000 a, seq_1_to_2500 b where a.seq <> b.seq",
        ));
        drop(asked(&scene, "insert into t values ('waited')").await);
        eventually("it is done", async || scene.says("select a from t where a = 'waited'") == "waited\n")
            .await;
        assert!(scene.settles().await, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statement_of_a_client_that_closes_is_killed_where_that_is_wanted() {
    for scene in Scene::both(|config| config.kill_abandoned = true).await {
        table(&scene).await;
        let session = asked(&scene, hours(&scene)).await;
        eventually("it runs", async || scene.sessions("raw").await == 1).await;
        drop(session);
        eventually("it is killed", async || scene.sessions("raw").await == 0).await;
        assert_eq!(scene.says("select count(*) from t"), "0\n", "{}", scene.name());
    }
}

/// PostgreSQL forgets a request that comes before its process has read the statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_the_server_begins_late_is_killed_too() {
    let [scene, _] = Scene::both(|config| config.kill_abandoned = true).await;
    let Scene::Postgres(stage) = &scene else { panic!("the first is PostgreSQL") };
    table(&scene).await;
    let mut session = scene.raw().await;
    let root = stage.direct().await;
    let process = value(&root, "select pid from pg_stat_activity where usename = 'raw'").await;
    let signal = |signal| {
        let pid = Pid::from_raw(process.parse().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    };
    signal(Signal::STOP);
    session.write_all(&question(&scene, hours(&scene))).await.unwrap();
    drop(session);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    signal(Signal::CONT);
    eventually("it is killed", async || scene.sessions("raw").await == 0).await;
    assert_eq!(scene.says("select count(*) from t"), "0\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_survives_the_end_of_its_client_is_charged_to_its_own_end() {
    let [scene, _] = Scene::both(|config| config.kill_abandoned = true).await;
    let Scene::Postgres(stage) = &scene else { panic!("the first is PostgreSQL") };
    scene.group("1000000").await;
    // Wherever a request to interrupt it comes, it is caught.
    let mut stubborn = scene.client(
        "do $$ begin for n in 1..8 loop
            begin perform pg_sleep(2); exception when query_canceled then null; end;
            begin perform count(*) from generate_series(1, 300000); exception when query_canceled then null; end;
        end loop; end $$",
    );
    let stubborn = stubborn.spawn().unwrap();
    eventually("it runs", async || scene.sessions("ann").await == 1).await;
    end(stubborn);
    let admin = stage.admin().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let then = used(&admin, "anns").await;
    eventually("it comes to its end", async || scene.sessions("ann").await == 0).await;
    eventually("what it went on with is charged", async || used(&admin, "anns").await > then + 20.0).await;
    assert!(scene.settles().await);
}

/// A request to interrupt ends what the server is at, and not what it comes to next.
#[tokio::test(flavor = "multi_thread")]
async fn statements_behind_the_one_that_is_killed_are_killed_too() {
    for scene in Scene::both(|config| config.kill_abandoned = true).await {
        let name = scene.name();
        table(&scene).await;
        let hours = hours(&scene);
        let mut session = asked(&scene, hours).await;
        for _ in 0..2 {
            session.write_all(&question(&scene, hours)).await.unwrap();
        }
        eventually("it runs", async || scene.sessions("raw").await == 1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(session);
        eventually("all are killed", async || scene.sessions("raw").await == 0).await;
        assert_eq!(scene.says("select count(*) from t"), "0\n", "{name}");
        assert!(scene.settles().await, "{name}");
    }
}

/// A server that cannot get rid of its result does not notice that it is to end: it would go on, with its locks, for as
/// long as its group's results are held.
#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_a_client_that_closes_is_not_held_for_the_debt_of_its_group() {
    let patient = |config: &mut Config| {
        config.policy.max_wait = Duration::from_secs(600);
        config.kill_abandoned = true;
    };
    for scene in Scene::both(patient).await {
        // A MiB of the result takes it a minute.
        scene.group("0.3").await;
        let mut child = client(&scene, RESULT);
        block_in_place(|| child.stdout.as_mut().unwrap().read_exact(&mut [0; 1_000]).unwrap());
        // Some looks at it: the first leads its group into debt.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.sessions("ann").await, 1, "{}", scene.name());
        end(child);
        // Some of a result that is held passes after half a minute.
        let ended = eventually("its result is given up", async || scene.sessions("ann").await == 0);
        assert!(timeout(Duration::from_secs(20), ended).await.is_ok(), "{}: it is held", scene.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_dies_in_the_middle_is_told_to_its_clients() {
    for mut scene in Scene::both(|_| {}).await {
        let name = scene.name();
        let (reading, sending) = (reading(&scene), sending(&scene).await);
        scene.kill_server();
        // What was on its way still comes.
        assert!(failed(reading) && failed(sending), "{name}");
        scene.run_server();
        assert!(scene.answers(), "{name}");
        assert!(scene.settles().await, "{name}: all of it is known");
    }
}
