//! What goes over the stream, message by message, and what the client counts of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_client::{Client, Group, LeaseState, Ru, RuParts};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::{Rate, Span, Time};
use tidegate_proto::v1;
use tidegate_proto::v1::server_message::Kind as Reply;
use tokio::time::sleep;

use crate::fake::{Fake, State, client_and_group, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);

fn usual() -> GroupSpec {
    GroupSpec::capped(Rate::whole(1_000))
}

/// A client of five groups, of which two fit a message: its goodbye needs messages before it.
async fn five() -> (Fake, Client, Vec<Group>) {
    let fake = Fake::new();
    fake.state().max_entries = 2;
    let client = piped(&fake).connect().await.unwrap();
    let mut groups = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        fake.group(name, usual());
        groups.push(client.group(name).await.unwrap());
    }
    (fake, client, groups)
}

/// Changes the next answers, so many.
fn tamper(
    fake: &Fake,
    count: usize,
    mut change: impl FnMut(&mut v1::Granted) + Send + 'static,
) -> Arc<AtomicUsize> {
    let done = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&done);
    fake.state().tamper = Some(Box::new(move |granted: &mut v1::Granted| {
        if counter.load(Ordering::SeqCst) < count {
            counter.fetch_add(1, Ordering::SeqCst);
            change(granted);
        }
    }));
    done
}

