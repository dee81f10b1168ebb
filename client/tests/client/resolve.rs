//! From tenant and user to a group, and following re-bindings.

use std::time::Duration;

use tidegate_client::{GroupError, Ru};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;

use crate::fake::{Fake, eventually, piped};

fn groups(fake: &Fake, names: &[&str]) {
    for name in names {
        fake.group(name, GroupSpec::capped(Rate::whole(1_000)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_narrowest_binding_pays_and_a_rebinding_reaches_live_handles() {
    let fake = Fake::new();
    groups(&fake, &["default", "a", "b", "c"]);
    fake.bind("acme", "", "a");
    fake.bind("", "alice", "b");
    let client = piped(&fake).connect().await.unwrap();
    let (plain, alice) =
        (client.resolve("acme", "bob").await.unwrap(), client.resolve("acme", "alice").await.unwrap());
    let nobody = client.resolve("other", "bob").await.unwrap();
    let name = |resolved: &tidegate_client::Resolved| resolved.group().name().to_string();
    assert_eq!((name(&plain), name(&alice), name(&nobody)), ("a".into(), "b".into(), "default".into()));
    let second = Duration::from_secs(1);
    drop(plain.acquire(Ru::whole(2), second).await.unwrap());

    let permit = plain.acquire(Ru::whole(1), second).await.unwrap();
    fake.bind("acme", "", "c");
    fake.bind("acme", "alice", "c");
    eventually("the handles follow", || name(&plain) == "c" && name(&alice) == "c").await;
    // An operation under way stays with the group that admitted it.
    assert_eq!(&**permit.group(), "a");
    drop(permit);
    drop(plain.acquire(Ru::whole(5), second).await.unwrap());
    fake.until("both groups are charged", |state| {
        (state.total("a"), state.total("c")) == (Ru::whole(3), Ru::whole(5))
    })
    .await;
    assert_eq!(client.stats().bindings, 3);
    assert_eq!(client.resolve_now("acme", "bob").unwrap().name().to_string(), "c");
}

#[tokio::test(start_paused = true)]
async fn every_part_of_a_change_counts_though_only_the_last_has_its_revision() {
    let fake = Fake::new();
    groups(&fake, &["default", "a"]);
    let client = piped(&fake).connect().await.unwrap();
    let users = ["alice", "bob", "carol"];
    fake.bind_all("acme", &users, "a");
    let pays = |user: &&str| client.resolve_now("acme", user).unwrap().name().to_string();
    eventually("all users are bound", || users.iter().map(pays).all(|group| group == "a")).await;
    assert_eq!(client.stats().revision, fake.state().revision);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_resumes_from_its_revision() {
    let fake = Fake::new();
    groups(&fake, &["default", "a"]);
    let client = piped(&fake).connect().await.unwrap();
    let handle = client.resolve("acme", "bob").await.unwrap();
    fake.go_down();
    fake.bind("acme", "", "a");
    fake.come_back();
    eventually("the change arrives", || &**handle.group().name() == "a").await;
    let state = fake.state();
    assert_eq!(state.watches[0].have_revision, 0);
    assert!(state.watches.last().unwrap().have_revision > 0);
}

#[tokio::test(start_paused = true)]
async fn without_bindings_or_group_the_answer_says_so() {
    let fake = Fake::new();
    let client = piped(&fake).connect().await.unwrap();
    let error = client.resolve("acme", "bob").await.unwrap_err();
    assert!(matches!(&error, GroupError::UnknownGroup { group } if &**group == "default"), "{error}");
    fake.go_down();
    let client = piped(&fake).start().unwrap();
    let reason = "the last session with it ended or did not begin: ";
    let error = client.resolve("acme", "bob").await.unwrap_err();
    assert!(matches!(error, GroupError::NoBindings { .. }) && error.to_string().contains(reason), "{error}");
    let error = client.group("g").await.unwrap_err();
    assert!(matches!(error, GroupError::Unavailable { .. }) && error.to_string().contains(reason), "{error}");
}
