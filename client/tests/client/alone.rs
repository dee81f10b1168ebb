//! A process that starts while the controller is away.

use std::time::Duration;

use tidegate_client::{Fallback, LeaseState, Rate, Refused, Ru};
use tidegate_core::group::GroupSpec;

use crate::fake::{Fake, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);

/// A controller that has a group and is not there.
fn away() -> Fake {
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    fake.bind("acme", "alice", "g");
    fake.go_down();
    fake
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_alone_admits_by_its_own_fallback_until_the_controller_comes() {
    let fake = away();
    let builder = piped(&fake).fallback_until_connected(Fallback::Rate(Rate::whole(10)));
    let client = builder.connect().await.unwrap();
    assert!(!client.is_connected());
    let group = client.group("g").await.unwrap();
    let begun = tokio::time::Instant::now();
    for _ in 0..50 {
        drop(group.acquire(Ru::whole(1), 5 * SECOND).await.unwrap());
    }
    let took = begun.elapsed();
    assert!((4 * SECOND..7 * SECOND).contains(&took), "50 RU took {took:?} at 10 RU/s");
    // The bindings are not known yet.
    assert_eq!(client.resolve("acme", "alice").await.unwrap().group().name().to_string(), "default");
    fake.come_back();
    eventually("leased", || group.state().lease == LeaseState::Leased).await;
    fake.until("reported", |state| state.total("g") == Ru::whole(50)).await;
    eventually("bound", || {
        client.resolve_now("acme", "alice").is_ok_and(|group| group.name().to_string() == "g")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_without_a_fallback_refuses_until_the_controller_comes() {
    let fake = away();
    let client = piped(&fake).start().unwrap();
    let group = client.group_now("g").unwrap();
    assert!(matches!(group.acquire(Ru::whole(1), 5 * SECOND).await, Err(Refused::Unavailable { .. })));
    fake.come_back();
    drop(group.acquire(Ru::whole(1), 5 * SECOND).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_alone_admits_by_what_its_node_heard_of_last() {
    let dir = tempfile::tempdir().unwrap();
    let fake = away();
    let spec =
        GroupSpec { fallback: Fallback::Rate(Rate::whole(10)), ..GroupSpec::capped(Rate::whole(1_000)) };
    fake.group("g", spec);
    fake.come_back();
    let client = piped(&fake).journal_dir(dir.path()).connect().await.unwrap();
    drop(client.group("g").await.unwrap().acquire(Ru::whole(1), SECOND).await.unwrap());
    fake.until("reported", |state| state.total("g") == Ru::whole(1)).await;
    // The controller goes, and the process with it, without a goodbye.
    fake.state().mute = true;
    fake.go_down();
    eventually("the loss is noticed", || !client.stats().link.connected).await;
    let files = || dir.path().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let known = files().find(|path| path.extension().is_some_and(|end| end == "definitions")).unwrap();
    // The folder is as a killed process leaves it.
    let after = |text: Option<&str>| {
        let after = tempfile::tempdir().unwrap();
        let copy = after.path().join(known.file_name().unwrap());
        std::fs::copy(&known, &copy).unwrap();
        text.map_or(Ok(()), |text| std::fs::write(copy, text)).unwrap();
        after
    };

    let left = after(None);
    let client = piped(&fake).journal_dir(left.path()).connect().await.unwrap();
    assert!(!client.is_connected());
    let group = client.group("g").await.unwrap();
    let begun = tokio::time::Instant::now();
    for _ in 0..50 {
        drop(group.acquire(Ru::whole(1), 5 * SECOND).await.unwrap());
    }
    let took = begun.elapsed();
    assert!((4 * SECOND..7 * SECOND).contains(&took), "50 RU took {took:?} at 10 RU/s");
    // Of another group nothing is known.
    let other = client.group_now("other").unwrap();
    assert!(matches!(other.acquire(Ru::whole(1), 5 * SECOND).await, Err(Refused::Unavailable { .. })));
    // One that is damaged is as good as none.
    let damaged = after(Some("tidegate-definitions 1 "));
    let client = piped(&fake).journal_dir(damaged.path()).start().unwrap();
    let group = client.group_now("g").unwrap();
    assert!(matches!(group.acquire(Ru::whole(1), 5 * SECOND).await, Err(Refused::Unavailable { .. })));
}

#[tokio::test(start_paused = true)]
async fn what_a_node_heard_of_a_group_comes_before_the_fallback_that_its_process_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let fake = away();
    let fallback = Fallback::Rate(Rate::whole(10));
    fake.group("g", GroupSpec { fallback, ..GroupSpec::capped(Rate::whole(1_000)) });
    fake.come_back();
    let client = piped(&fake).journal_dir(dir.path()).connect().await.unwrap();
    client.group("g").await.unwrap();
    assert_eq!(client.shutdown().await.unconfirmed, []);
    drop(client);
    tokio::task::yield_now().await;

    fake.go_down();
    let builder = piped(&fake).journal_dir(dir.path()).fallback_until_connected(Fallback::Unlimited);
    let client = builder.start().unwrap();
    let admits = async |name| {
        let group = client.group(name).await.unwrap();
        // A large one may owe what a second of the rate does not cover.
        drop(group.acquire(Ru::whole(1_000), 5 * SECOND).await);
        group.acquire(Ru::whole(1_000), 5 * SECOND).await.is_ok()
    };
    assert_eq!([admits("g").await, admits("another").await], [false, true]);
}
