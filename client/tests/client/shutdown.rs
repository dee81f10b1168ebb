//! The graceful end.

use std::time::Duration;

use tidegate_client::{Client, Fallback, GroupError, LeaseState, Permit, Refused, Ru, RuParts, Shutdown};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;
use tidegate_proto::v1::server_message::Kind as Reply;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::fake::{Fake, State, Through, client_and_group, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);

/// The end of a client, beside the test.
fn beside(client: &Client) -> JoinHandle<Shutdown> {
    let client = client.clone();
    tokio::spawn(async move { client.shutdown().await })
}

/// The controller's answer to the goodbye of this number.
fn farewell(seq: u64) -> Reply {
    Reply::Farewell(v1::Farewell { seq, ..v1::Farewell::default() })
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_reports_everything_and_gives_leases_back() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    drop(group.acquire(Ru::whole(5), SECOND).await.unwrap());
    let last = group.acquire(Ru::whole(2), SECOND).await.unwrap();
    let waiting = tokio::spawn({
        let group = group.clone();
        async move { group.acquire(Ru::whole(900), 60 * SECOND).await.map(Permit::into_owned) }
    });
    eventually("one waits", || group.state().waiting == 1).await;
    let ending = beside(&client);
    let refused = waiting.await.unwrap().unwrap_err();
    assert!(matches!(refused, Refused::ShutDown { .. }), "{refused:?}");
    assert!(matches!(group.try_acquire(Ru(1)), Err(Refused::ShutDown { .. })));
    assert!(matches!(client.group("other").await, Err(GroupError::ShutDown { .. })));
    // The permit in flight is waited for.
    assert!(!ending.is_finished());
    drop(last);
    let end = ending.await.unwrap();
    assert_eq!((end.unconfirmed, end.open_permits), (vec![], 0));
    assert_eq!(fake.total("g"), Ru::whole(7));
    assert_eq!(fake.state().goodbyes.len(), 1);
    // A second one has nothing to say.
    assert_eq!(client.shutdown().await.unconfirmed, []);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_controller_ends_in_time_and_reports_what_is_missing() {
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    let client = piped(&fake).patience(3 * SECOND).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    fake.go_down();
    eventually("the loss is noticed", || !client.stats().link.connected).await;
    drop(group.acquire(Ru::whole(5), SECOND).await.unwrap());
    let open = group.acquire(Ru::whole(1), SECOND).await.unwrap();
    let begun = fake.state().now();
    let end = client.shutdown().await;
    let took = fake.state().now().since(begun);
    assert!(took.0 <= 3_100_000, "took {took}");
    assert_eq!(end.open_permits, 1);
    assert_eq!(
        end.unconfirmed.iter().map(|left| (&*left.group, left.ru.clamped())).collect::<Vec<_>>(),
        [("g", Ru::whole(5))]
    );
    drop(open);
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_survives_a_broken_stream() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    fake.state().rude = true;
    drop(group.acquire(Ru::whole(5), SECOND).await.unwrap());
    let ending = beside(&client);
    fake.until("goodbye", |state| state.goodbyes.len() == 1).await;
    fake.go_down();
    fake.state().rude = false;
    fake.come_back();
    assert_eq!(ending.await.unwrap().unconfirmed, []);
    assert_eq!(fake.state().goodbyes.len(), 2);
    assert_eq!(fake.total("g"), Ru::whole(5));
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_dropped_client_do_not_hang() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1))).await;
    let waiting = tokio::spawn({
        let group = group.clone();
        async move {
            loop {
                drop(group.acquire(Ru(900_000), 600 * SECOND).await?);
            }
            #[expect(unreachable_code, reason = "names the type of the block")]
            Ok::<(), Refused>(())
        }
    });
    eventually("one waits", || group.state().waiting == 1).await;
    drop(client);
    assert!(matches!(waiting.await.unwrap(), Err(Refused::ShutDown { .. })));
}

