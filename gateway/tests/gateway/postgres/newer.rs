//! A newer PostgreSQL than Debian's, from npm, and its newer protocol, with the client library that came with it.

use std::path::Path;
use std::process::Command;

use tidegate_test_servers::{Postgres, ROOT};

use super::stage::login;
use super::tls::Stage;
use crate::common::eventually;
use crate::drivers::{self, python_with};
use crate::ways::{PLAIN, TLS};

/// Psycopg 3 with its own libpq.
fn newest(authority: &Path) -> Command {
    let mut newest = python_with("newer.py", "psycopg_binary");
    newest.arg(authority);
    newest
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_postgresql_18_see_the_same() {
    let stage = Stage::of(Postgres::newer).await;
    let [plain, secured] = [PLAIN, TLS].map(|way| stage.gateway.addresses[way].port());
    let ann = login(plain, "shop", ("ann", "ann")).await;
    let version: String = ann.query_one("show server_version", &[]).await.unwrap().get(0);
    assert!(version.starts_with("18."), "{version}");
    let direct = stage.postgres.port();
    let authority = stage.certificates.authority();
    for through in [plain, secured] {
        drivers::same(direct, through, 42, || newest(&authority));
    }
    drivers::of_postgresql(direct, plain);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_postgresql_18_are_counted_by_the_kernel_and_governed() {
    let stage = Stage::of(Postgres::newer).await;
    let port = stage.gateway.addresses[PLAIN].port();
    let ann = login(port, "shop", ("ann", "ann")).await;
    let admin = login(port, "postgres", ROOT).await;
    let told = ann.query("explain ru select count(*) from generate_series(1, 200000)", &[]).await.unwrap();
    let total: String = told[4].get("used");
    assert!(total.contains("counted by the kernel"), "{total}");
    let limit = "query_limit = (exec_elapsed = '300ms', action = kill)";
    admin.batch_execute(&format!("create resource group strict ru_per_sec = 100000 {limit}")).await.unwrap();
    admin.batch_execute("alter user ann resource group strict").await.unwrap();
    eventually("a runaway is killed", async || {
        let told = ann.batch_execute("select pg_sleep(2)").await;
        told.is_err_and(|error| {
            error.as_db_error().is_some_and(|error| error.message().contains("resource group strict"))
        })
    })
    .await;
    assert_eq!(ann.query_one("select 40 + 2", &[]).await.unwrap().get::<_, i32>(0), 42);
}
