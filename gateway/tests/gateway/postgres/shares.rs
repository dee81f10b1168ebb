//! No session is charged for what others wrote: the kernel counts who called `write`, not whose bytes these are.

use tidegate_gateway::{Gateway, MetricsPage};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::stage::{Stage, login, value};
use crate::kernel::{bytes, unowned, written};
use tidegate_test_servers::ROOT;

/// With a page of counters.
async fn stage(settings: &[&str]) -> Stage {
    let settings = [&["autovacuum=off", "checkpoint_timeout=1h"], settings].concat();
    Stage::made(&settings, |config| config.metrics = Some(MetricsPage::at("127.0.0.1:0".parse().unwrap())))
        .await
}

/// What a statement cost: RU and use of CPU, reads and writes.
async fn cost(session: &Client, sql: &str) -> [(f64, String); 3] {
    let told = session.simple_query(&format!("explain ru {sql}")).await.unwrap();
    let mut rows = told.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((row.get(1).unwrap().parse().unwrap(), row.get(2).unwrap().to_owned()))
        }
        _ => None,
    });
    std::array::from_fn(|_| rows.next().unwrap())
}

/// Bytes written that a statement is charged for.
async fn charged(session: &Client, sql: &str) -> u64 {
    bytes(&cost(session, sql).await[2].1)
}

/// The server's process behind a session.
async fn process(session: &Client) -> String {
    value(session, "select pg_backend_pid()").await
}

/// Bytes written so far by the processes of these sessions, and those of them that are charged to no session.
async fn counted(processes: &[String], gateway: &Gateway) -> (u64, u64) {
    (processes.iter().map(written).sum(), unowned(gateway).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_commits_beside_a_bulk_load_pays_for_its_own_log_only_and_the_load_for_the_rest() {
    let stage = stage(&[]).await;
    let (ann, bulk) = (stage.ann().await, login(stage.port(), "shop", ROOT).await);
    ann.batch_execute("create table small (id serial primary key, t text)").await.unwrap();
    bulk.batch_execute("create table big (n bigint primary key, t text)").await.unwrap();
    let insert = "insert into small (t) values ('hello world')";
    for _ in 0..50 {
        charged(&ann, insert).await;
    }
    let processes = [process(&ann).await, process(&bulk).await];
    let (all, nobody) = counted(&processes, &stage.gateway).await;
    let own = written(&processes[0]);
    let load = tokio::spawn(async move {
        let sql = "insert into big select n, md5(n::text) from generate_series(1, 1000000) n";
        (charged(&bulk, sql).await, bulk)
    });
    let (mut calls, mut small, mut most) = (0, 0, 0);
    while !load.is_finished() {
        let bytes = charged(&ann, insert).await;
        (calls, small, most) = (calls + 1, small + bytes, most.max(bytes));
    }
    let (large, _bulk) = load.await.unwrap();
    let own = written(&processes[0]) - own;
    assert!(own > 4 * small.max(1_000_000), "{own} bytes in {calls} calls: nobody else's were among them");
    // A block of the log, the row and what was sent; now and then a page that was read for it.
    assert!(most <= 48 * 1_024 && small <= calls * 10 * 1_024, "{calls} calls, {small} bytes, {most} in one");
    // The load's rows are 470 bytes each, by the kernel's count with no other load.
    assert!(large > 100_000_000, "{large} bytes for the load");
    let (all, nobody) = {
        let (all_now, nobody_now) = counted(&processes, &stage.gateway).await;
        (all_now - all, nobody_now - nobody)
    };
    let sum = small + large + nobody;
    assert!(sum.abs_diff(all) * 20 < all, "{small} + {large} + {nobody} of {all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_pays_for_no_page_that_others_have_changed() {
    let stage = stage(&["shared_buffers=4MB", "bgwriter_lru_maxpages=0"]).await;
    let (ann, other) = (stage.ann().await, login(stage.port(), "shop", ROOT).await);
    let cold = "create table cold as select n, repeat('x', 400) t from generate_series(1, 40000) n;
        create index on cold (n); vacuum analyze cold;
        set enable_seqscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off";
    for statement in cold.split(';') {
        ann.batch_execute(statement).await.unwrap();
    }
    other
        .batch_execute("create table hot as select n, repeat('y', 400) t from generate_series(1, 4000) n")
        .await
        .unwrap();
    let scan = "select max(t) from cold where n > 0";
    ann.batch_execute(scan).await.unwrap();
    let reader = process(&ann).await;
    let (mut counted, mut paid) = (0, 0);
    for _ in 0..5 {
        other.batch_execute("update hot set n = n + 1").await.unwrap();
        let before = written(&reader);
        paid += charged(&ann, scan).await;
        counted += written(&reader) - before;
    }
    assert!(counted > 1_000_000, "{counted} bytes: it wrote out nothing");
    assert_eq!(paid, 0, "of {counted}");
}

/// The server reports the rows of the last query only, of which there is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_changes_rows_before_its_end_or_makes_a_table_pays_for_what_it_writes() {
    let stage = stage(&[]).await;
    let ann = stage.ann().await;
    let process = process(&ann).await;
    let made = "create table big as select n, repeat('x', 500) t from generate_series(1, 40000) n";
    let removes = "with d as (delete from big returning 1) select count(*) from d";
    let copies = "select * into copy from big";
    // Of the log of some a process of the server's own writes most.
    for sql in [removes, copies, removes, copies] {
        ann.batch_execute(&format!("drop table if exists big, copy; {made}")).await.unwrap();
        let before = written(&process);
        let paid = charged(&ann, sql).await;
        let all = written(&process) - before;
        assert!(paid > 0 && paid >= all / 4, "{sql}: {paid} of {all} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_spilled_to_temporary_files_costs_no_replicated_writes() {
    let stage = stage(&["max_parallel_workers_per_gather=0"]).await;
    let ann = stage.ann().await;
    let [_, _, (nothing, _)] =
        cost(&ann, "select count(*) from (select generate_series(1, 4500000)) g").await;
    assert_eq!(nothing, 0.0);
    // Read back whole, and not at all.
    for spills in [
        "select count(*) from generate_series(1, 4500000)",
        "select * from generate_series(1, 4500000) limit 1",
    ] {
        let [_, (read, told), (write, written)] = cost(&ann, spills).await;
        assert!(bytes(&told) > 60_000_000, "{spills}: {told}");
        assert!(write < read / 4.0 && bytes(&written) < 70_000, "{spills}: {write} RU for {written}");
        // 64 KiB for an RU, once written and once read.
        assert!((900.0..2_200.0).contains(&read), "{spills}: {read}");
    }
    // The same before the gateway has looked.
    let [_, _, (write, written)] = cost(&ann, "select * from generate_series(1, 400000) limit 1").await;
    assert!(bytes(&written) < 70_000, "{write} RU for {written}");
    // A file that outlives its statement is not taken for what the next ones write.
    ann.batch_execute("create table t as select 1 n, repeat('x', 400) t").await.unwrap();
    ann.batch_execute(
        "begin; declare c scroll cursor with hold for select n from generate_series(1, 900000) n",
    )
    .await
    .unwrap();
    ann.batch_execute("commit").await.unwrap();
    let load =
        charged(&ann, "insert into t select n, repeat('x', 400) from generate_series(1, 20000) n").await;
    assert!(load > 8_000_000, "{load}");
}