#[tokio::test(start_paused = true)]
async fn what_a_client_counts_is_what_its_controller_heard() {
    let (fake, client, groups) = five().await;
    for turn in 0..50 {
        for group in groups.iter().skip(turn % 3) {
            group.acquire(Ru::whole(20), SECOND).await.unwrap().settle_ru(RuParts::flat(Ru::whole(20)));
        }
        sleep(Duration::from_millis(37)).await;
        if turn == 25 {
            fake.go_down();
            eventually("the loss is noticed", || !client.stats().link.connected).await;
            fake.come_back();
            eventually("it is back", || client.stats().link.connected).await;
        }
    }
    for group in &groups {
        group.charge_ru(RuParts::flat(Ru::whole(1)));
    }
    let shutdown = client.shutdown().await;
    assert_eq!((shutdown.unconfirmed, shutdown.open_permits), (Vec::new(), 0));
    let (state, counts) = (fake.state(), client.stats().counts);
    let asks: usize = state.renews.iter().map(|(_, renew)| renew.entries.len()).sum();
    let heard = [state.renews.len(), asks].map(|count| u64::try_from(count).unwrap());
    assert_eq!([counts.renewals, counts.asks], heard, "{counts:?}");
    assert_eq!((counts.malformed, counts.shed, counts.old_epochs), (0, 0, 0), "{counts:?}");
    assert!(counts.grants + counts.late_grants <= counts.asks, "{counts:?}");
    let [goodbye] = &state.goodbyes[..] else { panic!("{:?}", state.goodbyes) };
    let (_, before) = state.renews.last().unwrap();
    assert!(before.entries.is_empty() && before.seq + 1 == goodbye.seq, "{before:?} before {goodbye:?}");
    assert_eq!(before.reports.len(), 2);
    let charged: Ru = groups.iter().map(|group| group.consumption().ru().clamped()).sum();
    assert_eq!(["a", "b", "c", "d", "e"].map(|name| state.total(name)).into_iter().sum::<Ru>(), charged);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_says_when_it_was_sent_and_how_long_its_answer_is_of_use() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, usual()).await;
    for _ in 0..30 {
        drop(group.acquire(Ru::whole(30), SECOND).await.unwrap());
    }
    let state = fake.state();
    let (first_at, first) = &state.renews[0];
    for (at, renew) in &state.renews {
        assert!(renew.counts_requests && renew.counts_rolling, "{renew:?}");
        assert_eq!(renew.sent_us - first.sent_us, at.since(*first_at).0, "{renew:?}");
        assert_eq!(renew.answer_within_us > 0, !renew.entries.is_empty(), "{renew:?}");
        assert!(renew.answer_within_us < 5_000_000, "a lease is no longer: {renew:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_says_who_it_is_and_of_its_software_as_much_as_a_controller_takes() {
    let fake = Fake::new();
    let client = piped(&fake).agent(&"é".repeat(70)).connect().await.unwrap();
    let expected = v1::Hello {
        protocol_min: 1,
        protocol_max: 1,
        client_id: "node-1".into(),
        incarnation: client.stats().incarnation,
        agent: "é".repeat(64),
        ..v1::Hello::default()
    };
    assert!(expected.incarnation > 0);
    assert_eq!(fake.state().hellos, [expected]);
}

/// When the group was asked for.
fn asked(state: &State, group: &str) -> Vec<Time> {
    let of_group = |renew: &v1::Renew| renew.entries.iter().any(|entry| entry.group == group);
    state.renews.iter().filter(|(_, renew)| of_group(renew)).map(|(at, _)| *at).collect()
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_answer_is_of_no_use_asks_again_a_second_later() {
    type Break = fn(&mut v1::Granted);
    let breaks: [(Break, u64); 3] = [
        (|granted| granted.entries[0].rate = -1, 0),
        (|granted| granted.entries.clear(), 0),
        (|granted| granted.entries[0].group = "another".into(), 1),
    ];
    for (number, (break_it, stale)) in breaks.into_iter().enumerate() {
        let fake = Fake::new();
        let (client, group) = client_and_group(&fake, usual()).await;
        sleep(SECOND / 5).await;
        let before = client.stats().counts;
        let bad = tamper(&fake, 1, break_it);
        // It is asked for often meanwhile.
        while bad.load(Ordering::SeqCst) == 0 {
            drop(group.acquire(Ru::whole(30), SECOND).await.unwrap());
        }
        let refused = asked(&fake.state(), "g").len();
        let until = fake.state().now().after(Span::secs(3));
        while fake.state().now() < until {
            drop(group.acquire(Ru::whole(100), SECOND / 10).await);
            sleep(SECOND / 100).await;
        }
        let after = client.stats().counts;
        assert_eq!(after.malformed - before.malformed, 1, "case {number}");
        assert_eq!(after.stale_grants - before.stale_grants, stale, "case {number}");
        let state = fake.state();
        let asked = asked(&state, "g");
        let pause = asked[refused].since(asked[refused - 1]);
        assert!((Span::secs(1)..Span::millis(1_150)).contains(&pause), "case {number}: {pause}");
        let next = asked[refused + 1].since(asked[refused]);
        assert!(next < Span::millis(900), "case {number}: {next}, though its answer was good");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_controller_sheds_counts_once_for_each_group_and_is_asked_again() {
    let fake = Fake::new();
    let client = piped(&fake).connect().await.unwrap();
    let mut groups = Vec::new();
    for name in ["a", "b"] {
        fake.group(name, usual());
        groups.push(client.group(name).await.unwrap());
    }
    let together = |state: &State| state.renews.last().is_some_and(|(_, renew)| renew.entries.len() == 2);
    let named = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&named);
    tamper(&fake, 3, move |granted| {
        count.fetch_add(granted.entries.len(), Ordering::SeqCst);
        (granted.shed, granted.entries) = (true, Vec::new());
    });
    let use_them = async || {
        for group in &groups {
            drop(group.acquire(Ru::whole(50), SECOND / 10).await);
        }
    };
    while !together(&fake.state()) {
        use_them().await;
    }
    eventually("all are shed", || client.stats().counts.shed >= 3).await;
    let before = client.stats().counts.grants;
    use_them().await;
    eventually("they have answers again", || client.stats().counts.grants > before + 4).await;
    let (stats, counts) = (client.stats(), client.counts());
    assert_eq!((counts, client.link()), (stats.counts, stats.link));
    assert_eq!(counts.shed, u64::try_from(named.load(Ordering::SeqCst)).unwrap());
    assert_eq!((counts.malformed, counts.session_failures), (0, 0), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn the_next_controller_is_shown_what_the_last_one_said_of_itself_and_nothing_older() {
    // None says more than 256 bytes of itself, and a part of what one says is worth nothing.
    for (length, kept) in [(1, 1), (256, 256), (257, 0)] {
        let fake = Fake::new();
        fake.state().epoch = 3;
        let (client, _group) = client_and_group(&fake, usual()).await;
        let said = tamper(&fake, 1, move |granted| granted.standing = vec![7; length]);
        fake.until("it is said", |_| said.load(Ordering::SeqCst) == 1).await;
        // An answer that says nothing of it changes nothing.
        let answers = client.stats().counts.grants;
        eventually("more answers", || client.stats().counts.grants >= answers + 3).await;
        for expected in [kept, 0] {
            let hellos = fake.state().hellos.len();
            fake.go_down();
            eventually("the loss is noticed", || !client.stats().link.connected).await;
            fake.come_back();
            eventually("it is back", || client.stats().link.connected).await;
            let state = fake.state();
            let hello = &state.hellos[hellos];
            assert_eq!((&*hello.seen_standing, hello.seen_epoch), (&*vec![7; expected], 3), "{length}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_is_silent_after_three_seconds_without_any_answer() {
    let fake = Fake::new();
    let (client, _group) = client_and_group(&fake, usual()).await;
    fake.state().mute = true;
    let renews = fake.state().renews.len();
    fake.until("it asks", |state| state.renews.len() > renews).await;
    let asked = fake.state().renews[renews].0;
    eventually("it is left", || !client.stats().link.connected).await;
    let silence = fake.state().now().since(asked);
    assert!((Span::secs(3)..Span::millis(3_100)).contains(&silence), "{silence}");
    assert!(client.stats().link.last_error.contains("answered nothing for 3"), "{:?}", client.stats().link);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_refused_counts_once_a_stream_and_is_not_confirmed() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, usual()).await;
    fake.state().refuses = Some("g");
    drop(group.acquire(Ru::whole(3), SECOND).await.unwrap());
    eventually("it is refused", || client.stats().counts.reports_refused == 1).await;
    sleep(5 * SECOND).await;
    assert_eq!(client.stats().counts.reports_refused, 1, "nothing has changed");
    fake.go_down();
    eventually("the loss is noticed", || !client.stats().link.connected).await;
    fake.come_back();
    eventually("it is refused again", || client.stats().counts.reports_refused == 2).await;
    let left = client.shutdown().await.unconfirmed;
    assert_eq!(
        left.iter().map(|left| (&*left.group, left.ru.clamped())).collect::<Vec<_>>(),
        [("g", Ru::whole(3))]
    );
}

#[tokio::test(start_paused = true)]
async fn each_session_keeps_to_the_limit_that_its_own_controller_names() {
    for (first, second) in [(0, 2), (2, 0), (4, 2)] {
        let fake = Fake::new();
        fake.state().max_entries = first;
        let client = piped(&fake).connect().await.unwrap();
        let names = ["a", "b", "c", "d", "e", "f"];
        for name in names {
            fake.group(name, usual());
            client.group(name).await.unwrap();
        }
        fake.go_down();
        eventually("the loss is noticed", || !client.is_connected()).await;
        fake.state().max_entries = second;
        fake.come_back();
        eventually("it is back", || client.is_connected() && client.stats().counts.watch_events > 0).await;
        sleep(5 * SECOND).await;
        let before = fake.state().renews.len();
        // All are due at once.
        names.iter().for_each(|name| fake.group(name, usual()));
        let asked = |state: &State| -> Vec<_> {
            state.renews[before..].iter().map(|(_, renew)| renew.entries.len()).collect()
        };
        fake.until("all are asked for", |state| asked(state).iter().sum::<usize>() >= names.len()).await;
        let most = if second == 0 { names.len() } else { usize::try_from(second).unwrap() };
        assert_eq!(asked(&fake.state()).into_iter().max(), Some(most), "{second} after {first}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_names_no_limit_is_asked_for_a_thousand_groups_at_once_and_no_more() {
    let fake = Fake::new();
    let client = piped(&fake).connect().await.unwrap();
    let _groups: Vec<_> = (0..1_001).map(|number| client.group_now(&format!("g{number}")).unwrap()).collect();
    fake.until("all are asked for", |state| state.renews.len() >= 2).await;
    let state = fake.state();
    assert_eq!([0, 1].map(|place| state.renews[place].1.entries.len()), [1_000, 1]);
}

/// The controller waits for one group to say that it holds less; the answer for another one behind it changes nothing.
#[tokio::test(start_paused = true)]
async fn an_answer_that_wants_to_be_acknowledged_is_at_once_also_with_others_in_its_message() {
    for wanted in [0, 1] {
        let fake = Fake::new();
        let client = piped(&fake).connect().await.unwrap();
        for name in ["a", "b"] {
            fake.group(name, usual());
            client.group(name).await.unwrap();
        }
        sleep(SECOND).await;
        let renews = fake.state().renews.len();
        tamper(&fake, 1, move |granted| {
            for (place, entry) in granted.entries.iter_mut().enumerate() {
                entry.ack_now = place == wanted;
            }
        });
        ["a", "b"].iter().for_each(|name| fake.group(name, usual()));
        fake.until("it is acknowledged", |state| state.renews.len() >= renews + 2).await;
        let state = fake.state();
        let [(asked, both), (acked, one)] = &state.renews[renews..renews + 2] else { unreachable!() };
        assert_eq!((both.entries.len(), one.entries.len()), (2, 1));
        assert_eq!(one.entries[0].group, both.entries[wanted].group);
        assert!(acked.since(*asked) < Span::millis(5), "{}", acked.since(*asked));
    }
}

#[tokio::test(start_paused = true)]
async fn lowered_leases_are_acknowledged_at_once_also_where_they_need_several_messages() {
    let fake = Fake::new();
    fake.state().max_entries = 2;
    let client = piped(&fake).connect().await.unwrap();
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        fake.group(name, usual());
        client.group(name).await.unwrap();
    }
    sleep(SECOND / 2).await;
    let before = fake.state().renews.len();
    let lower = |name: &str| v1::LowerEntry { group: name.into(), rate_at_most: 1 };
    let entries = names.map(lower).into();
    fake.push(Reply::Lower(v1::Lower { epoch: 1, entries }));
    fake.until("all are acknowledged", |state| state.renews.len() >= before + 3).await;
    let state = fake.state();
    let sent = &state.renews[before..before + 3];
    assert_eq!(sent.iter().map(|(_, renew)| renew.entries.len()).collect::<Vec<_>>(), [2, 2, 1]);
    assert!(sent[2].0.since(sent[0].0) < Span::millis(5), "{}", sent[2].0.since(sent[0].0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_speaks_for_its_own_request_and_not_for_those_before() {
    let fake = Fake::new();
    let client = piped(&fake).connect().await.unwrap();
    fake.state().mute = true;
    let mut asked = Vec::new();
    for name in ["a", "b"] {
        let group = client.group_now(name).unwrap();
        let before = fake.state().renews.len();
        fake.until("it is asked for", |state| state.renews.len() > before).await;
        asked.push((group, fake.state().renews[before].1.seq));
    }
    for (group, seq) in asked.iter().rev() {
        let entry = v1::GrantEntry {
            group: group.name().to_string(),
            status: v1::GrantStatus::Unlimited.into(),
            ttl_us: 60_000_000,
            renew_after_us: 30_000_000,
            ..v1::GrantEntry::default()
        };
        fake.push(Reply::Granted(v1::Granted {
            seq: *seq,
            epoch: 1,
            entries: vec![entry],
            ..Default::default()
        }));
        eventually("it is free", || group.state().lease == LeaseState::Unlimited).await;
    }
    let counts = client.counts();
    assert_eq!((counts.grants, counts.stale_grants, counts.timeouts), (2, 0, 0), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_to_the_reports_ahead_of_a_goodbye_are_expected() {
    let (_fake, client, groups) = five().await;
    groups.iter().for_each(|group| _ = group.charge_ru(RuParts::flat(Ru::whole(1))));
    let (stale, renewals) = (client.counts().stale_grants, client.counts().renewals);
    assert_eq!(client.shutdown().await.unconfirmed, []);
    assert!(client.counts().renewals >= renewals + 2, "the goodbye has room for two of five");
    assert_eq!(client.counts().stale_grants, stale);
}
