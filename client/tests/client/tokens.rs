//! A node that shows a token, with a real controller: what opens its stream, and what ends it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_client::{Client, ClientBuilder, ConnectError, Ru, Token, TokenError};
use tidegate_controller::audit::Actor;
use tidegate_controller::config::{Access, Authentication, Config};
use tidegate_controller::{Controller, Running};
use tidegate_proto::v1;
use tokio::time::Instant;

use crate::fake::eventually;

const PATIENT: Duration = Duration::from_secs(20);

async fn controller(folder: &TempDir) -> Running {
    let access = Access { authentication: Some(Authentication::Required), ..Access::default() };
    let free = "127.0.0.1:0".parse().unwrap();
    let store = folder.path().join("store.redb");
    let config = Config { access, store, grpc_listen: free, http_listen: free, ..Config::default() };
    let running = Controller::start(config).await.unwrap();
    // Leases outlast the test on a slow machine.
    let ttl_us = 60_000_000;
    let group = v1::Group { name: "shop".into(), ru_per_sec: "1000".into(), ttl_us, ..v1::Group::default() };
    running.service().definitions().create_group(&actor(), &group, false).unwrap();
    running
}

fn actor() -> Actor {
    Actor::new(None, "test")
}

/// Makes a token and puts it into a file for its owner only; returns its id.
fn put(running: &Running, path: &Path, role: &str, groups: &[&str]) -> u64 {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let wish =
        v1::CreateTokenRequest { name: "till".into(), role: role.into(), groups, ..Default::default() };
    let (token, secret) = running.service().tokens().create(&actor(), &wish).unwrap();
    fs::write(path, secret.reveal()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    token.message().id
}

fn node(running: &Running, path: &Path, identity: &str) -> ClientBuilder {
    Client::builder([format!("http://{}", running.grpc_addr)], identity).token(Token::file(path))
}

#[tokio::test]
async fn a_node_by_a_token_spends_its_lease_beyond_its_end_and_goes_on_with_another_in_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let (running, path) = (controller(&folder).await, folder.path().join("till.token"));
    let first = put(&running, &path, "node", &[]);
    let client = node(&running, &path, "till.pod-7").connect().await.unwrap();
    let group = client.group("shop").await.unwrap();
    drop(group.acquire(Ru::whole(1), PATIENT).await.unwrap());
    running.service().tokens().revoke(&actor(), first, false).unwrap();
    eventually("the stream ended", || !client.stats().link.connected).await;
    let said = client.stats().link.last_error;
    assert!(said.contains("the token was revoked or has expired; show another"), "{said}");
    // Its lease is its own until it ends.
    assert!(group.acquire(Ru::whole(1), Duration::ZERO).await.is_ok());
    let leases = running.service().leasing().leases("shop").unwrap().leases;
    assert_eq!(leases.len(), 1);
    eventually("it is refused", || client.stats().link.last_error.contains("unknown, revoked or expired"))
        .await;
    let said = client.stats().link.last_error;
    assert!(said.contains("tidegate token create") && !said.contains("tdg_"), "{said}");
    // A file that nobody can use is another reason, and no end.
    fs::write(&path, "").unwrap();
    eventually("the file is read", || client.stats().link.last_error.contains("holds no token")).await;
    put(&running, &path, "node", &[]);
    eventually("it is back", || client.stats().link.connected).await;
    drop(group.acquire(Ru::whole(1), PATIENT).await.unwrap());
    assert_eq!(client.shutdown().await.unconfirmed, []);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_token_that_expires_ends_the_stream_of_its_node() {
    let folder = tempfile::tempdir().unwrap();
    let (running, path) = (controller(&folder).await, folder.path().join("till.token"));
    put(&running, &path, "node", &[]);
    let mut ttl_us = 2_000_000;
    let (client, made) = loop {
        let wish =
            v1::CreateTokenRequest { name: "till".into(), role: "node".into(), ttl_us, ..Default::default() };
        let made = Instant::now();
        let (_, secret) = running.service().tokens().create(&actor(), &wish).unwrap();
        fs::write(&path, secret.reveal()).unwrap();
        if let Ok(client) = node(&running, &path, "till").connect().await {
            break (client, made);
        }
        // A machine may be too slow for a short life.
        ttl_us *= 2;
        assert!(Duration::from_micros(ttl_us) < PATIENT);
    };
    eventually("the stream ended", || !client.stats().link.connected).await;
    let (lived, lives) = (made.elapsed(), Duration::from_micros(ttl_us));
    assert!(lived > lives.saturating_sub(Duration::from_millis(100)), "{lived:?}");
    assert!(client.stats().link.last_error.contains("revoked or has expired"));
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_token_is_of_its_node_and_its_groups_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (running, path) = (controller(&folder).await, folder.path().join("till.token"));
    for role in ["node", "gateway"] {
        put(&running, &path, role, &["shop"]);
        for other in ["tills", "till-2", "node"] {
            let refused = node(&running, &path, other).patience(PATIENT).start().unwrap();
            eventually("refused", || refused.stats().link.last_error.contains("use till, or till.")).await;
            assert!(!refused.stats().link.connected);
        }
        let client = node(&running, &path, "till.a").connect().await.unwrap();
        let shop = client.group("shop").await.unwrap();
        drop(shop.acquire(Ru::whole(1), PATIENT).await.unwrap());
        assert!(client.group("default").await.is_err(), "{role}");
        assert_eq!(client.shutdown().await.unconfirmed, []);
    }
    put(&running, &path, "viewer", &[]);
    let viewer = node(&running, &path, "till").start().unwrap();
    eventually("refused", || viewer.stats().link.last_error.contains("has the role viewer")).await;
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_token_that_cannot_be_shown_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let start = |endpoint: &str| {
        Client::builder([endpoint], "till").token(Token::file(&path)).start().err().map(|error| match error {
            ConnectError::Token(error) => error,
            other => panic!("{other}"),
        })
    };
    assert!(matches!(start("http://127.0.0.1:1"), Some(TokenError::Unreadable { .. })));
    fs::write(&path, "tdg_1.00").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    // What belongs to root may be for a group.
    let is_root = rustix::process::getuid().is_root();
    assert!(is_root || matches!(start("http://127.0.0.1:1"), Some(TokenError::Exposed { mode: 0o640, .. })));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(start("http://rates.example:7420"), Some(TokenError::Plain { .. })));
    assert!(start("http://127.0.0.1:1").is_none());
    let (text, far) = (Token::text("tdg_1.00"), ["http://127.0.0.1:1", "http://10.0.0.1:1"]);
    let refused = Client::builder(far, "till").token(text).start().unwrap_err().to_string();
    assert!(refused.contains("http://10.0.0.1:1 without TLS") && !refused.contains("tdg_"), "{refused}");
}
