//! A cap bites inside one statement: a large result comes as fast as its group pays for it, and no other session is
//! slower.

use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use mysql_async::prelude::Queryable as _;
use tokio::time::{Instant, timeout};

use crate::common::eventually;
use crate::{mysql, postgres};

/// Of the group, in RU/s: 4 MiB of a result each second, and less by what its CPU costs.
const RATE: u64 = 64;
/// Bytes that one RU pays for on their way to the client.
const BYTES: u64 = 65_536;
/// How long the result is taken, from its first byte.
const TAKEN: Duration = Duration::from_secs(4);

/// What may be received in that time: what is paid for, a second's worth that the group had, what passes between two
/// looks, and what is on its way in the buffers of both sides.
fn most(taken: Duration) -> u64 {
    let paid = u64::try_from(taken.as_millis()).unwrap() * RATE * BYTES / 1_000;
    paid + RATE * BYTES + 3 * 1_048_576
}

/// Takes a result, in lengths of rows, and meanwhile has a neighbour ask: the one flows and is held, the other is not.
async fn is_held(rows: impl Stream<Item = usize>, mut ask: impl AsyncFnMut()) {
    let (mut rows, began) = (pin!(rows), Instant::now());
    let taking = async {
        let mut received = 0;
        while let Ok(Some(row)) = timeout(TAKEN.saturating_sub(began.elapsed()), rows.next()).await {
            received += u64::try_from(row).unwrap();
        }
        (received, began.elapsed())
    };
    let asking = async {
        let mut slowest = Duration::ZERO;
        while began.elapsed() < TAKEN {
            let asked = Instant::now();
            ask().await;
            slowest = slowest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        slowest
    };
    let ((received, taken), slowest) = tokio::join!(taking, asking);
    assert!(received <= most(taken), "{received} bytes in {taken:?}, at most {}", most(taken));
    assert!(received >= 2 * 1_048_576, "only {received} bytes in {taken:?}");
    assert!(slowest < Duration::from_secs(1), "a neighbour waited for {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_of_postgresql_comes_as_fast_as_it_is_paid_for() {
    let stage = postgres::stage::Stage::new().await;
    let (admin, ann, other) = (stage.admin().await, stage.ann().await, stage.admin().await);
    admin.batch_execute(&format!("create resource group slow ru_per_sec = {RATE}")).await.unwrap();
    admin.batch_execute("alter user ann resource group slow").await.unwrap();
    postgres::stage::is_in(&ann, "slow").await;
    eventually("it has its lease", async || ann.simple_query("select 1").await.is_ok()).await;
    let rows = "copy (select repeat('x', 10000) from generate_series(1, 10000)) to stdout";
    let rows = ann.copy_out(rows).await.unwrap().map(|row| row.unwrap().len());
    is_held(rows, async || drop(other.simple_query("select 1").await.unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_of_mysql_comes_as_fast_as_it_is_paid_for() {
    let stage = mysql::stage::Stage::new().await;
    let (mut admin, mut ann, mut other) = (stage.admin().await, stage.ann().await, stage.admin().await);
    admin.query_drop(format!("create resource group slow ru_per_sec = {RATE}")).await.unwrap();
    admin.query_drop("alter user ann resource group slow").await.unwrap();
    mysql::stage::is_in(&mut ann, "slow").await;
    eventually("it has its lease", async || ann.query_drop("select 1").await.is_ok()).await;
    let rows = ann.query_stream::<Vec<u8>, _>("select repeat('x', 10000) from seq_1_to_10000").await.unwrap();
    is_held(rows.map(|row| row.unwrap().len()), async || other.query_drop("select 1").await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cost_more_than_its_group_has_in_an_hour_comes_all_the_same() {
    let stage = postgres::stage::Stage::new().await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    admin.batch_execute("create resource group poor ru_per_sec = 0.1 max_wait = '1s'").await.unwrap();
    admin.batch_execute("alter user ann resource group poor").await.unwrap();
    postgres::stage::is_in(&ann, "poor").await;
    // It is written to a file on its way, so that it costs thousands of RU.
    let dear = "select count(*) from generate_series(1, 500000)";
    let began = Instant::now();
    eventually("the group has its first tokens", async || ann.simple_query(dear).await.is_ok()).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let refused = ann.simple_query("select 1").await.unwrap_err();
    let (told, hint) = refused.as_db_error().map(|error| (error.message(), error.hint().unwrap())).unwrap();
    let owed = told.strip_prefix("resource group poor is out of request units: it owes ").expect(told);
    let owed: f64 = owed.split(' ').next().unwrap().parse().unwrap();
    // However the tokens for the next statement come, the error says when the debt is paid; at most an hour.
    let after: f64 =
        hint.strip_prefix("Retry after ").and_then(|hint| hint.strip_suffix(" s.")).unwrap().parse().unwrap();
    assert!(after > (owed / 0.1 * 0.9).min(3_500.0), "it owes {owed}, and {hint}");
}
