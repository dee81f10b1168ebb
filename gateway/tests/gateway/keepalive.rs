//! Peers that are gone without a goodbye: the kernel asks whether they are there.

use std::time::Duration;

use tokio::task::block_in_place;

use crate::common::eventually;
use crate::drivers::{output, python};
use crate::{mysql, postgres};

/// Longer than no silence, shorter than every default.
const SILENCE: Duration = Duration::from_secs(7);

/// One end of a connection on this machine, as `/proc/net/tcp` shows it.
struct End {
    local: u16,
    remote: u16,
    /// Until the kernel asks the other end; `None` when it does not.
    asks_in: Option<Duration>,
}

/// All ends of established connections.
fn ends() -> Vec<End> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let end = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let port = |at: usize| u16::from_str_radix(fields[at].rsplit_once(':').unwrap().1, 16).unwrap();
        // 02 is the timer of keepalive, counted in hundredths of a second.
        let asks_in = fields[5].strip_prefix("02:").map(|ticks| u64::from_str_radix(ticks, 16).unwrap());
        let asks_in = asks_in.map(|ticks| Duration::from_millis(10 * ticks));
        (fields[3] == "01").then(|| End { local: port(1), remote: port(2), asks_in })
    };
    table.lines().skip(1).filter_map(end).collect()
}

/// Both of a session's connections are asked about: the client's, at the gateway's port, and that to the server.
async fn both_are_asked(gateway: u16, server: u16) {
    let asked = |end: &End| end.asks_in.is_some_and(|left| left <= SILENCE);
    eventually("both connections are asked about", async || {
        let ends = ends();
        let clients: Vec<&End> = ends.iter().filter(|end| end.local == gateway).collect();
        let servers: Vec<&End> = ends.iter().filter(|end| end.remote == server).collect();
        assert!(!clients.is_empty() && !servers.is_empty());
        clients.into_iter().chain(servers).all(asked)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_peers_are_asked_on_both_sides() {
    let stage = postgres::stage::Stage::with(|config| config.keepalive = SILENCE).await;
    let ann = stage.ann().await;
    both_are_asked(stage.port(), stage.postgres.port()).await;
    drop(ann);
    let stage = mysql::stage::Stage::with(|config| config.keepalive = SILENCE).await;
    // The gateway's own connection is one of those to the server.
    let ann = stage.ann().await;
    both_are_asked(stage.port(), stage.server.port()).await;
    drop(ann);
}

/// Logs in as ann and drops its connection without a word, as a machine does that loses its power.
fn vanish(protocol: &str, port: u16) {
    let mut client = python("vanish.py");
    client.args([protocol, &port.to_string()]);
    let said = block_in_place(|| output(client));
    assert_eq!(said.trim(), "vanished", "run this as root or with the capability CAP_NET_ADMIN");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_without_a_word_gives_its_places_back() {
    let soon = Duration::from_secs(1);
    let stage = postgres::stage::Stage::with(|config| config.keepalive = soon).await;
    vanish("postgres", stage.port());
    let root = stage.direct().await;
    let left = "select count(*) from pg_stat_activity where usename = 'ann'";
    eventually("its backend is gone", async || postgres::stage::value(&root, left).await == "0").await;
    let stage = mysql::stage::Stage::with(|config| config.keepalive = soon).await;
    vanish("mysql", stage.port());
    let mut root = mysql::stage::login(stage.server.port(), "shop", tidegate_test_servers::ROOT).await;
    let left = "select count(*) from information_schema.processlist where user = 'ann'";
    eventually("its thread is gone", async || mysql::stage::value::<u32>(&mut root, left).await == 0).await;
}
