//! From tenant and user to a group, and following re-bindings.

use std::time::Duration;

use tidegate_client::{Fallback, GroupError, Limits, Refused, Ru};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::{NOT_GIVEN, v1};
use tidegate_test_servers::said::heard;

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
async fn a_rebinding_that_found_no_place_is_followed_once_there_is_one() {
    let fake = Fake::new();
    groups(&fake, &["a", "b"]);
    fake.bind("acme", "", "a");
    let client = piped(&fake).limits(Limits { groups: 2, ..Limits::default() }).connect().await.unwrap();
    let acme = client.resolve("acme", "").await.unwrap();
    let unknown = client.group_now("unknown").unwrap();
    fake.bind("acme", "", "b");
    let no_place = "group b would be one more than 2 groups on one node; raise `Limits::groups`";
    eventually("there is no place", || {
        client.resolve_now("acme", "").is_err_and(|error| error.to_string() == no_place)
    })
    .await;
    // However many operations it has, and however many handles.
    let other = acme.clone();
    let said = || {
        let said = heard(|| (0..99).for_each(|_| drop((acme.group(), other.group()))));
        assert!(said.is_empty() || said.contains("not re-bound") && said.contains(no_place), "{said}");
        said.lines().count()
    };
    assert_eq!((said(), said()), (1, 0));
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(said(), 0);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!((said(), said()), (1, 0));
    assert_eq!(&**acme.group().name(), "a");
    drop(unknown);
    assert!(client.group("unknown").await.is_err());
    assert_eq!(&**acme.group().name(), "b");
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

#[tokio::test(start_paused = true)]
async fn who_is_bound_to_a_group_that_the_node_was_not_given_is_refused_and_charged_to_nobody() {
    let fake = Fake::new();
    groups(&fake, &["default", "a"]);
    fake.bind("acme", "", "a");
    fake.bind("acme", "alice", NOT_GIVEN);
    let client = piped(&fake).fallback_until_connected(Fallback::Unlimited).connect().await.unwrap();
    let error = client.resolve("acme", "alice").await.unwrap_err();
    let whose = r#"user "alice" of tenant "acme" is bound to a group that this node was not given"#;
    assert!(matches!(&error, GroupError::NotGiven { .. }) && error.to_string().starts_with(whose), "{error}");
    // A live handle follows a user there, and back.
    let (second, bob) = (Duration::from_secs(1), client.resolve("acme", "bob").await.unwrap());
    drop(bob.acquire(Ru::whole(2), second).await.unwrap());
    fake.bind("acme", "bob", NOT_GIVEN);
    eventually("the handle follows", || &**bob.group().name() == NOT_GIVEN).await;
    for _ in 0..3 {
        let refused = bob.acquire(Ru::whole(5), second).await.unwrap_err();
        assert!(matches!(refused, Refused::UnknownGroup { .. }), "{refused}");
    }
    fake.bind("acme", "bob", "a");
    eventually("the handle follows", || &**bob.group().name() == "a").await;
    drop(bob.acquire(Ru::whole(1), second).await.unwrap());
    fake.until("charged", |state| state.total("a") == Ru::whole(3)).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_controller_a_fallback_is_for_others_than_who_is_bound_to_a_group_not_given() {
    let fake = Fake::new();
    groups(&fake, &["default", "a"]);
    fake.bind("acme", "", "a");
    fake.bind("acme", "alice", NOT_GIVEN);
    let client = piped(&fake).fallback_until_connected(Fallback::Unlimited).connect().await.unwrap();
    fake.go_down();
    // Neither has been asked for before.
    let (second, pays) = (Duration::from_secs(1), |user| client.resolve_now("acme", user).unwrap());
    drop(pays("bob").acquire(Ru::whole(1), 5 * second).await.unwrap());
    let refused = pays("alice").acquire(Ru::whole(1), 5 * second).await.unwrap_err();
    assert!(matches!(refused, Refused::Unavailable { .. }), "{refused}");
}

/// A node of before: it has no word for such a group, and asks for it as for any.
#[tokio::test(start_paused = true)]
async fn an_old_node_takes_it_for_a_group_that_is_not_there() {
    let fake = Fake::new();
    groups(&fake, &["default", "a"]);
    fake.bind("acme", "", "a");
    fake.bind("acme", "alice", NOT_GIVEN);
    let client = piped(&fake).connect().await.unwrap();
    let group = client.resolve_now("acme", "alice").unwrap();
    let refused = group.acquire(Ru::whole(1), Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(refused, Refused::UnknownGroup { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_rebinding_while_the_first_answer_is_waited_for_is_followed() {
    let fake = Fake::new();
    groups(&fake, &["a", "b"]);
    fake.bind("acme", "", "a");
    let client = piped(&fake).patience(Duration::from_secs(60)).connect().await.unwrap();
    client.group("b").await.unwrap();
    fake.state().mute = true;
    let resolving = tokio::spawn({
        let client = client.clone();
        async move { client.resolve("acme", "").await }
    });
    let asks_for_a = |renew: &v1::Renew| renew.entries.iter().any(|entry| entry.group == "a");
    fake.until("a is asked for", |state| state.renews.iter().any(|(_, renew)| asks_for_a(renew))).await;
    fake.bind("acme", "", "b");
    eventually("b pays", || &**client.resolve_now("acme", "").unwrap().name() == "b").await;
    assert!(!resolving.is_finished());
    fake.state().mute = false;
    let acme = resolving.await.unwrap().unwrap();
    assert_eq!(&**acme.group().name(), "b");
}
