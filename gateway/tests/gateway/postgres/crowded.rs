//! More clients than the server has room for.

use futures_util::stream::{self, StreamExt as _};
use tidegate_gateway::raise_descriptor_limit;

use super::stage::{Stage, state, try_login, value};
use crate::common::eventually;

/// Of the server, less by those it reserves for superusers.
const ROOM: usize = 40;
const CLIENTS: usize = 2_000;

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_clients_are_let_in_or_told_by_the_server() {
    let most = raise_descriptor_limit();
    assert!(most > 12_000, "{most} descriptors are too few; raise ulimit -n");
    let stage =
        Stage::made(&[&format!("max_connections={ROOM}")], |config| config.max_sessions = CLIENTS).await;
    let port = stage.port();
    let logins = (0..CLIENTS).map(|_| try_login(port, "shop", ("ann", "ann")));
    let answers: Vec<_> = stream::iter(logins).buffer_unordered(200).collect().await;
    let (inside, outside): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert!((1..=ROOM).contains(&inside.len()), "{} are inside", inside.len());
    for refused in outside {
        // The server's own words, not the gateway's.
        let error = refused.as_ref().err().and_then(|error| error.as_db_error()).unwrap();
        let told = error.message();
        assert!(told.contains("too many clients") || told.contains("connection slots"), "{told}");
        assert_eq!(state(refused.map(drop)), "53300");
    }
    for session in inside {
        assert_eq!(value(&session.unwrap(), "select 40 + 2").await, "42");
    }
    eventually("there is room again", async || try_login(port, "shop", ("ann", "ann")).await.is_ok()).await;
    let left = "select count(*) from pg_stat_activity where usename = 'ann'";
    eventually("nobody is left", async || value(&stage.direct().await, left).await == "0").await;
}