#[tokio::test(start_paused = true)]
async fn more_groups_than_fit_one_message_are_all_reported() {
    let fake = Fake::new();
    fake.state().max_entries = 3;
    let client = piped(&fake).connect().await.unwrap();
    let mut groups = Vec::new();
    for number in 0..10 {
        let name = format!("g{number}");
        fake.group(&name, GroupSpec::capped(Rate::whole(1_000)));
        groups.push(client.group(&name).await.unwrap());
    }
    for group in &groups {
        drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
    }
    assert_eq!(client.shutdown().await.unconfirmed, []);
    for group in &groups {
        assert_eq!(fake.total(group.name()), Ru::whole(1), "{}", group.name());
    }
    assert!(fake.state().renews.iter().all(|(_, renew)| renew.entries.len() <= 3));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_with_the_last_permit_also_with_one_that_took_nothing() {
    for owes in [false, true] {
        let fake = Fake::new();
        let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
        let permit = if owes { group.owe() } else { group.acquire(Ru::whole(1), SECOND).await.unwrap() };
        assert_eq!(client.stats().counts.admitted, 1);
        let ending = beside(&client);
        sleep(SECOND).await;
        assert!(!ending.is_finished(), "the operation goes on");
        permit.settle_ru(RuParts::flat(Ru::whole(3)));
        let settled = Instant::now();
        let end = ending.await.unwrap();
        assert_eq!((end.unconfirmed, end.open_permits, settled.elapsed()), (vec![], 0, Duration::ZERO));
        assert_eq!(fake.total("g"), Ru::whole(3));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_nothing_goes_to_the_controller_any_more() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    fake.go_down();
    eventually("the loss is noticed", || !client.is_connected()).await;
    group.charge_ru(RuParts::flat(Ru::whole(5)));
    assert_eq!(client.shutdown().await.unconfirmed.len(), 1);
    let heard = |state: &State| (state.hellos.len(), state.watches.len(), state.goodbyes.len());
    let before = heard(&fake.state());
    fake.come_back();
    sleep(60 * SECOND).await;
    // The client is held still.
    assert_eq!((heard(&fake.state()), client.is_connected()), (before, false));
    assert_eq!(fake.total("g"), Ru::ZERO, "it is said to be unconfirmed");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_wakes_while_its_client_closes_is_reported_and_asks_for_no_lease() {
    let fake = Fake::new();
    let client = piped(&fake).idle_after(SECOND).patience(30 * SECOND).connect().await.unwrap();
    for name in ["a", "b"] {
        fake.group(name, GroupSpec::capped(Rate::whole(1_000)));
        client.group(name).await.unwrap();
    }
    eventually("both sleep", || client.stats().awake == 0).await;
    let (a, b) = (client.group("a").await.unwrap(), client.group("b").await.unwrap());
    let permit = b.acquire(Ru::whole(1), SECOND).await.unwrap();
    let ending = beside(&client);
    sleep(SECOND).await;
    let asked = |state: &State| {
        let entries = state.renews.iter().flat_map(|(_, renew)| &renew.entries);
        entries.filter(|entry| entry.group == "a").count()
    };
    let before = asked(&fake.state());
    a.charge_ru(RuParts::flat(Ru::whole(5)));
    sleep(5 * SECOND).await;
    drop(permit);
    assert_eq!(ending.await.unwrap().unconfirmed, []);
    assert_eq!((fake.total("a"), asked(&fake.state())), (Ru::whole(5), before));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_slept_admits_nothing_after_a_shutdown_whatever_its_fallback() {
    let fake = Fake::new();
    let spec = GroupSpec { fallback: Fallback::Unlimited, ..GroupSpec::capped(Rate::whole(1_000)) };
    fake.group("g", spec);
    let client = piped(&fake).idle_after(SECOND).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    eventually("it sleeps", || client.stats().awake == 0).await;
    assert_eq!(client.shutdown().await.unconfirmed, []);
    // It wakes, and no controller answers: the fallback applies.
    group.charge_ru(RuParts::flat(Ru::whole(1)));
    sleep(5 * SECOND).await;
    assert_eq!(group.state().lease, LeaseState::Expired);
    assert!(matches!(group.try_acquire(Ru::whole(1)), Err(Refused::ShutDown { .. })));
    assert!(matches!(group.check(Ru::whole(1)), Err(Refused::ShutDown { .. })));
    assert!(group.take(Ru::whole(1)).is_none());
    assert!(matches!(group.acquire(Ru::whole(1), SECOND).await, Err(Refused::ShutDown { .. })));
}

/// A node that is idle hears nothing for long, which says nothing of the answers to what goes ahead of its goodbye.
#[tokio::test(start_paused = true)]
async fn the_answers_to_the_reports_ahead_of_a_goodbye_have_their_time_also_after_a_silence() {
    let fake = Fake::new();
    fake.state().max_entries = 2;
    let way = Through::new(&fake);
    let client = way.client().idle_after(SECOND).connect().await.unwrap();
    let names = ["a", "b", "c", "d", "e"];
    let mut groups = Vec::new();
    for name in names {
        fake.group(name, GroupSpec::capped(Rate::whole(1_000)));
        groups.push(client.group(name).await.unwrap());
    }
    eventually("all sleep", || client.stats().awake == 0).await;
    sleep(10 * SECOND).await;
    way.late(SECOND / 2);
    groups.iter().for_each(|group| _ = group.charge_ru(RuParts::flat(Ru::whole(3))));
    assert_eq!(client.shutdown().await.unconfirmed, []);
    assert_eq!(names.map(|name| fake.total(name)), [Ru::whole(3); 5]);
    assert_eq!((client.counts().session_failures, fake.state().goodbyes.len()), (0, 1));
}

/// What an operation cost that ended between the last report and the end.
#[tokio::test(start_paused = true)]
async fn what_was_charged_after_the_goodbye_is_unconfirmed_and_stays_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    let start = || piped(&fake).journal_dir(dir.path()).connect();
    let client = start().await.unwrap();
    let group = client.group("g").await.unwrap();
    drop(group.acquire(Ru::whole(3), SECOND).await.unwrap());
    fake.state().rude = true;
    let ending = beside(&client);
    fake.until("goodbye", |state| state.goodbyes.len() == 1).await;
    group.charge_ru(RuParts::flat(Ru::whole(5)));
    let seq = fake.state().goodbyes[0].seq;
    fake.push(farewell(seq));
    let left = ending.await.unwrap().unconfirmed;
    assert_eq!(left.iter().map(|left| left.ru.clamped()).collect::<Vec<_>>(), [Ru::whole(5)]);
    drop((client, group));
    tokio::task::yield_now().await;

    fake.state().rude = false;
    let heir = start().await.unwrap();
    assert_eq!(heir.shutdown().await.unconfirmed, []);
    assert_eq!(fake.total("g"), Ru::whole(8));
}

#[tokio::test(start_paused = true)]
async fn only_the_answer_to_the_goodbye_ends_a_shutdown() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    drop(group.acquire(Ru::whole(3), SECOND).await.unwrap());
    fake.state().rude = true;
    let ending = beside(&client);
    fake.until("goodbye", |state| state.goodbyes.len() == 1).await;
    let seq = fake.state().goodbyes[0].seq;
    for (other, count) in [(seq - 1, 1), (seq + 1, 2)] {
        fake.push(farewell(other));
        eventually("it is heard", || client.counts().malformed == count).await;
        assert!(!ending.is_finished());
    }
    fake.push(farewell(seq));
    assert_eq!(ending.await.unwrap().unconfirmed, []);
    assert!(!client.is_connected(), "its session is over");
}

#[tokio::test(start_paused = true)]
async fn who_waits_to_hear_of_a_group_is_refused_when_the_client_ends() {
    let fake = Fake::new();
    let (client, _group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    fake.state().mute = true;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.group("other").await.map(drop) }
    });
    eventually("it is made", || client.stats().groups == 2).await;
    let ended = Instant::now();
    let (shutdown, asked) =
        tokio::join!(client.shutdown(), async { (asking.await.unwrap(), ended.elapsed()) });
    let (answer, took) = asked;
    let error = answer.unwrap_err();
    assert!(matches!(&error, GroupError::ShutDown { group } if &**group == "other"), "{error}");
    assert_eq!((took, shutdown.open_permits), (Duration::ZERO, 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_the_first_bindings_hears_of_a_shutdown_at_once() {
    let fake = Fake::new();
    fake.go_down();
    let client = piped(&fake).patience(60 * SECOND).start().unwrap();
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.resolve("t", "u").await.map(|resolved| resolved.group()) }
    });
    sleep(SECOND).await;
    let ended = Instant::now();
    let (_, asked) = tokio::join!(client.shutdown(), async { (asking.await.unwrap(), ended.elapsed()) });
    let (answer, took) = asked;
    let error = answer.unwrap_err();
    assert!(matches!(&error, GroupError::ShutDown { group } if &**group == "default"), "{error}");
    assert_eq!(took, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_begins_without_a_controller_is_heard_by_one_that_comes_in_time() {
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    let client = piped(&fake).patience(60 * SECOND).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    fake.go_down();
    eventually("the loss is noticed", || !client.is_connected()).await;
    group.charge_ru(RuParts::flat(Ru::whole(5)));
    let ending = beside(&client);
    sleep(20 * SECOND).await;
    assert!(!ending.is_finished());
    fake.come_back();
    assert_eq!(ending.await.unwrap().unconfirmed, []);
    assert_eq!((fake.total("g"), fake.state().goodbyes.len()), (Ru::whole(5), 1));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_permits_of_all_groups_and_counts_those_that_stay() {
    for busy in ["a", "b"] {
        let fake = Fake::new();
        let client = piped(&fake).patience(60 * SECOND).connect().await.unwrap();
        let mut groups = Vec::new();
        for name in ["a", "b"] {
            fake.group(name, GroupSpec::capped(Rate::whole(1_000)));
            groups.push(client.group(name).await.unwrap());
        }
        let group = groups.iter().find(|group| &**group.name() == busy).unwrap();
        let stay = [(); 2].map(|()| group.try_acquire(Ru::whole(1)).unwrap());
        let began = Instant::now();
        let end = client.shutdown().await;
        assert_eq!((end.open_permits, began.elapsed()), (2, 30 * SECOND), "half of the patience");
        drop(stay);
    }
}
