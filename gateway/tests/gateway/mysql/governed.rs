//! Who pays, who waits, who may: statements under their groups.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use tokio::time::Instant;

use super::stage::{Stage, error, is_in, value};
use crate::common::eventually;

/// About 300 ms of CPU.
const HEAVY: &str = "select count(*) from seq_1_to_1500 a, seq_1_to_1500 b where a.seq <> b.seq";

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
    assert_eq!(error(admin.prep("select current_resource_group()").await).0, 1295);
    admin.query_drop("set resource group small").await.unwrap();
    is_in(&mut admin, "small").await;
    admin.query_drop("use other").await.unwrap();
    is_in(&mut admin, "small").await;
    assert_eq!(value::<u32>(&mut ann, "select 40 + 2").await, 42);
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
    // Inside a transaction statements run on debt.
    ann.query_drop("begin").await.unwrap();
    admin.query_drop("alter user ann resource group tiny").await.unwrap();
    is_in(&mut ann, "tiny").await;
    for _ in 0..3 {
        ann.query_drop("select 4").await.unwrap();
    }
    ann.query_drop("commit").await.unwrap();
    assert_eq!(error(ann.query_drop("select 5").await).0, 8252);
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
    // One that fails tells why, and the session goes on with other statements prepared.
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
async fn a_runaway_is_killed_in_time_and_watched() {
    let stage = Stage::new().await;
    let (mut admin, mut ann) = (stage.admin().await, stage.ann().await);
    let limit = "query_limit = (exec_elapsed = '300ms', action = kill, watch = similar duration '10m')";
    admin.query_drop(format!("create resource group strict ru_per_sec = 100000 {limit}")).await.unwrap();
    admin.query_drop("alter user ann resource group strict").await.unwrap();
    is_in(&mut ann, "strict").await;
    // Rules come apart from bindings, and count for what begins after them.
    let long = "select count(*) from seq_1_to_3000 a, seq_1_to_3000 b where a.seq <> b.seq";
    eventually("the rule is known", async || ann.query_drop(long).await.is_err()).await;
    let endless = "select count(*) from seq_1_to_100000 a, seq_1_to_100000 b where a.seq <> b.seq";
    let began = Instant::now();
    let (code, message) = error(ann.query_drop(endless).await);
    assert_eq!(code, 8253, "{message}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(value::<u32>(&mut ann, "select 40 + 2").await, 42);
    eventually("it is watched", async || {
        let (code, _) = error(ann.query_drop(endless.replace("100000", "99999")).await);
        code == 8254
    })
    .await;
}
