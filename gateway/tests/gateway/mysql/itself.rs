//! MySQL itself, of the version 5.6 that npm has: what MariaDB does in its own way is done in MySQL's here. It does not
//! tell which of its threads serves a connection, so costs are estimated.

use mysql_async::prelude::Queryable as _;
use mysql_async::{ChangeUserOpts, Conn};
use tempfile::TempDir;
use tidegate_controller::Running;
use tidegate_gateway::Gateway;
use tidegate_tests::servers::{MySql, ROOT};
use tokio::task::spawn_blocking;

use super::passed::SCRIPT;
use super::stage::{self, error, is_in, login, value};
use crate::common::{self, eventually};
use crate::drivers;

/// MySQL with the user `ann` and tables for the sequences that MariaDB has of its own, and a gateway before it.
struct Stage {
    server: MySql,
    gateway: Gateway,
    _controller: Running,
    _folder: TempDir,
}

impl Stage {
    async fn new() -> Self {
        let server = spawn_blocking(MySql::start).await.unwrap().unwrap();
        let digits = "(select 0 as d union select 1 union select 2 union select 3 union select 4
            union select 5 union select 6 union select 7 union select 8 union select 9)";
        let all = format!(
            "create database shop default charset utf8mb4; create database other;
             create user ann identified by 'ann'; grant all on shop.* to ann; grant all on other.* to ann;
             create table shop.seq_1_to_100000 (seq bigint primary key);
             insert into shop.seq_1_to_100000
             select 1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d
             from {digits} a, {digits} b, {digits} c, {digits} d, {digits} e;
             create table shop.seq_1_to_50000 as select seq from shop.seq_1_to_100000 where seq <= 50000;
             create table shop.seq_1_to_20000 as select seq from shop.seq_1_to_100000 where seq <= 20000"
        );
        server.root(&all).unwrap();
        let (controller, folder) = common::controller().await;
        let gateway = stage::gateway(&controller, &server.upstream(), |_| {}).await;
        Self { server, gateway, _controller: controller, _folder: folder }
    }

    fn port(&self) -> u16 {
        self.gateway.addresses[0].port()
    }

    async fn session(&self, of: (&str, &str)) -> Conn {
        login(self.port(), "shop", of).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_clients_get_what_they_get_without_the_gateway() {
    let stage = Stage::new().await;
    drop(stage.session(("ann", "ann")).await);
    let (direct, through) = (stage.server.port(), stage.port());
    let said = [direct, through].map(|port| stage::script(port, SCRIPT.as_bytes()));
    assert!(said[0].len() > 20_000_000, "{} bytes", said[0].len());
    common::same(&said[0], &said[1]);
    drivers::of_mysql(direct, through);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_statements_are_governed() {
    let stage = Stage::new().await;
    let (mut admin, mut ann) = (stage.session(ROOT).await, stage.session(("ann", "ann")).await);
    let version = value::<String>(&mut ann, "select version()").await;
    assert!(version.starts_with("5.6."), "{version}");
    let told: Vec<(String, f64, String)> = ann.query("explain ru select 1").await.unwrap();
    assert!(told[4].2.contains("in group default, estimated"), "{told:?}");
    let asks = ann.prep("select current_resource_group()").await.unwrap();
    assert_eq!(ann.exec_first::<String, _, _>(&asks, ()).await.unwrap().as_deref(), Some("default"));
    // A session is made new in the older way, by logging in again.
    ann.query_drop("set @mine = 1").await.unwrap();
    assert!(!ann.reset().await.unwrap());
    ann.change_user(ChangeUserOpts::default()).await.unwrap();
    assert_eq!(value::<Option<u32>>(&mut ann, "select @mine").await, None);
    admin
        .query_drop("create resource group strict ru_per_sec = 100000 query_limit = (exec_elapsed = '300ms', action = kill)")
        .await
        .unwrap();
    admin.query_drop("alter user ann resource group strict").await.unwrap();
    is_in(&mut ann, "strict").await;
    eventually("the rule is known", async || {
        ann.query_drop("select sleep(1)").await.is_err_and(|error| error.to_string().contains("8253"))
    })
    .await;
    let long = "select count(*) from seq_1_to_100000 a, seq_1_to_100000 b where a.seq <> b.seq";
    assert_eq!(error(ann.query_drop(long).await).0, 8253);
    assert_eq!(error(ann.query_drop("select benchmark(2000000000, md5('x'))").await).0, 8253);
    // MySQL tells of these by their value alone that they were interrupted, and the client by the error.
    assert_eq!(error(ann.query_drop("select sleep(30)").await).0, 8253);
    assert_eq!(error(ann.exec_drop("select sleep(?)", (30,)).await).0, 8253);
    assert_eq!(value::<u32>(&mut ann, "select 40 + 2").await, 42);
    let left = "select count(*) from information_schema.processlist where user = 'ann' and command = 'Query'";
    assert_eq!(value::<u32>(&mut admin, left).await, 0);
    // And an empty group refuses.
    admin.query_drop("create resource group tiny ru_per_sec = 0.5").await.unwrap();
    admin.query_drop("alter user ann resource group tiny").await.unwrap();
    is_in(&mut ann, "tiny").await;
    eventually("it is refused", async || {
        let many = ann.query_drop("select a.seq from seq_1_to_50000 a").await;
        many.is_err_and(|error| error.to_string().contains("8252"))
    })
    .await;
}
