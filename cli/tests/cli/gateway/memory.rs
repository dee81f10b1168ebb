//! A large result under a small group: what is not paid for stays with the server, and not in the gateway.

use std::io::Read as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use super::stage::{Stage, begun};
use crate::support::eventually;

const ANN: (&str, &str) = ("ann", "ann");
/// 200 MB each; the group pays for 4 MB in a second.
const POSTGRES: &str = "copy (select repeat('x', 1000) from generate_series(1, 200000)) to stdout;\n";
const MYSQL: &str = "select repeat('x', 1000) from seq_1_to_200000;\n";
const TAKEN: Duration = Duration::from_secs(4);

/// Takes what comes for a while. Returns how many bytes that were.
fn take(client: &mut Command, script: &str) -> u64 {
    let mut child = begun(client, script.as_bytes());
    let mut output = child.stdout.take().unwrap();
    let reader = thread::spawn(move || std::io::copy(&mut output.by_ref(), &mut std::io::sink()).unwrap());
    let began = Instant::now();
    while began.elapsed() < TAKEN && child.try_wait().unwrap().is_none() {
        thread::park_timeout(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn what_a_group_cannot_pay_for_is_not_held_by_the_gateway() {
    let stage = Stage::new(ANN.1, "info");
    stage.controller.ok(&["group", "create", "slow", "--rate", "64"]);
    stage.controller.ok(&["bind", "add", "slow", "--user", "ann"]);
    let group = "select current_resource_group();";
    eventually("ann is in the group", || {
        stage.psql(ANN, group) == "slow\n" && stage.mysql(ANN, group) == "slow\n"
    });
    eventually("it has its lease", || stage.psql(ANN, "select 7;") == "7\n");
    let before = stage.gateway.peak_bytes();
    let (mut psql, mut mariadb) = (stage.psql_client(ANN), stage.mysql_client(ANN));
    mariadb.arg("--quick");
    let other = thread::spawn(move || take(&mut mariadb, MYSQL));
    let taken = take(&mut psql, POSTGRES) + other.join().unwrap();
    assert!((1_000_000..60_000_000).contains(&taken), "{taken} bytes");
    let more = stage.gateway.peak_bytes() - before;
    assert!(more < 16_000_000, "the gateway's memory grew by {more} bytes");
}
