//! The newest version, which `./tests/mysql` unpacks.

use std::process::Command;

use mysql_async::prelude::Queryable as _;
use tidegate_gateway::{Config, MetricsPage};
use tidegate_test_servers::{MySql, ROOT};
use tokio::task::block_in_place;

use super::super::passed::SCRIPT;
use super::super::runaways::one_that_no_kill_reaches_loses_its_session;
use super::super::shares::{beside, is_counted, spill};
use super::super::stage::{error, is_in, login, value};
use super::super::warnings::{one, warnings};
use super::{Stage, are_governed};
use crate::common::{self, eventually};
use crate::drivers::{self, python_with};

/// What MariaDB has not, or has otherwise.
const MORE: &str = "
select json_object('a', 1, 'b', cast('[1, \"ä\"]' as json)), json_arrayagg(seq) from seq_1_to_20000 where seq < 5;
values row(1, 'a'), row(2, null);
with recursive n (i) as (select 1 union all select i + 1 from n where i < 5) select i, sum(i) over (order by i) from n;
select string_to_vector('[1, 2.5]'), st_astext(point(1, 2)), uuid_to_bin('6ccd780c-baba-1026-9564-5b8c656024db');
query_attributes who ann
select 1 as attributed;
set session_track_transaction_info = 'CHARACTERISTICS', session_track_state_change = on;
start transaction read only; select 1; commit;
prepare s from 'select ? + 1'; set @a = 4; execute s using @a;
resetconnection
select @a, database();
execute s using @a;
xa start 'x'; xa end 'x'; xa rollback 'x';
";

/// Its own client, as ann at this port.
pub(super) fn client(port: u16) -> Command {
    let mut client = MySql::client().unwrap();
    client.args(["-h127.0.0.1", "-uann", "-pann", "--max-allowed-packet=64M", &format!("-P{port}")]);
    client
}

/// MySQL Connector/Python, speaking the protocol itself or by MySQL's C library.
fn connector(way: &str, tls: &str) -> Command {
    let mut connector = python_with("connector.py", "mysql/connector");
    connector.args([way, tls]);
    connector
}

