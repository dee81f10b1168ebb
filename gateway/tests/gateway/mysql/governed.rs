//! Who pays, who waits, who may: statements under their groups.

use std::process::Command;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Value};
use tidegate_gateway::{InTransaction, Principals};
use tidegate_test_servers::ROOT;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::stage::{Stage, error, is_in, login, ruled, value};
use crate::common::{eventually, says};
use crate::scene::{Scene, packet, read_packet};

/// Some 200 to 1,000 ms of CPU.
const HEAVY: &str = "select count(*) from seq_1_to_3000 a, seq_1_to_2500 b where a.seq <> b.seq";

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_made_bound_and_changed_over_the_same_connection() {
    let stage = Stage::new().await;
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    assert_eq!(value::<String>(&mut ann, "select current_resource_group()").await, "default");
    admin.query_drop("create resource group small ru_per_sec = 50 priority = low").await.unwrap();
    admin.query_drop("alter user ann resource group small").await.unwrap();
    // A live session is moved at its next statement.
    is_in(&mut ann, "small").await;
    assert_eq!(error(ann.query_drop("create resource group mine ru_per_sec = 1").await).0, 1227);
    assert_eq!(error(ann.query_drop("set resource group default").await).0, 1227);
    assert_eq!(error(admin.query_drop("create resource group small ru_per_sec = 1").await).0, 8248);
    assert_eq!(error(admin.query_drop("create resource group x ru_per_sec = ").await).0, 1064);
    let shown = "select name, ru_per_sec from information_schema.resource_groups order by name";
    let shown: Vec<(String, String)> = admin.query(shown).await.unwrap();
    assert_eq!(shown, [("default".into(), "UNLIMITED".into()), ("small".into(), "50".into())]);
    admin.query_drop("set resource group small").await.unwrap();
    is_in(&mut admin, "small").await;
    admin.query_drop("use other").await.unwrap();
    is_in(&mut admin, "small").await;
    assert_eq!(value::<u32>(&mut ann, "select 40 + 2").await, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_gateway_answers_may_be_prepared() {
    let stage = Stage::new().await;
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    let group = admin.prep("select current_resource_group()").await.unwrap();
    let theirs = admin.prep("select 40 + ?").await.unwrap();
    let create = admin.prep("create resource group mine ru_per_sec = 70").await.unwrap();
    assert_eq!((create.num_params(), create.num_columns()), (0, 0));
    assert_eq!(admin.exec_first::<String, _, _>(&group, ()).await.unwrap().as_deref(), Some("default"));
    admin.exec_drop(&create, ()).await.unwrap();
    assert_eq!(admin.exec_first::<u32, _, _>(&theirs, (2,)).await.unwrap(), Some(42));
    assert_eq!(error(admin.exec_drop(&create, ()).await).0, 8248, "it is there");
    admin.exec_drop("set resource group mine", ()).await.unwrap();
    assert_eq!(admin.exec_first::<String, _, _>(&group, ()).await.unwrap().as_deref(), Some("mine"));
    let shown = "select name, ru_per_sec from information_schema.resource_groups order by name";
    let shown: Vec<(String, String)> = admin.exec(shown, ()).await.unwrap();
    assert_eq!(shown, [("default".into(), "UNLIMITED".into()), ("mine".into(), "70".into())]);
    // A moment is one in either protocol.
    admin
        .query_drop("query watch add resource group mine action dryrun sql text exact to 'select 1'")
        .await
        .unwrap();
    let started = "select start_time from information_schema.runaway_watches";
    let text: Option<String> = admin.query_first(started).await.unwrap();
    let binary: Option<Value> = admin.exec_first(started, ()).await.unwrap();
    let binary = binary.unwrap().as_sql(true);
    assert_eq!(Some(binary.trim_matches('\'').trim_end_matches("000")), text.as_deref());
    let counted: Vec<(String, u64)> = admin
        .exec("select resource_group, sum(calls) from tidegate.statements group by 1", ())
        .await
        .unwrap();
    assert!(counted.iter().all(|(group, _)| group == "default"), "{counted:?}");
    // A user who lacks the right gets the error at the execution; an invalid statement fails when it is prepared.
    let other = ann.prep("drop resource group mine").await.unwrap();
    assert_eq!(error(ann.exec_drop(&other, ()).await).0, 1227);
    assert_eq!(error(ann.prep("create resource group x ru_per_sec = ").await).0, 1064);
    ann.close(other).await.unwrap();
    // A session that was reset has nothing prepared.
    assert!(admin.reset().await.unwrap());
    let group = admin.prep("select current_resource_group()").await.unwrap();
    assert_eq!(admin.exec_first::<String, _, _>(&group, ()).await.unwrap().as_deref(), Some("default"));
    // The server's stand-in for a statement of ours does nothing, and says so.
    let mut direct = login(stage.server.port(), "shop", ("ann", "ann")).await;
    let stands = direct.prep("SET @tidegate = (SELECT 1 UNION ALL SELECT 2)").await.unwrap();
    assert_eq!(error(direct.exec_drop(&stands, ()).await).0, 1242);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_in_use_is_the_tenant() {
    let stage = Stage::new().await;
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    admin.query_drop("create resource group others ru_per_sec = 500").await.unwrap();
    admin.query_drop("alter database other resource group others").await.unwrap();
    is_in(&mut ann, "default").await;
    ann.query_drop("use other").await.unwrap();
    is_in(&mut ann, "others").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_group_waits_then_fails_and_the_session_goes_on() {
    let stage = Stage::new().await;
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    admin.query_drop("create resource group tiny ru_per_sec = 0.5").await.unwrap();
    admin.query_drop("alter user ann resource group tiny").await.unwrap();
    is_in(&mut ann, "tiny").await;
    let prepared = ann.prep("select 7").await.unwrap();
    eventually("the group has its first tokens", async || ann.query_drop(HEAVY).await.is_ok()).await;
    let began = Instant::now();
    let (code, message) = error(ann.query_drop("select 1").await);
    assert_eq!(code, 8252, "{message}");
    assert!(message.contains("resource group tiny") && message.contains("Retry after"), "{message}");
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(error(ann.exec_drop(&prepared, ()).await).0, 8252);
    admin.query_drop("alter user ann resource group default").await.unwrap();
    eventually("ann is back", async || ann.query_drop("select 3").await.is_ok()).await;
    assert_eq!(ann.exec_first::<u32, _, _>(&prepared, ()).await.unwrap(), Some(7));
    // Inside a transaction statements run on little debt, and its end on any.
    ann.query_drop("begin").await.unwrap();
    admin.query_drop("alter user ann resource group tiny").await.unwrap();
    is_in(&mut ann, "tiny").await;
    let (code, message) = error(ann.query_drop("select 4").await);
    assert!(code == 8252 && message.contains("COMMIT and ROLLBACK do not wait"), "{code} {message}");
    ann.query_drop("commit").await.unwrap();
    assert_eq!(error(ann.query_drop("select 5").await).0, 8252);
}

/// Executes statement 1 with "abc" as a value in a part of its own. Whether it ran; an answer has the value once.
async fn runs_in_parts(raw: &mut TcpStream) -> bool {
    let part = packet(0, b"\x18\x01\0\0\0\0\0abc");
    let run = packet(0, b"\x17\x01\0\0\0\0\x01\0\0\0\0\x01\xfc\0");
    raw.write_all(&[part, run].concat()).await.unwrap();
    let first = read_packet(raw).await;
    if first.first() == Some(&0xff) {
        return false;
    }
    // A column and its end, a row and its end.
    let mut rest = Vec::new();
    for _ in 0..4 {
        rest.push(read_packet(raw).await);
    }
    assert_eq!(rest[2], b"\0\0\x03abc");
    true
}

/// The server appends to what it has of a value, and the client sends it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_in_parts_is_there_once_though_an_execution_of_it_was_refused() {
    let stage = Stage::new().await;
    let mut admin = stage.admin().await;
    let scene = Scene::MySql(stage);
    scene.open_to_raw().await;
    let mut raw = scene.raw().await;
    raw.write_all(&packet(0, b"\x16select ?")).await.unwrap();
    assert_eq!(read_packet(&mut raw).await.get(..9), Some(&b"\0\x01\0\0\0\x01\0\x01\0"[..]));
    for _ in 0..4 {
        read_packet(&mut raw).await;
    }
    eventually("it runs", async || runs_in_parts(&mut raw).await).await;
    admin.query_drop("create resource group tiny ru_per_sec = 0.1").await.unwrap();
    admin.query_drop("alter user raw resource group tiny").await.unwrap();
    eventually("it is refused", async || !runs_in_parts(&mut raw).await).await;
    admin.query_drop("alter user raw resource group default").await.unwrap();
    eventually("it runs again", async || runs_in_parts(&mut raw).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_statements_cost_is_counted_by_the_kernel() {
    let stage = Stage::new().await;
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    admin.query_drop("create resource group shop ru_per_sec = 100000").await.unwrap();
    admin.query_drop("alter user ann resource group shop").await.unwrap();
    is_in(&mut ann, "shop").await;
    ann.query_drop("create table t (a int)").await.unwrap();
    let insert = ann.prep("insert into t values (?)").await.unwrap();
    for number in 0..50 {
        ann.exec_drop(&insert, (number,)).await.unwrap();
    }
    eventually("statements are reported", async || {
        let sql =
            "select count(*) from tidegate.statements where template like 'INSERT INTO t%' and calls = 50";
        value::<u32>(&mut admin, sql).await == 1
    })
    .await;
    let parts: Vec<(String, f64, String)> = admin.query(format!("explain ru {HEAVY}")).await.unwrap();
    let (total, cpu) = (parts.last().unwrap(), &parts[0]);
    assert!(total.2.contains("counted by the kernel"), "{parts:?}");
    assert!(cpu.1 > 10.0, "{parts:?}");
    assert_eq!(error(admin.query_drop("explain ru select nosuch").await).0, 1054);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_is_explained_with_its_parameters() {
    let stage = Stage::new().await;
    let mut ann = stage.ann().await;
    ann.query_drop("create table t (a int primary key, b text)").await.unwrap();
    let insert = "explain ru insert into t select seq, ? from seq_1_to_3000 where seq <= ?";
    let insert = ann.prep(insert).await.unwrap();
    assert_eq!((insert.num_params(), insert.num_columns()), (2, 3));
    let names: Vec<_> = insert.columns().iter().map(|column| column.name_str().into_owned()).collect();
    assert_eq!(names, ["part", "ru", "used"]);
    let told: Vec<(String, f64, String)> = ann.exec(&insert, ("bü", 2000)).await.unwrap();
    let names: Vec<&str> = told.iter().map(|part| part.0.as_str()).collect();
    assert_eq!(names, ["cpu", "read", "write", "network", "total"]);
    assert!(told[2].2.ends_with(", 2000 rows") && told[4].2.contains("in group default"), "{told:?}");
    let sum: f64 = told[..4].iter().map(|part| part.1).sum();
    assert!(told[4].1 > 0.0 && (sum - told[4].1).abs() < 1e-3, "{told:?}");
    assert_eq!(value::<u32>(&mut ann, "select count(*) from t where b = 'bü'").await, 2000);
    // One that fails says why, and the session goes on with other prepared statements.
    assert_eq!(error(ann.exec_drop(&insert, ("x", 1)).await).0, 1062);
    assert_eq!(error(ann.prep("explain ru select nosuch").await).0, 1054);
    let plain: Option<u32> = ann.exec_first("select 40 + ?", (2,)).await.unwrap();
    assert_eq!(plain, Some(42));
    let rows: Vec<(String, f64, String)> = ann.exec("explain ru select a, b from t", ()).await.unwrap();
    assert_eq!(rows.len(), 5);
    assert!(rows[3].2.contains(" bytes out"), "{rows:?}");
    assert_eq!(value::<u32>(&mut ann, "select 7").await, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_choose_groups_for_those_who_may() {
    let stage = Stage::with(|config| {
        config.policy.switchers = Principals::parse([ROOT.0, "ann@shop"]).unwrap();
    })
    .await;
    let mut root = stage.admin().await;
    root.query_drop("create resource group batch ru_per_sec = 100000").await.unwrap();
    let (mut ann, mut other) = (stage.ann().await, login(stage.port(), "other", ("ann", "ann")).await);
    let group = async |session: &mut Conn, sql: &str| {
        let parts: Vec<(String, f64, String)> = session.query(format!("explain ru {sql}")).await.unwrap();
        parts[4].2.strip_prefix("in group ").unwrap().split(',').next().unwrap().to_owned()
    };
    let hinted = "select /*+ RESOURCE_GROUP(batch) */ 1 as hinted";
    eventually("the group is known", async || group(&mut ann, hinted).await == "batch").await;
    assert_eq!(group(&mut ann, "select 1").await, "default", "the hint was of the other statement");
    assert_eq!(group(&mut ann, "select /*+ resource_group(nowhere) */ 1").await, "default");
    assert_eq!(group(&mut other, hinted).await, "default", "who may not");
    ann.exec_drop(hinted, ()).await.unwrap();
    other.exec_drop(hinted, ()).await.unwrap();
    // The rules of the group that pays hold, those behind a hint that leads nowhere included.
    for (group, sql) in [("batch", "select 1 as hinted"), ("default", "select 1 as own")] {
        let watch = format!("query watch add resource group {group} action kill sql text similar to '{sql}'");
        root.query_drop(watch).await.unwrap();
    }
    eventually("it is watched", async || ann.query_drop("select 1 as own").await.is_err()).await;
    assert_eq!(error(ann.exec_drop(hinted, ()).await).0, 8254);
    assert_eq!(error(ann.query_drop(hinted).await).0, 8254);
    ann.query_drop("select 1 as hinted").await.unwrap();
    other.exec_drop(hinted, ()).await.unwrap();
    assert_eq!(error(ann.query_drop("select /*+ RESOURCE_GROUP(nowhere) */ 1 as own").await).0, 8254);
    assert_eq!(error(ann.exec_drop("select /*+ RESOURCE_GROUP(nowhere) */ 1 as own", ()).await).0, 8254);
}

/// The group of a session of a client that calls itself so.
const NAMED: &str = "import pymysql, sys
port, database, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
session = pymysql.connect(host='127.0.0.1', port=port, user='ann', password='ann', database=database, program_name=name)
cursor = session.cursor()
cursor.execute('select current_resource_group()')
print(cursor.fetchone()[0])";

#[tokio::test(flavor = "multi_thread")]
async fn a_client_s_name_chooses_a_group_for_those_who_may() {
    let stage = Stage::with(|config| {
        config.policy.switchers = Principals::parse([ROOT.0, "ann@shop"]).unwrap();
    })
    .await;
    stage.admin().await.query_drop("create resource group batch ru_per_sec = 1000").await.unwrap();
    let group = |database: &str, name: &str| {
        let mut client = Command::new("/usr/bin/python3");
        client.args(["-c", NAMED, &stage.port().to_string(), database, name]);
        String::from_utf8(tokio::task::block_in_place(|| says(&mut client, b""))).unwrap()
    };
    assert_eq!(group("shop", "reports /*+ RESOURCE_GROUP(batch) */"), "batch\n");
    assert_eq!(group("shop", "reports /*+ RESOURCE_GROUP(nowhere) */"), "default\n");
    assert_eq!(group("other", "reports /*+ RESOURCE_GROUP(batch) */"), "default\n", "who may not");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_transactions_wait_they_wait_like_any_other() {
    let stage = Stage::with(|config| config.policy.in_transaction = InTransaction::Wait).await;
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    ann.query_drop("begin").await.unwrap();
    admin.query_drop("create resource group tiny ru_per_sec = 0.1").await.unwrap();
    admin.query_drop("alter user ann resource group tiny").await.unwrap();
    is_in(&mut ann, "tiny").await;
    // A minute of debt, by what is over before it is looked at: a result would be held until it is paid.
    let work = "select count(*) from seq_1_to_400 a, seq_1_to_400 b where a.seq <> b.seq";
    eventually("the group has tokens", async || ann.query_drop(work).await.is_ok()).await;
    assert_eq!(error(ann.query_drop("select 1").await).0, 8252);
    assert_eq!(error(ann.exec_drop("select 1", ()).await).0, 8252);
    admin.query_drop("alter user ann resource group default").await.unwrap();
    eventually("she pays elsewhere", async || ann.query_drop("select 2").await.is_ok()).await;
    ann.query_drop("commit").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn runaways_that_the_server_does_not_kill_end_with_their_session() {
    let stage = Stage::with(|config| {
        let listener = config.listeners.first_mut().unwrap();
        listener.upstream.password = "wrong".into();
    })
    .await;
    let (_, mut ann) = ruled(&stage, "exec_elapsed = '1s', action = kill").await;
    let began = Instant::now();
    let (code, message) = error(ann.query_drop("select sleep(30)").await);
    assert!(code == 8253 && message.contains("ElapsedTime"), "{code} {message}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(ann.query_drop("select 1").await.is_err(), "its connection is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_user_for_the_gateway_is_estimated_and_runaways_end_with_their_session() {
    let stage = Stage::with(|config| {
        let listener = config.listeners.first_mut().unwrap();
        (listener.upstream.user, listener.upstream.password) = Default::default();
    })
    .await;
    let (mut admin, mut ann) = ruled(&stage, "exec_elapsed = '1s', action = kill").await;
    let work = "select count(*) from seq_1_to_300 far, seq_1_to_300 b where far.seq <> b.seq";
    ann.query_drop(work).await.unwrap();
    let parts: Vec<(String, f64, String)> = ann.exec(format!("explain ru {work}"), ()).await.unwrap();
    assert!(parts[4].2.starts_with("in group r, estimated"), "{parts:?}");
    assert!(parts[0].1 > 0.0, "{parts:?}");
    let estimated = "select coalesce(sum(estimated), 0) from tidegate.statements where template like '%far%'";
    eventually("it is reported", async || value::<u32>(&mut admin, estimated).await == 2).await;
    let began = Instant::now();
    let (code, message) = error(ann.query_drop("select sleep(20)").await);
    assert!(code == 8253 && message.contains("ElapsedTime"), "{code} {message}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(ann.query_drop("select 1").await.is_err(), "its connection is closed");
    let mut ann = stage.ann().await;
    assert_eq!(value::<u32>(&mut ann, "select 40 + 2").await, 42);
}
