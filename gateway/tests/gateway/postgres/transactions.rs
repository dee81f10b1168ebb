//! Statements inside a transaction: their group owes so much and no more, and no statement waits for ever.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Client;

use super::stage::{Stage, is_in, login, state, used, value};
use crate::common::eventually;
use tidegate_test_servers::ROOT;

/// About one RU, for what is sent.
const STATEMENT: &str = "select repeat('x', 60000)";

/// Puts ann into a group of so many RU/s.
async fn put(stage: &Stage, ann: &Client, ru_per_sec: &str) -> Client {
    let admin = stage.admin().await;
    admin.batch_execute(&format!("create resource group small ru_per_sec = {ru_per_sec}")).await.unwrap();
    admin.batch_execute("alter user ann resource group small").await.unwrap();
    is_in(ann, "small").await;
    admin
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_owes_a_second_of_its_rate_and_then_waits() {
    let stage = Stage::with(|config| config.policy.max_wait = Duration::from_millis(400)).await;
    let ann = stage.ann().await;
    let admin = put(&stage, &ann, "20").await;
    eventually("a transaction is begun", async || ann.batch_execute("begin").await.is_ok()).await;
    let (began, before) = (Instant::now(), used(&admin, "small").await);
    let mut ran = 0;
    while ann.simple_query(STATEMENT).await.is_ok() {
        ran += 1;
        assert!(ran < 500, "nothing waits");
    }
    let elapsed = began.elapsed().as_secs_f64();
    // A burst, a second of debt, what came in meanwhile, and the statement that led beyond.
    eventually("all of it is reported", async || used(&admin, "small").await - before > 0.8 * f64::from(ran))
        .await;
    let charged = used(&admin, "small").await - before;
    let bound = 20.0 + 20.0 + 20.0 * elapsed + 3.0;
    assert!(charged <= bound, "{charged} RU of {bound}, {ran} statements in {elapsed} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_inside_a_transaction_is_told_that_it_goes_on_and_can_end_it() {
    let stage = Stage::with(|config| config.policy.max_wait = Duration::from_millis(400)).await;
    let ann = stage.ann().await;
    let _admin = put(&stage, &ann, "1").await;
    // What a beginning costs, a second pays, be it at half of the rate; what comes next leads to ten seconds of debt.
    eventually("a transaction is begun", async || ann.batch_execute("begin").await.is_ok()).await;
    ann.batch_execute("create table made (a int); select repeat('x', 600000)").await.unwrap();
    ann.simple_query(STATEMENT).await.unwrap_err();
    let refused = ann.simple_query("insert into made values (1)").await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "53400", "{refused:?}");
    assert!(refused.hint().unwrap().contains("COMMIT and ROLLBACK do not wait"), "{refused:?}");
    assert_eq!(state(ann.query("select 1", &[]).await), "53400", "in the extended protocol, too");
    // The refused statement has ended nothing, and the end of the transaction does not wait for tokens.
    ann.batch_execute("commit").await.unwrap();
    assert_eq!(state(ann.batch_execute("begin").await), "53400", "outside it waits like any other");
    assert_eq!(
        value(&login(stage.postgres.port(), "shop", ROOT).await, "select count(*) from made").await,
        "0"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_waits_for_a_lock_of_a_group_in_debt_gets_it() {
    let stage = Stage::with(|config| config.policy.max_wait = Duration::from_secs(60)).await;
    let (ann, other) = (stage.ann().await, stage.ann().await);
    ann.batch_execute("create table t (a int); insert into t values (1)").await.unwrap();
    let admin = put(&stage, &ann, "20").await;
    ann.batch_execute("begin; update t set a = 2").await.unwrap();
    // A statement of another group waits for the row; its user is moved to a group without debt.
    admin.batch_execute("alter user ann resource group default").await.unwrap();
    is_in(&other, "default").await;
    let process = value(&other, "select pg_backend_pid()").await;
    let waiting = tokio::spawn(async move { other.batch_execute("update t set a = a + 1").await });
    eventually("it waits for the row", async || {
        let of = format!("select cardinality(pg_blocking_pids({process})) > 0");
        value(&admin, &of).await == "t"
    })
    .await;
    admin.batch_execute("alter user ann resource group small").await.unwrap();
    is_in(&ann, "small").await;
    // Four seconds of its rate: it waits with the lock, for time and for no other statement.
    for _ in 0..80 {
        ann.simple_query(STATEMENT).await.unwrap();
    }
    assert!(!waiting.is_finished());
    ann.batch_execute("commit").await.unwrap();
    waiting.await.unwrap().unwrap();
    admin.batch_execute("alter user ann resource group default").await.unwrap();
    is_in(&ann, "default").await;
    assert_eq!(value(&ann, "select a from t").await, "3");
}
