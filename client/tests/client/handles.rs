//! What a caller that asks for a group waits for, how long, and what is left when there is no such group.

use std::time::Duration;

use tidegate_client::{Fallback, GroupError, LeaseState, Limits, Refused, Ru};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;
use tokio::time::Instant;

use crate::fake::{Fake, State, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);
/// A message that goes out as soon as one may, and its answer.
const SOON: Duration = Duration::from_millis(110);

fn usual() -> GroupSpec {
    GroupSpec::capped(Rate::whole(1_000))
}

#[tokio::test(start_paused = true)]
async fn all_who_ask_for_a_new_group_at_once_have_the_same_first_answer() {
    let fake = Fake::new();
    fake.group("g", usual());
    let client = piped(&fake).connect().await.unwrap();
    assert!(client.is_connected());
    let (one, two, three) = tokio::join!(client.group("g"), client.group("g"), client.group("g"));
    for group in [one, two, three] {
        assert_eq!(&**group.unwrap().name(), "g");
    }
    assert_eq!(fake.state().renews.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn groups_that_are_not_there_take_no_place_of_those_that_are() {
    let fake = Fake::new();
    let client = piped(&fake).limits(Limits { groups: 1, ..Limits::default() }).connect().await.unwrap();
    for name in ["a", "b", "c"] {
        let error = client.group(name).await.unwrap_err();
        assert!(matches!(error, GroupError::UnknownGroup { .. }), "{name}: {error}");
        assert_eq!(client.stats().groups, 0);
    }
    fake.group("g", usual());
    client.group("g").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn groups_that_are_not_there_take_no_place_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    let client = piped(&fake).journal_dir(dir.path()).connect().await.unwrap();
    for name in ["a", "b", "c"] {
        let error = client.group(name).await.unwrap_err();
        assert!(matches!(error, GroupError::UnknownGroup { .. }), "{name}: {error}");
    }
    fake.group("g", usual());
    let group = client.group("g").await.unwrap();
    for _ in 0..3 {
        drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
    }
    let length = std::fs::metadata(dir.path().join("node-1.journal")).unwrap().len();
    assert_eq!(length, 4_096 + 1_024, "a header, and the slot of one group");
}

/// Its refusals were counted, and a total that began again would be behind what the controller has.
#[tokio::test(start_paused = true)]
async fn a_group_that_is_removed_and_made_again_goes_on_with_its_total_also_where_it_has_refused_only() {
    let fake = Fake::new();
    fake.group("g", usual());
    let client = piped(&fake).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    for _ in 0..7 {
        group.try_acquire(Ru::whole(1_000_000)).unwrap_err();
    }
    let key = (client.stats().incarnation, "g".to_owned());
    let throttled = |state: &State| state.totals.get(&key).map(|total| total.throttled);
    fake.until("refusals are reported", |state| throttled(state) == Some(7)).await;
    fake.remove_group("g");
    eventually("it is unknown", || group.state().lease == LeaseState::Unknown).await;
    drop(group);
    let error = client.group("g").await.unwrap_err();
    assert!(matches!(error, GroupError::UnknownGroup { .. }), "{error}");

    fake.group("g", usual());
    let group = client.group("g").await.unwrap();
    drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
    fake.until("its use is reported", |state| state.total("g") == Ru::whole(1)).await;
    assert_eq!(throttled(&fake.state()), Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_unknown_is_asked_for_again_at_once_when_a_handle_is_wanted() {
    let fake = Fake::new();
    fake.group("g", usual());
    // The watch says nothing of what comes.
    fake.state().tamper = Some(Box::new(|granted: &mut v1::Granted| {
        granted.entries.iter_mut().for_each(|entry| entry.set_status(v1::GrantStatus::UnknownGroup));
    }));
    let client = piped(&fake).connect().await.unwrap();
    let held = client.group_now("g").unwrap();
    let refused = held.acquire(Ru::whole(1), SECOND).await.unwrap_err();
    assert!(matches!(refused, Refused::UnknownGroup { .. }), "{refused}");
    fake.state().tamper = None;
    let began = Instant::now();
    client.group("g").await.unwrap();
    assert!(began.elapsed() <= SOON, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn with_a_fallback_a_controller_that_is_away_is_waited_for_once_and_for_a_second() {
    let fake = Fake::new();
    fake.go_down();
    let builder = piped(&fake).fallback_until_connected(Fallback::Unlimited).patience(60 * SECOND);
    let client = builder.start().unwrap();
    let began = Instant::now();
    let group = client.group("g").await.unwrap();
    assert!((SECOND..SECOND + SOON).contains(&began.elapsed()), "{:?}", began.elapsed());
    drop(group.try_acquire(Ru::whole(1)).unwrap());
    let began = Instant::now();
    client.group("g").await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO, "nothing more is expected");
    // Once for the bindings, and for its group.
    client.resolve("acme", "alice").await.unwrap();
    assert!((SECOND..2 * SECOND + SOON).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_there_and_does_not_answer_is_to_be_looked_at() {
    let fake = Fake::new();
    let client = piped(&fake).patience(2 * SECOND).connect().await.unwrap();
    fake.state().mute = true;
    let error = client.group("g").await.unwrap_err();
    assert!(matches!(error, GroupError::Unavailable { waited, .. } if waited == 2 * SECOND), "{error:?}");
    let text = "the controller did not say within 2s whether group g exists; check that it can be reached";
    assert_eq!(error.to_string(), text);
}
