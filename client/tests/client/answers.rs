//! Answers that are late, lost, of no use, or urgent, and the pace of the questions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_client::{Client, Group, Ru};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::{Rate, Span, Time};
use tidegate_proto::v1;
use tidegate_proto::v1::server_message::Kind as Reply;
use tokio::time::{Instant, sleep};

use crate::fake::{Fake, State, Through, client_and_group, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);

fn usual() -> GroupSpec {
    GroupSpec::capped(Rate::whole(1_000))
}

/// When the group was asked for.
fn asked(state: &State, group: &str) -> Vec<Time> {
    let of_group = |renew: &v1::Renew| renew.entries.iter().any(|entry| entry.group == group);
    state.renews.iter().filter(|(_, renew)| of_group(renew)).map(|(at, _)| *at).collect()
}

async fn groups(fake: &Fake, client: &Client, count: usize) -> Vec<Group> {
    let mut groups = Vec::new();
    for number in 0..count {
        let name = format!("g{number}");
        fake.group(&name, usual());
        groups.push(client.group(&name).await.unwrap());
    }
    groups
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_answers_take_long_is_not_silent() {
    let fake = Fake::new();
    fake.group("g", usual());
    // As long as the stream took to open, before anything else is known.
    let through = Through::new(&fake);
    through.late(Duration::from_millis(3_500));
    let client = through.client().patience(30 * SECOND).connect().await.unwrap();
    let _group = client.group("g").await.unwrap();
    sleep(30 * SECOND).await;
    assert_eq!((client.counts().session_failures, client.is_connected()), (0, true));
    // And as long as answers took, where it opened in no time.
    let fake = Fake::new();
    fake.group("g", usual());
    let through = Through::new(&fake);
    let client = through.client().patience(30 * SECOND).connect().await.unwrap();
    let _group = client.group("g").await.unwrap();
    for late in [2_000, 2_800, 4_000, 4_000] {
        through.late(Duration::from_millis(late));
        sleep(30 * SECOND).await;
        let counts = client.counts();
        assert_eq!((counts.session_failures, client.is_connected()), (0, true), "{late} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_leaves_out_one_answer_and_gives_others_is_not_silent() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, usual()).await;
    sleep(5 * SECOND).await;
    fake.state().mute = true;
    let renews = fake.state().renews.len();
    fake.until("it asks", |state| state.renews.len() > renews).await;
    fake.state().mute = false;
    for _ in 0..20 {
        sleep(SECOND).await;
        drop(group.try_acquire(Ru::whole(1)).unwrap());
    }
    assert_eq!((client.counts().session_failures, client.is_connected()), (0, true));
}

#[tokio::test(start_paused = true)]
async fn only_what_is_asked_again_without_an_answer_was_not_answered_in_time() {
    let fake = Fake::new();
    let through = Through::new(&fake);
    let client = through.client().connect().await.unwrap();
    let groups = groups(&fake, &client, 3).await;
    // Questions of several groups are on their way at once.
    through.late(Duration::from_millis(300));
    for turn in 0..200 {
        sleep(Duration::from_millis(70)).await;
        drop(groups[turn % 3].acquire(Ru::whole(20), SECOND).await);
    }
    assert_eq!(client.counts().timeouts, 0);
    through.late(3 * SECOND);
    eventually("one is late", || client.counts().timeouts > 0).await;
}

/// It is asked as often as if it had said nothing, but not less and less often.
#[tokio::test(start_paused = true)]
async fn answers_of_no_use_are_asked_for_every_second() {
    type Break = fn(&mut v1::Granted);
    let breaks: [(&str, Break); 3] = [
        ("shed", |granted| (granted.shed, granted.entries) = (true, Vec::new())),
        ("out of range", |granted| granted.entries.iter_mut().for_each(|entry| entry.rate = -1)),
        ("left out", |granted| granted.entries.clear()),
    ];
    for (what, break_it) in breaks {
        let fake = Fake::new();
        let (client, group) = client_and_group(&fake, usual()).await;
        sleep(3 * SECOND).await;
        fake.state().tamper = Some(Box::new(break_it));
        let before = asked(&fake.state(), "g").len();
        fake.until("it asks six times", |state| asked(state, "g").len() >= before + 6).await;
        let times = asked(&fake.state(), "g");
        for pair in times[before..].windows(2) {
            let pause = pair[1].since(pair[0]);
            assert!((Span::millis(990)..Span::millis(1_250)).contains(&pause), "{what}: {pause}");
        }
        fake.state().tamper = None;
        assert!(group.acquire(Ru::whole(1), 5 * SECOND).await.is_ok(), "{what}");
        assert!(client.is_connected(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_leaves_out_what_was_asked_again_since_is_sound() {
    let fake = Fake::new();
    let (client, _group) = client_and_group(&fake, usual()).await;
    fake.state().mute = true;
    let renews = fake.state().renews.len();
    fake.until("it asks twice", |state| state.renews.len() >= renews + 2).await;
    let seq = fake.state().renews[renews].1.seq;
    let counts = client.counts();
    fake.push(Reply::Granted(v1::Granted { seq, epoch: 1, ..v1::Granted::default() }));
    fake.state().mute = false;
    eventually("it has an answer again", || client.counts().grants > counts.grants).await;
    assert_eq!(client.counts().malformed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_to_be_acknowledged_at_once_is() {
    let fake = Fake::new();
    let (_client, _group) = client_and_group(&fake, usual()).await;
    sleep(3 * SECOND).await;
    let given = Arc::new(AtomicU64::new(0));
    let seq = Arc::clone(&given);
    fake.state().tamper = Some(Box::new(move |granted| {
        if !granted.entries.is_empty() && seq.load(Ordering::SeqCst) == 0 {
            granted.entries[0].ack_now = true;
            seq.store(granted.seq, Ordering::SeqCst);
        }
    }));
    sleep(5 * SECOND).await;
    let (state, given) = (fake.state(), given.load(Ordering::SeqCst));
    let place = state.renews.iter().position(|(_, renew)| renew.seq == given).unwrap();
    let [(at, _), (acked_at, ack), ..] = &state.renews[place..] else { panic!("it said nothing more") };
    assert!(acked_at.since(*at) < Span::millis(10), "{} later", acked_at.since(*at));
    assert_eq!(ack.entries[0].acked_seq, given);
}

/// More groups than messages a second, each due at a time of its own.
#[tokio::test(start_paused = true)]
async fn at_most_ten_messages_a_second_are_sent_before_and_after_an_urgent_one() {
    let fake = Fake::new();
    fake.state().tamper =
        Some(Box::new(|granted| granted.entries.iter_mut().for_each(|entry| entry.ack_now = false)));
    let client = piped(&fake).connect().await.unwrap();
    let mut all = Vec::new();
    for number in 0..30 {
        let name = format!("g{number}");
        fake.group(&name, usual());
        all.push(client.group(&name).await.unwrap());
        sleep(Duration::from_millis(137)).await;
    }
    for urgent in [false, true] {
        if urgent {
            let renews = fake.state().renews.len();
            let entries = vec![v1::LowerEntry { group: "g0".into(), rate_at_most: Rate::whole(5).0 }];
            fake.push(Reply::Lower(v1::Lower { epoch: 1, entries }));
            fake.until("it is acknowledged", |state| state.renews.len() > renews).await;
            sleep(Duration::from_millis(1)).await;
        }
        let begun = fake.state().renews.len();
        for turn in 0..500_usize {
            sleep(Duration::from_millis(11)).await;
            drop(all[turn * 7 % 30].try_acquire(Ru::whole(30)));
        }
        let state = fake.state();
        let sent = &state.renews[begun..];
        let named: BTreeSet<_> =
            sent.iter().flat_map(|(_, renew)| renew.entries.iter().map(|entry| &entry.group)).collect();
        assert!(sent.len() > 40 && named.len() == 30, "{} messages, {} groups", sent.len(), named.len());
        for window in sent.windows(11) {
            let took = window[10].0.since(window[0].0);
            assert!(took >= Span::millis(990), "11 messages in {took}, after an urgent one: {urgent}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_for_several_groups_is_of_use_as_long_as_for_any_of_them() {
    let fake = Fake::new();
    ["busy", "fresh", "rare"].into_iter().for_each(|name| fake.group(name, usual()));
    // One of them asks once, and knows of quick answers only.
    fake.state().tamper = Some(Box::new(|granted| {
        for entry in granted.entries.iter_mut().filter(|entry| entry.group == "rare") {
            (entry.ttl_us, entry.renew_after_us, entry.ask_again_us) = (3_600_000_000, 3_000_000_000, 0);
        }
    }));
    let through = Through::new(&fake);
    let client = through.client().connect().await.unwrap();
    let (_rare, _busy) = (client.group("rare").await.unwrap(), client.group("busy").await.unwrap());
    sleep(3 * SECOND).await;
    let before = asked(&fake.state(), "rare").len();
    through.late(2 * SECOND);
    sleep(30 * SECOND).await;
    through.late(Duration::ZERO);
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(asked(&fake.state(), "rare").len(), before);
    // Both are due soon after a message, before the next may go, and the first knows that answers take long.
    let renews = fake.state().renews.len();
    fake.until("one goes", |state| state.renews.len() > renews).await;
    let renews = fake.state().renews.len();
    let _fresh = client.group_now("fresh").unwrap();
    let entries = vec![v1::LowerEntry { group: "rare".into(), rate_at_most: Rate::whole(1).0 }];
    fake.push(Reply::Lower(v1::Lower { epoch: 1, entries }));
    fake.until("both are asked for", |state| state.renews.len() > renews).await;
    let renew = fake.state().renews[renews].1.clone();
    assert_eq!(renew.entries.iter().map(|entry| &*entry.group).collect::<Vec<_>>(), ["fresh", "rare"]);
    assert!(renew.answer_within_us >= 1_500_000, "{renew:?}");
}

#[tokio::test(start_paused = true)]
async fn a_group_is_asked_for_as_soon_as_it_is_named() {
    let fake = Fake::new();
    fake.group("g", usual());
    let client = piped(&fake).connect().await.unwrap();
    let _group = client.group_now("g").unwrap();
    let begun = Instant::now();
    fake.until("it is asked for", |state| !asked(state, "g").is_empty()).await;
    assert!(begun.elapsed() < Duration::from_millis(20), "{:?}", begun.elapsed());
}

/// Of more than 64 questions without an answer, the oldest are forgotten, and what they asked is asked again.
#[tokio::test(start_paused = true)]
async fn the_oldest_of_too_many_questions_without_an_answer_is_asked_again() {
    for (count, again) in [(64, false), (65, true)] {
        let fake = Fake::new();
        let client = piped(&fake).connect().await.unwrap();
        fake.state().mute = true;
        let mut groups = Vec::new();
        let begun = Instant::now();
        for number in 0..count {
            groups.push(client.group_now(&format!("g{number}")).unwrap());
            fake.until("it is asked for", |state| state.renews.len() > number).await;
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(500), "{count} groups took {took:?}");
        assert!(fake.state().renews.iter().all(|(_, renew)| renew.entries.len() == 1));
        // The first would be asked for again after a second in any case.
        sleep(Duration::from_millis(900) - took).await;
        assert_eq!(asked(&fake.state(), "g0").len(), if again { 2 } else { 1 }, "of {count}");
        assert_eq!(asked(&fake.state(), "g1").len(), if again { 2 } else { 1 }, "of {count}");
    }
}