#[tokio::test(flavor = "multi_thread")]
async fn its_clients_get_what_they_get_without_the_gateway() {
    let stage = Stage::of(MySql::newest).await;
    // From now on the server knows the password, which not every driver here may send.
    drop(stage.session(("ann", "ann")).await);
    let (direct, through) = (stage.server.port(), stage.port());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "Linux\n").unwrap();
    let script = SCRIPT.replace("/proc/sys/kernel/ostype", &file.path().display().to_string()) + MORE;
    let said = [direct, through].map(|port| {
        let mut client = client(port);
        client.args(["--commands", "--local-infile=1", "--force", "-t", "--column-type-info", "shop"]);
        block_in_place(|| common::says(&mut client, script.as_bytes()))
    });
    assert!(said[0].len() > 20_000_000, "{} bytes", said[0].len());
    common::same(&said[0], &said[1]);
    drivers::of_mysql(direct, through);
    for (way, tls) in [("pure", "plain"), ("native", "tls")] {
        drivers::same(direct, through, 28, || connector(way, tls));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_statements_are_counted_by_the_kernel_and_governed() {
    let stage = Stage::of(MySql::newest).await;
    let (mut admin, mut ann) = (stage.session(ROOT).await, stage.session(("ann", "ann")).await);
    let version = value::<String>(&mut ann, "select version()").await;
    let (major, _) = version.split_once('.').unwrap();
    assert!(major.parse::<u32>().unwrap() >= 9, "{version}");
    eventually("the counters are found", async || {
        let told: Vec<(String, f64, String)> = ann.query("explain ru select 1").await.unwrap();
        told[4].2.contains("in group default, counted by the kernel")
    })
    .await;
    let heavy = "explain ru select count(*) from seq_1_to_20000 a, seq_1_to_20000 b
        where a.seq <= 300 and a.seq <> b.seq";
    let told: Vec<(String, f64, String)> = ann.query(heavy).await.unwrap();
    assert!(told[0].1 > 10.0 && told[4].2.contains("counted by the kernel"), "{told:?}");
    let asks = ann.prep("select current_resource_group()").await.unwrap();
    assert_eq!(ann.exec_first::<String, _, _>(&asks, ()).await.unwrap().as_deref(), Some("default"));
    ann.query_drop("set @mine = 1").await.unwrap();
    assert!(ann.reset().await.unwrap());
    assert_eq!(value::<Option<u32>>(&mut ann, "select @mine").await, None);
    are_governed(&mut admin, &mut ann).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_that_no_kill_reaches_loses_its_session() {
    let stage = Stage::of(|| MySql::newest_with(&["--secure-file-priv="])).await;
    stage.server.root("grant file on *.* to ann").unwrap();
    let (mut admin, mut ann) = (stage.session(ROOT).await, stage.session(("ann", "ann")).await);
    let rule = "query_limit = (exec_elapsed = '300ms', action = kill)";
    admin.query_drop(format!("create resource group strict ru_per_sec = 100000 {rule}")).await.unwrap();
    admin.query_drop("alter user ann resource group strict").await.unwrap();
    is_in(&mut ann, "strict").await;
    eventually("the rule is known", async || ann.query_drop("select sleep(1)").await.is_err()).await;
    one_that_no_kill_reaches_loses_its_session(&mut admin, ann).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_about_warnings_that_is_not_prepared_leaves_the_servers_error() {
    let stage = Stage::of(MySql::newest).await;
    let admin = &mut stage.session(ROOT).await;
    for question in ["show warnings", "select @@warning_count"] {
        admin.query_drop("drop resource group if exists nothing").await.unwrap();
        assert_eq!(warnings(admin).await, one("Note", 8249));
        // ER_UNSUPPORTED_PS
        assert_eq!(error(admin.prep(question).await).0, 1295);
        assert_eq!(warnings(admin).await, one("Error", 1295));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_commits_beside_a_bulk_load_pays_for_its_own_log_only() {
    let stage = Stage::of(|| MySql::newest_with(&["--innodb-flush-log-at-trx-commit=1"])).await;
    let page = |config: &mut Config| config.metrics = Some(MetricsPage::at("127.0.0.1:0".parse().unwrap()));
    let gateway = stage.gateway("counting", page).await;
    let port = gateway.addresses[0].port();
    let mut root = stage.session(ROOT).await;
    let sessions = [login(port, "shop", ("ann", "ann")).await, login(port, "shop", ROOT).await];
    let mut threads = [String::new(), String::new()];
    for (session, thread) in sessions.iter().zip(&mut threads) {
        let of = format!(
            "select thread_os_id from performance_schema.threads where processlist_id = {}",
            session.id()
        );
        *thread = format!("{}/task/{}", stage.server.pid(), value::<u32>(&mut root, &of).await);
    }
    let [small, bulk] = sessions;
    let load = "insert into big select a.seq * 100000 + b.seq, sha2(b.seq, 256)
        from seq_1_to_20000 b join seq_1_to_100000 a on a.seq <= 20";
    beside(&gateway, small, bulk, load, threads).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_spilled_to_temporary_files_costs_no_replicated_writes() {
    let stage = Stage::of(MySql::newest).await;
    let mut ann = stage.session(("ann", "ann")).await;
    is_counted(&mut ann).await;
    // Small buffers, so that both go to files as in a larger database.
    ann.query_drop("set sort_buffer_size = 65536, tmp_table_size = 1048576").await.unwrap();
    let many = "(select sha2(a.seq + b.seq * 1000000, 256) t from seq_1_to_100000 a join seq_1_to_100000 b on b.seq <= 8) q";
    let sorted = format!("select count(*) from (select t from {many} order by t limit 10000000) s");
    let grouped = format!("select count(*) from (select t, count(*) from {many} group by t) g");
    spill(&mut ann, [&sorted, &grouped]).await;
}
