//! Idle groups: they give their lease up, sleep, and go on where they were.

use std::time::Duration;

use tidegate_client::{Client, Group, GroupError, LeaseState, Ru, RuParts};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tokio::time::sleep;

use crate::fake::{Fake, State, charged, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);

async fn started(fake: &Fake, names: &[&str]) -> (Client, Vec<Group>) {
    let client = piped(fake).idle_after(3 * SECOND).connect().await.unwrap();
    let mut groups = Vec::new();
    for name in names {
        fake.group(name, GroupSpec::capped(Rate::whole(1_000)));
        groups.push(client.group(name).await.unwrap());
    }
    (client, groups)
}

async fn asleep(client: &Client) {
    eventually("every group sleeps", || client.stats().awake == 0).await;
}

async fn spend(group: &Group, ru: i64) {
    drop(group.acquire(Ru::whole(ru), SECOND).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_slept_goes_on_where_it_was() {
    let fake = Fake::new();
    let (client, groups) = started(&fake, &["a", "b"]).await;
    let [used, unused] = groups.as_slice() else { panic!() };
    spend(used, 7).await;
    used.charge_ru(RuParts { cpu: Ru::whole(1), ..RuParts::default() });
    asleep(&client).await;
    assert_eq!(client.stats().groups, 2);
    let messages = fake.state().renews.len();
    sleep(60 * SECOND).await;
    assert_eq!(fake.state().renews.len(), messages, "who sleeps says nothing");

    assert_eq!((used.state().lease, used.consumption().ru().clamped()), (LeaseState::Idle, Ru::whole(8)));
    assert_eq!(client.stats().awake, 0, "looking wakes nobody");
    spend(used, 2).await;
    assert_eq!((client.stats().awake, used.consumption().operations), (1, 3));
    fake.until("the total goes on", |state| state.total("a") == Ru::whole(10)).await;
    spend(unused, 1).await;
    fake.until("the other, too", |state| state.total("b") == Ru::whole(1)).await;
    // More than once, and without a handle.
    drop(groups);
    asleep(&client).await;
    spend(&client.group("a").await.unwrap(), 5).await;
    fake.until("again", |state| state.total("a") == Ru::whole(15)).await;
    assert_eq!(client.shutdown().await.unconfirmed, []);
}

#[tokio::test(start_paused = true)]
async fn nothing_sleeps_that_is_not_confirmed() {
    let fake = Fake::new();
    let (client, groups) = started(&fake, &["g"]).await;
    fake.state().mute = true;
    spend(&groups[0], 7).await;
    fake.go_down();
    sleep(60 * SECOND).await;
    assert_eq!(client.stats().awake, 1);
    assert_eq!(client.shutdown().await.unconfirmed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_group_sleeps_while_an_operation_is_under_way() {
    let fake = Fake::new();
    let (client, groups) = started(&fake, &["g"]).await;
    let permit = groups[0].acquire(Ru::whole(7), SECOND).await.unwrap();
    sleep(60 * SECOND).await;
    assert_eq!(client.stats().awake, 1);
    let ending = tokio::spawn(async move { client.shutdown().await });
    sleep(SECOND).await;
    assert!(!ending.is_finished(), "it is waited for");
    drop(permit);
    let bye = ending.await.unwrap();
    assert_eq!((bye.unconfirmed, bye.open_permits), (vec![], 0));
    assert_eq!(fake.total("g"), Ru::whole(7));
}

#[tokio::test(start_paused = true)]
async fn what_was_confirmed_before_a_sleep_stays_so() {
    let fake = Fake::new();
    let (client, groups) = started(&fake, &["g"]).await;
    spend(&groups[0], 7).await;
    asleep(&client).await;
    let reports = || fake.state().renews.iter().map(|(_, renew)| renew.reports.len()).sum::<usize>();
    let before = reports();
    groups[0].acquire(Ru::whole(1), SECOND).await.unwrap().cancel();
    asleep(&client).await;
    assert_eq!(reports(), before, "nothing new was used");
    groups[0].acquire(Ru::whole(1), SECOND).await.unwrap().cancel();
    fake.state().mute = true;
    fake.go_down();
    groups[0].charge_ru(RuParts::flat(Ru::whole(2)));
    let bye = client.shutdown().await;
    assert_eq!(bye.unconfirmed.iter().map(|left| left.ru.clamped()).collect::<Vec<_>>(), [Ru::whole(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_group_is_shut_down_like_any_other() {
    let fake = Fake::new();
    let (client, groups) = started(&fake, &["g"]).await;
    spend(&groups[0], 7).await;
    asleep(&client).await;
    let bye = client.shutdown().await;
    assert_eq!((bye.unconfirmed.len(), bye.open_permits), (0, 0));
    assert!(groups[0].try_acquire(Ru(1)).is_err());
    assert!(groups[0].acquire(Ru(1), SECOND).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_went_while_it_slept_is_unknown_at_its_next_operation() {
    let fake = Fake::new();
    let (client, groups) = started(&fake, &["g"]).await;
    spend(&groups[0], 7).await;
    asleep(&client).await;
    fake.remove_group("g");
    let refused = groups[0].acquire(Ru(1), SECOND).await.unwrap_err();
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    assert!(matches!(client.group("g").await, Err(GroupError::UnknownGroup { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_journal_of_a_sleeping_group_is_empty_and_goes_on_when_it_wakes() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    let client = piped(&fake).idle_after(SECOND).journal_dir(dir.path()).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    spend(&group, 3).await;
    asleep(&client).await;
    let first = client.stats().incarnation;
    // A copy of the files that a kill would leave at these moments.
    let copy = |to: &tempfile::TempDir| {
        let file = "node-1.journal";
        std::fs::copy(dir.path().join(file), to.path().join(file)).unwrap();
    };
    let (while_asleep, while_awake) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    copy(&while_asleep);
    fake.state().forgetful = true;
    spend(&group, 4).await;
    copy(&while_awake);
    drop((client, group));
    tokio::task::yield_now().await;

    fake.state().forgetful = false;
    let reports = || fake.state().renews.iter().map(|(_, renew)| renew.reports.len()).sum::<usize>();
    let reported = reports();
    let next = piped(&fake).journal_dir(while_asleep.path()).connect().await.unwrap();
    sleep(5 * SECOND).await;
    assert_eq!(reports(), reported, "nothing was left to tell");
    drop(next);
    tokio::task::yield_now().await;
    let _next = piped(&fake).journal_dir(while_awake.path()).connect().await.unwrap();
    let total = |state: &State| state.totals.get(&(first, "g".to_owned())).map(charged);
    fake.until("both are counted once", |state| total(state) == Some(Ru::whole(7))).await;
}
