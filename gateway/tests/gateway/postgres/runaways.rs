//! Rules against runaway statements: found while they run, ended, and refused the next time.

use std::time::Duration;

use tokio::time::Instant;

use super::stage::{Stage, state, value};
use crate::common::eventually;

const LONG: &str = "select count(*) from generate_series(1, 100000000) g where g % 2 = 0";

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_is_killed_recorded_and_refused_the_next_time() {
    let stage = Stage::new().await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    let rule = "query_limit = (exec_elapsed = '500ms', action = kill, watch = similar duration = '10m')";
    admin.batch_execute(&format!("create resource group r ru_per_sec = 100000 {rule}")).await.unwrap();
    admin.batch_execute("alter user ann resource group r").await.unwrap();
    eventually("ann is in the group", async || value(&ann, "select current_resource_group()").await == "r")
        .await;
    // The rule reaches the gateway by another way than the binding.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    let error = ann.simple_query(LONG).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "57014");
    assert!(
        error.message().contains("runaway of resource group r") && error.message().contains("ElapsedTime")
    );
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // The session is whole, and other statements run.
    assert_eq!(value(&ann, "select 1").await, "1");
    let similar = LONG.replace("% 2", "% 3");
    eventually("it is watched", async || {
        let answer = ann.simple_query(&similar).await;
        answer.unwrap_err().as_db_error().unwrap().message().contains("watch")
    })
    .await;
    let watched = "select watch from information_schema.runaway_watches where resource_group_name = 'r'";
    assert_eq!(value(&admin, watched).await, "Similar");
    assert_eq!(value(&admin, "select count(*) > 0 from tidegate.runaways").await, "1");
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
