//! Databases that are reached by a Unix socket.

use mysql_async::prelude::Queryable as _;
use tidegate_gateway::Upstream;

use crate::common::eventually;
use crate::{mysql, postgres};

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_behind_postgresql_s_socket_is_counted_by_the_kernel() {
    let stage = postgres::stage::Stage::new().await;
    let upstream = Upstream::parse(&stage.postgres.socket_upstream()).unwrap();
    let gateway = postgres::stage::gateway(&stage.controller, 1, "socket", |config| {
        config.listeners[0].upstream = upstream;
    })
    .await;
    let port = gateway.addresses[0].port();
    let ann = postgres::stage::login(port, "shop", ("ann", "ann")).await;
    let told = ann.simple_query("explain ru select count(*) from generate_series(1, 200000)").await;
    let told = format!("{:?}", told.unwrap());
    assert!(told.contains("counted by the kernel"), "{told}");
    let title = "select count(*) from pg_stat_activity where usename = 'ann' and client_addr is null";
    assert_eq!(postgres::stage::value(&stage.direct().await, title).await, "1", "it came by the socket");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_behind_mariadb_s_socket_is_counted_by_the_kernel() {
    let stage = mysql::stage::Stage::by(|server| server.socket_upstream()).await;
    let mut ann = stage.ann().await;
    // The thread is found while the session goes on already.
    eventually("its counters are found", async || {
        let told: Vec<(String, f64, String)> =
            ann.query("explain ru select count(*) from seq_1_to_1000").await.unwrap();
        told.last().unwrap().2.contains("counted by the kernel")
    })
    .await;
    let host = "select host from information_schema.processlist where id = connection_id()";
    assert_eq!(mysql::stage::value::<String>(&mut ann, host).await, "localhost", "it came by the socket");
}
