//! MySQL itself: what MariaDB does in its own way is done in MySQL's here.

mod logins;
mod newest;
mod old;

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tempfile::TempDir;
use tidegate_controller::Running;
use tidegate_gateway::{Config, Gateway};
use tidegate_test_servers::{MySql, ServerError};
use tokio::task::spawn_blocking;

use super::stage::{self, error, is_in, login, value};
use crate::common::{self, eventually};

/// How long statements wait for the first lease of their group, on a busy machine, too.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// MySQL with the user `ann` and tables for the sequences that MariaDB has of its own, and a gateway before it.
struct Stage {
    server: MySql,
    gateway: Gateway,
    controller: Running,
    _folder: TempDir,
}

impl Stage {
    async fn of(start: fn() -> Result<MySql, ServerError>) -> Self {
        let server = spawn_blocking(start).await.unwrap().unwrap();
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
        let patient = |config: &mut Config| config.policy.max_wait = MAX_WAIT;
        let gateway = stage::gateway(&controller, &server.upstream(), patient).await;
        Self { server, gateway, controller, _folder: folder }
    }

    /// One more gateway.
    async fn gateway(&self, identity: &str, change: impl FnOnce(&mut Config)) -> Gateway {
        let change = |config: &mut Config| {
            config.identity = identity.to_owned();
            config.policy.max_wait = MAX_WAIT;
            change(config);
        };
        stage::gateway(&self.controller, &self.server.upstream(), change).await
    }

    fn port(&self) -> u16 {
        self.gateway.addresses[0].port()
    }

    async fn session(&self, of: (&str, &str)) -> Conn {
        login(self.port(), "shop", of).await
    }
}

/// Whether ann's statements end as runaways, however they run away, and are refused for want of tokens.
async fn are_governed(admin: &mut Conn, ann: &mut Conn) {
    admin
        .query_drop("create resource group strict ru_per_sec = 100000 query_limit = (exec_elapsed = '300ms', action = kill)")
        .await
        .unwrap();
    admin.query_drop("alter user ann resource group strict").await.unwrap();
    is_in(ann, "strict").await;
    eventually("the rule is known", async || {
        ann.query_drop("select sleep(1)").await.is_err_and(|error| error.to_string().contains("8253"))
    })
    .await;
    let long = "select count(*) from seq_1_to_100000 a, seq_1_to_100000 b where a.seq <> b.seq";
    assert_eq!(error(ann.query_drop(long).await).0, 8253);
    assert_eq!(error(ann.query_drop("select benchmark(2000000000, sha2('x', 256))").await).0, 8253);
    // MySQL shows only by their value that these were interrupted; the client gets the error.
    assert_eq!(error(ann.query_drop("select sleep(30)").await).0, 8253);
    assert_eq!(error(ann.exec_drop("select sleep(?)", (30,)).await).0, 8253);
    assert_eq!(value::<u32>(ann, "select 40 + 2").await, 42);
    let left = "select count(*) from information_schema.processlist where user = 'ann' and command = 'Query'";
    assert_eq!(value::<u32>(admin, left).await, 0);
    // And an empty group refuses.
    admin.query_drop("create resource group tiny ru_per_sec = 0.5 max_wait = '700ms'").await.unwrap();
    admin.query_drop("alter user ann resource group tiny").await.unwrap();
    is_in(ann, "tiny").await;
    eventually("it is refused", async || {
        let many = ann.query_drop("select a.seq from seq_1_to_50000 a").await;
        many.is_err_and(|error| error.to_string().contains("8252"))
    })
    .await;
}
