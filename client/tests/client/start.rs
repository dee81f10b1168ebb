//! What a client's options mean, and what a start waits for.

use std::future::pending;
use std::time::Duration;

use tidegate_client::transport::{Opening, Transport};
use tidegate_client::{Client, ClientBuilder, ConnectError, GroupError, LeaseState, Ru};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::fake::{Fake, Pipe, client_and_group, piped};

const SECOND: Duration = Duration::from_secs(1);

/// Reaches the fake; what it says of bindings comes so much later, or never.
struct SlowWatch(Fake, Option<Duration>);

impl Transport for SlowWatch {
    fn session(
        &self,
        endpoint: &str,
        outbound: mpsc::Receiver<v1::ClientMessage>,
    ) -> Opening<v1::ServerMessage> {
        Pipe(self.0.clone()).session(endpoint, outbound)
    }

    fn watch(&self, endpoint: &str, request: v1::WatchRequest) -> Opening<v1::WatchEvent> {
        let (opening, late) = (Pipe(self.0.clone()).watch(endpoint, request), self.1);
        Box::pin(async move {
            match late {
                Some(late) => sleep(late).await,
                None => pending().await,
            }
            opening.await
        })
    }
}

fn with_watch(fake: &Fake, late: Option<Duration>) -> ClientBuilder {
    Client::builder(["slow"], "node-1").transport(SlowWatch(fake.clone(), late))
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_connected_knows_the_bindings() {
    let fake = Fake::new();
    fake.bind("acme", "alice", "g");
    let began = Instant::now();
    let client = with_watch(&fake, Some(SECOND)).connect().await.unwrap();
    assert_eq!(began.elapsed(), SECOND);
    assert_eq!(&**client.resolve_now("acme", "alice").unwrap().name(), "g");
}

#[tokio::test(start_paused = true)]
async fn a_client_connects_without_bindings_at_the_end_of_its_patience() {
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    let began = Instant::now();
    let client = with_watch(&fake, None).patience(3 * SECOND).connect().await.unwrap();
    assert_eq!(began.elapsed(), 3 * SECOND);
    assert!(client.is_connected());
    drop(client.group("g").await.unwrap().acquire(Ru::whole(1), SECOND).await.unwrap());
    let error = client.resolve("acme", "alice").await.unwrap_err();
    assert!(matches!(error, GroupError::NoBindings { waited, .. } if waited == 3 * SECOND), "{error:?}");
    let text = "the controller did not send the bindings within 3s; check that it can be reached";
    assert_eq!(error.to_string(), text);
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_knows_of_no_group_is_no_reason_to_start_alone() {
    let (dir, fake) = (tempfile::tempdir().unwrap(), Fake::new());
    fake.go_down();
    let error = piped(&fake).journal_dir(dir.path()).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
}

/// Nothing that a session says comes.
struct Hung;

impl Transport for Hung {
    fn session(&self, _: &str, _: mpsc::Receiver<v1::ClientMessage>) -> Opening<v1::ServerMessage> {
        Box::pin(pending())
    }

    fn watch(&self, _: &str, _: v1::WatchRequest) -> Opening<v1::WatchEvent> {
        Box::pin(pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_gives_the_reason_of_the_last_attempt_once_one_has_ended() {
    for (patience, reason) in [(5, ""), (11, " (hung: no welcome within 10s)")] {
        let client = Client::builder(["hung"], "node-1").transport(Hung).patience(patience * SECOND);
        let error = client.connect().await.unwrap_err().to_string();
        let expected = format!("no controller answered within {patience}s{reason}; check the endpoints");
        assert!(error.starts_with(&expected), "{error}");
    }
}

/// A node whose clock may be fast earns less, so that it never spends what the controller has not leased.
#[tokio::test(start_paused = true)]
async fn a_node_earns_less_by_as_much_as_its_clock_may_be_fast() {
    for (ppm, earned) in [(0, 200), (100_000, 180), (500_000, 100), (u32::MAX, 100)] {
        let fake = Fake::new();
        fake.state().tamper = Some(Box::new(|granted: &mut v1::Granted| {
            for entry in &mut granted.entries {
                (entry.rate, entry.fill_micro_ru, entry.lump_micro_ru) = (Rate::whole(100).0, 0, 0);
                (entry.cap_micro_ru, entry.max_fit_micro_ru) = (Ru::whole(1_000).0, Ru::whole(1_000).0);
                (entry.ttl_us, entry.renew_after_us, entry.ask_again_us) = (60_000_000, 30_000_000, 0);
                (entry.ack_now, entry.scarce) = (false, false);
            }
        }));
        fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
        let client = piped(&fake).drift_ppm(ppm).connect().await.unwrap();
        let group = client.group("g").await.unwrap();
        let before = group.state().available;
        sleep(2 * SECOND).await;
        assert_eq!(group.state().available - before, Ru::whole(earned), "{ppm} ppm");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_in_use_keeps_its_lease_however_soon_it_is_to_sleep() {
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    let client = piped(&fake).idle_after(Duration::ZERO).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
    for turn in 0..100 {
        sleep(Duration::from_millis(90)).await;
        assert_eq!(group.state().lease, LeaseState::Leased, "turn {turn}");
        drop(group.try_acquire(Ru::whole(1)).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_connected_says_so_until_the_stream_ends() {
    let fake = Fake::new();
    let (client, _group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    assert!(client.is_connected());
    fake.go_down();
    sleep(SECOND).await;
    assert!(!client.is_connected());
}
