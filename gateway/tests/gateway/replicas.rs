//! Servers that follow another through the gateway: one long statement, charged as it goes on.

use std::process::Command;
use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tidegate_gateway::Config;
use tidegate_test_servers::{MariaDb, MySql, Postgres, ROOT};
use tokio::task::{block_in_place, spawn_blocking};

use crate::common::{self, eventually};
use crate::mysql::stage::{Stage, gateway, login, used, value};
use crate::postgres;

/// More than a packet of MySQL's protocol holds.
const LARGE: usize = 17_000_000;

/// Fewer request units than so many bytes on the wire cost.
const LARGE_RU: f64 = 100.0;

const MARIADB: [&str; 2] = ["--log-bin=bin", "--binlog-format=row"];
const MYSQL: [&str; 3] = ["--log-bin=bin", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"];

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_of_postgresql_follows() {
    let stage = postgres::stage::Stage::made(&["wal_level=logical"], |_| {}).await;
    let (admin, source) = (stage.admin().await, stage.direct().await);
    source.batch_execute("create user copier superuser password 'copier'").await.unwrap();
    admin.batch_execute("create resource group copies ru_per_sec = 100000").await.unwrap();
    admin.batch_execute("alter user copier resource group copies").await.unwrap();
    let table = "create table t (id int primary key, b text)";
    source.batch_execute(table).await.unwrap();
    let early = "insert into t values (1, 'early'); create publication p for table t";
    source.batch_execute(early).await.unwrap();

    let other = block_in_place(|| Postgres::start(&[])).unwrap();
    let replica = postgres::stage::login(other.port(), "postgres", ROOT).await;
    replica.batch_execute(table).await.unwrap();
    let subscribe = format!(
        "create subscription s connection
         'host=127.0.0.1 port={} user=copier password=copier dbname=postgres' publication p",
        stage.port()
    );
    replica.batch_execute(&subscribe).await.unwrap();
    let content = "select count(*) || md5(string_agg(b, ',' order by id)) from t";
    for change in [
        "insert into t values (2, 'late')".to_owned(),
        format!("insert into t values (3, repeat('x', {LARGE})); delete from t where id = 2"),
    ] {
        source.batch_execute(&change).await.unwrap();
        let wanted = postgres::stage::value(&source, content).await;
        eventually("the subscriber has it", async || {
            postgres::stage::value(&replica, content).await == wanted
        })
        .await;
    }
    eventually("it is charged while it goes on", async || {
        postgres::stage::used(&admin, "copies").await > LARGE_RU
    })
    .await;
    let streams = "select count(*) from pg_stat_replication where state = 'streaming'";
    assert_eq!(postgres::stage::value(&source, streams).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_of_mariadb_follows_and_acknowledges() {
    let options = [&MARIADB[..], &["--server-id=1", "--rpl-semi-sync-master-timeout=60000"]].concat();
    let stage = Stage::made(&options, MariaDb::upstream, |_| {}).await;
    let mut source = login(stage.server.port(), "shop", ROOT).await;
    source.query_drop("reset master").await.unwrap();
    let options = [&MARIADB[..], &["--server-id=2", "--rpl-semi-sync-slave-enabled=1"]].concat();
    let other = block_in_place(|| MariaDb::start(&options)).unwrap();
    let mut replica = login(other.port(), "mysql", ROOT).await;
    let change = format!(
        "change master to master_host = '127.0.0.1', master_port = {}, master_user = 'copier',
         master_password = 'copier', master_connect_retry = 1, master_use_gtid = slave_pos",
        stage.port()
    );
    copies(&mut source, &mut stage.admin().await).await;
    replica.query_drop(change).await.unwrap();
    source.query_drop("set global rpl_semi_sync_master_enabled = 1").await.unwrap();
    replica.query_drop("start slave").await.unwrap();
    follows(&mut source, &mut replica).await;
    is_charged(&mut stage.admin().await).await;
    let acknowledged = "select variable_value from information_schema.global_status
        where variable_name = 'rpl_semi_sync_master_yes_tx'";
    assert!(value::<String>(&mut source, acknowledged).await.parse::<u32>().unwrap() > 0);
    let [direct, through] = [stage.server.port(), stage.port()].map(|port| block_in_place(|| log(port)));
    assert!(direct.len() > LARGE, "{} bytes", direct.len());
    common::same(&direct, &through);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_of_mysql_follows_under_tls() {
    let [server, other] = ["--server-id=1", "--server-id=2"].map(|id| {
        let options = [&MYSQL[..], &[id]].concat();
        spawn_blocking(move || MySql::newest_with(&options))
    });
    let (server, other) = (server.await.unwrap().unwrap(), other.await.unwrap().unwrap());
    server.root("reset binary logs and gtids").unwrap();
    let (controller, _folder) = common::controller().await;
    let patient = |config: &mut Config| config.policy.max_wait = Duration::from_secs(60);
    let gateway = gateway(&controller, &server.upstream(), patient).await;
    let port = gateway.addresses[0].port();
    let mut source = login(server.port(), "mysql", ROOT).await;
    let mut replica = login(other.port(), "mysql", ROOT).await;
    let mut admin = login(port, "mysql", ROOT).await;
    copies(&mut source, &mut admin).await;
    let change = format!(
        "change replication source to source_host = '127.0.0.1', source_port = {port}, source_user = 'copier',
         source_password = 'copier', source_connect_retry = 1, source_ssl = 1, source_auto_position = 1"
    );
    replica.query_drop(change).await.unwrap();
    replica.query_drop("start replica").await.unwrap();
    follows(&mut source, &mut replica).await;
    is_charged(&mut admin).await;
}

/// A user that may replicate, in a group of its own.
async fn copies(source: &mut Conn, admin: &mut Conn) {
    source.query_drop("create user copier identified by 'copier'").await.unwrap();
    source.query_drop("grant replication slave on *.* to copier").await.unwrap();
    admin.query_drop("create resource group copies ru_per_sec = 100000").await.unwrap();
    admin.query_drop("alter user copier resource group copies").await.unwrap();
}

/// Whether the replica comes to have what the source has, small and large.
async fn follows(source: &mut Conn, replica: &mut Conn) {
    source.query_drop("create database copied").await.unwrap();
    source.query_drop("create table copied.t (id int primary key, b longblob)").await.unwrap();
    let content = "select concat(count(*), group_concat(sha2(b, 256) order by id)) from copied.t";
    for (number, b) in
        [(1, "'early'".to_owned()), (2, format!("repeat('x', {LARGE})")), (3, "'late'".to_owned())]
    {
        source.query_drop(format!("insert into copied.t values ({number}, {b})")).await.unwrap();
        let wanted: String = value(source, content).await;
        eventually("the replica has it", async || {
            let has = replica.query_first::<Option<String>, _>(content).await;
            has.is_ok_and(|has| has == Some(Some(wanted.clone())))
        })
        .await;
    }
}

async fn is_charged(admin: &mut Conn) {
    eventually("it is charged while it goes on", async || used(admin, "copies").await > LARGE_RU).await;
}

/// The log of a server, as its own client reads it.
fn log(port: u16) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut reads = Command::new("mariadb-binlog");
    reads.args(["--no-defaults", "-h127.0.0.1", &format!("-P{port}"), "-ucopier", "-pcopier"]);
    reads.args(["--read-from-remote-server", "--raw", "--to-last-log", "bin.000001"]);
    reads.arg(format!("--result-file={}/", folder.path().display()));
    let said = common::says(&mut reads, b"");
    let log = std::fs::read(folder.path().join("bin.000001"));
    log.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&said)))
}
