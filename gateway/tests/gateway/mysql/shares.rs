//! No session is charged for what others wrote: one that commits writes out all sessions' log.

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tidegate_gateway::{Gateway, MetricsPage};
use tidegate_test_servers::{MariaDb, ROOT};

use super::stage::{Stage, login};
use crate::common::eventually;
use crate::kernel::{bytes, unowned, written};

/// What a statement cost: RU and use of CPU, reads and writes.
async fn cost(session: &mut Conn, sql: &str) -> [(f64, String); 3] {
    let told: Vec<(String, f64, String)> = session.query(format!("explain ru {sql}")).await.unwrap();
    let mut rows = told.into_iter().map(|(_, ru, used)| (ru, used));
    std::array::from_fn(|_| rows.next().unwrap())
}

/// Bytes written that a statement is charged for.
pub(super) async fn charged(session: &mut Conn, sql: &str) -> u64 {
    bytes(&cost(session, sql).await[2].1)
}

/// Until the server's counters are read for it.
pub(super) async fn is_counted(session: &mut Conn) {
    eventually("the counters are found", async || {
        let told: Vec<(String, f64, String)> = session.query("explain ru select 1").await.unwrap();
        told[4].2.contains("counted by the kernel")
    })
    .await;
}

/// Inserts rows of one session while another loads; `threads` are theirs.
pub(super) async fn beside(
    gateway: &Gateway,
    mut small: Conn,
    mut bulk: Conn,
    load: &str,
    threads: [String; 2],
) {
    for session in [&mut small, &mut bulk] {
        is_counted(session).await;
    }
    small.query_drop("create table small (id int auto_increment primary key, t varchar(80))").await.unwrap();
    bulk.query_drop("create table big (n bigint primary key, t varchar(80))").await.unwrap();
    let insert = "insert into small (t) values ('hello world')";
    let mut alone = 0;
    for _ in 0..50 {
        alone = charged(&mut small, insert).await.max(alone);
    }
    let counted = || threads.iter().map(written).sum::<u64>();
    let (all, own, nobody) = (counted(), written(&threads[0]), unowned(gateway).await);
    let load = load.to_owned();
    let load = tokio::spawn(async move {
        let large = charged(&mut bulk, &load).await;
        (large, bulk)
    });
    let (mut paid, mut most) = (0, 0);
    while !load.is_finished() {
        let bytes = charged(&mut small, insert).await;
        (paid, most) = (paid + bytes, most.max(bytes));
    }
    let (large, _bulk) = load.await.unwrap();
    let own = written(&threads[0]) - own;
    assert!(own > 4 * paid.max(250_000), "{own} bytes, {paid} paid: nobody else's were among them");
    assert!(most <= alone + 1_024, "{most} bytes, alone {alone}");
    let (all, nobody) = (counted() - all, unowned(gateway).await - nobody);
    let sum = paid + large + nobody;
    assert!(sum.abs_diff(all) * 20 < all, "{paid} + {large} + {nobody} of {all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_commits_beside_a_bulk_load_pays_for_its_own_log_only() {
    let options = ["--innodb-flush-log-at-trx-commit=1"];
    let metrics = |config: &mut tidegate_gateway::Config| {
        config.metrics = Some(MetricsPage::at("127.0.0.1:0".parse().unwrap()))
    };
    let stage = Stage::made(&options, MariaDb::upstream, metrics).await;
    let mut sessions = [stage.ann().await, login(stage.port(), "shop", ROOT).await];
    let mut threads = [String::new(), String::new()];
    for (session, thread) in sessions.iter_mut().zip(&mut threads) {
        let id = session.id();
        let of = format!("select tid from information_schema.processlist where id = {id}");
        let tid: u32 = stage.admin().await.query_first(of).await.unwrap().unwrap();
        *thread = format!("{}/task/{tid}", stage.server.pid());
    }
    let [small, bulk] = sessions;
    let load = "insert into big select seq, md5(seq) from seq_1_to_500000";
    beside(&stage.gateway, small, bulk, load, threads).await;
}

/// Runs statements of which each spills to temporary files.
pub(super) async fn spill(session: &mut Conn, statements: [&str; 2]) {
    for spills in statements {
        let [(cpu, _), (_, read), (write, written)] = cost(session, spills).await;
        assert!(bytes(&read) > 8_000_000, "{spills}: {read}");
        assert!(write < cpu && bytes(&written) <= 4_096, "{spills}: {write} RU for {written}, CPU {cpu}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_spilled_to_temporary_files_costs_no_replicated_writes() {
    let stage = Stage::new().await;
    let mut ann = stage.ann().await;
    is_counted(&mut ann).await;
    let sorted =
        "select count(*) from (select seq, md5(seq) t from seq_1_to_700000 order by t limit 10000000) q";
    let grouped = "select count(*) from (select md5(seq) t, count(*) from seq_1_to_300000 group by t) q";
    spill(&mut ann, [sorted, grouped]).await;
}
