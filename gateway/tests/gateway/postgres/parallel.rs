//! Statements that PostgreSQL runs with parallel workers.

use std::path::Path;

use tokio_postgres::Client;

use super::stage::{Stage, value};
use crate::common::eventually;

/// Ends a session, and waits until its process has ended too.
async fn leave(session: Client) {
    let process = format!("/proc/{}", value(&session, "select pg_backend_pid()").await);
    drop(session);
    eventually("its process has ended", async || !Path::new(&process).exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_parallel_workers_use_is_charged_too() {
    let stage = Stage::new().await;
    let root = stage.direct().await;
    // So that nothing else ends meanwhile.
    root.batch_execute("alter system set autovacuum = off").await.unwrap();
    root.batch_execute("select pg_reload_conf()").await.unwrap();
    let ann = stage.ann().await;
    ann.batch_execute("create table big as select n, md5(n::text) t from generate_series(1, 200000) n")
        .await
        .unwrap();
    ann.batch_execute("analyze big").await.unwrap();
    leave(ann).await;
    let before = stage.postgres.cpu_of_ended().unwrap();

    let ann = stage.ann().await;
    let eager =
        "set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0;
        set max_parallel_workers_per_gather = 2";
    ann.batch_execute(eager).await.unwrap();
    let statement = "select count(*) from big where md5(t) like '%abc%'";
    let plan = ann.simple_query(&format!("explain (analyze) {statement}")).await.unwrap();
    assert!(format!("{plan:?}").contains("Workers Launched: 2"), "{plan:?}");
    let mut charged = 0.0;
    for _ in 0..10 {
        let told = ann.query(&format!("explain ru {statement}"), &[]).await.unwrap();
        let used: String = told[0].get("used");
        charged += used.strip_suffix(" ms of CPU").unwrap().parse::<f64>().unwrap();
    }
    leave(ann).await;
    // Ten of eleven executions were explained; the login is charged to no statement.
    let used = (stage.postgres.cpu_of_ended().unwrap() - before).as_secs_f64() * 1e3 * 10.0 / 11.0;
    let share = charged / used;
    // Without the kernel's report of a worker's whole life, the gateway misses what it does after the last look.
    assert!((0.8..1.05).contains(&share), "{charged} ms charged of {used}");
}
