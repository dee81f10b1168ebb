//! The session: batches, reconnects, epochs, pushed orders, malformed replies.

use std::time::Duration;

use tidegate_client::meter::thread_cpu_ns;
use tidegate_client::{LeaseState, Refused, Ru, Span, Usage};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;
use tidegate_proto::v1::server_message::Kind as Reply;

use crate::fake::{Fake, client_and_group, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn due_groups_share_one_message_and_at_most_ten_a_second_are_sent() {
    let fake = Fake::new();
    let client = piped(&fake).connect().await.unwrap();
    let mut groups = Vec::new();
    for name in ["a", "b", "c"] {
        fake.group(name, GroupSpec::capped(Rate::whole(10)));
        groups.push(client.group(name).await.unwrap());
    }
    let begun = fake.state().now();
    // More is wanted than there is, so the groups ask as often as they may.
    for _ in 0..200 {
        for group in &groups {
            drop(group.acquire(Ru::whole(1), Duration::from_millis(20)).await);
        }
    }
    let state = fake.state();
    let sent: Vec<_> = state.renews.iter().filter(|(at, _)| *at >= begun).collect();
    assert!(sent.iter().any(|(_, renew)| renew.entries.len() == 3), "no message names all groups");
    for window in sent.windows(11) {
        let took = window[10].0.since(window[0].0);
        assert!(took >= Span::millis(990), "11 messages in {took}");
    }
    let mut last = 0;
    for (_, renew) in &state.renews {
        assert!(renew.seq > last, "sequence numbers grow");
        last = renew.seq;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_asks_for_the_first_time_does_not_wait_for_its_turn() {
    let fake = Fake::new();
    let client = piped(&fake).connect().await.unwrap();
    let begun = fake.state().now();
    for number in 0..20 {
        let name = format!("g{number}");
        fake.group(&name, GroupSpec::capped(Rate::whole(10)));
        client.group(&name).await.unwrap();
    }
    let took = fake.state().now().since(begun);
    assert!(took < Span::millis(200), "20 groups took {took}");
}

#[tokio::test(start_paused = true)]
async fn node_totals_are_sent_at_most_every_five_seconds() {
    // Of a process that used enough of a processor to be seen.
    while thread_cpu_ns() < 30_000_000 {}
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(10))).await;
    group.charge(&Usage { cpu_ns: 7, ..Usage::default() });
    fake.until("fifteen seconds of renewals", |state| state.now().0 > 15_000_000 && state.renews.len() > 10)
        .await;
    let state = fake.state();
    let with_stats: Vec<_> = state.renews.iter().filter(|(_, renew)| renew.node.is_some()).collect();
    assert!((2..=4).contains(&with_stats.len()), "{}", with_stats.len());
    for (_, renew) in with_stats {
        let sent = renew.node.unwrap();
        assert!(sent.process_cpu_ns >= 20_000_000 && sent.resident_bytes > 1_000_000, "{sent:?}");
    }
    let newest = state.renews.iter().rev().find_map(|(_, renew)| renew.node).unwrap();
    drop(state);
    let stats = client.stats();
    let process = stats.process.unwrap();
    assert_eq!((newest.process_cpu_ns, newest.resident_bytes), (process.cpu_ns, process.resident_bytes));
    assert_eq!((newest.metered_cpu_ns, stats.metered_cpu_ns), (7, 7));
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_spends_its_lease_then_refuses_then_recovers() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
    fake.go_down();
    eventually("the loss is noticed", || !client.stats().link.connected).await;
    assert_eq!(group.state().lease, LeaseState::Leased);
    drop(group.acquire(Ru::whole(1), SECOND).await.expect("the lease is spent while the stream is gone"));
    eventually("the lease ends", || group.state().lease == LeaseState::Expired).await;
    let refused = group.try_acquire(Ru::whole(1)).unwrap_err();
    assert!(matches!(refused, Refused::Unavailable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("group g"), "{refused}");
    let begun = fake.state().now();
    let refused = group.acquire(Ru::whole(1), SECOND).await.unwrap_err();
    assert!(matches!(refused, Refused::Unavailable { .. }), "{refused:?}");
    let waited = fake.state().now().since(begun);
    assert!((Span::millis(990)..Span::millis(1_100)).contains(&waited), "waited {waited}");
    fake.come_back();
    drop(group.acquire(Ru::whole(1), Duration::from_secs(30)).await.expect("a new lease"));
    let counts = client.stats().counts;
    assert!(counts.sessions >= 2 && counts.session_failures >= 2, "{counts:?}");
    // Consumption without a session is reported after it.
    fake.until("all is reported", |state| state.total("g") == group.consumption().ru().clamped()).await;
    let state = fake.state();
    assert!(state.hellos.iter().all(|hello| hello.incarnation == state.hellos[0].incarnation));
}

#[tokio::test(start_paused = true)]
async fn a_silent_controller_is_left_for_another_try() {
    let fake = Fake::new();
    let (client, _group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    fake.state().mute = true;
    fake.until("the client comes again", |state| state.hellos.len() >= 2).await;
    fake.state().mute = false;
    eventually("grants flow", || client.stats().link.connected).await;
    assert!(client.stats().counts.timeouts >= 1);
}

#[tokio::test(start_paused = true)]
async fn grants_and_orders_of_an_older_epoch_are_ignored() {
    let fake = Fake::new();
    fake.state().epoch = 7;
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    assert_eq!(client.stats().link.epoch, 7);
    drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
    let rate = group.state().rate;
    let entries = vec![v1::LowerEntry { group: "g".into(), rate_at_most: 0 }];
    fake.push(Reply::Lower(v1::Lower { epoch: 6, entries }));
    eventually("the order is seen", || client.stats().counts.old_epochs >= 1).await;
    assert_eq!(group.state().rate, rate);
    fake.state().tamper = Some(Box::new(|granted| granted.epoch = 6));
    let grants = client.stats().counts.grants;
    eventually("the lease runs out", || group.state().lease == LeaseState::Expired).await;
    assert_eq!(client.stats().counts.grants, grants);
    // A controller that says it leads an older epoch is not followed at all.
    fake.state().tamper = None;
    fake.go_down();
    fake.state().epoch = 6;
    let old = client.stats().counts.old_epochs;
    fake.come_back();
    eventually("it was left", || client.stats().link.last_error.contains("epoch 6")).await;
    assert!(client.stats().counts.old_epochs > old);
    fake.state().epoch = 8;
    drop(group.acquire(Ru::whole(1), Duration::from_secs(30)).await.expect("the new leader grants"));
    assert_eq!(client.stats().link.epoch, 8);
}

#[tokio::test(start_paused = true)]
async fn a_pushed_order_is_obeyed_and_acknowledged_at_once() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
    assert!(group.state().rate > Rate::whole(5));
    let renews = fake.state().renews.len();
    let begun = fake.state().now();
    let entries = vec![v1::LowerEntry { group: "g".into(), rate_at_most: Rate::whole(5).0 }];
    fake.push(Reply::Lower(v1::Lower { epoch: 1, entries }));
    fake.until("acknowledged", |state| state.renews.len() > renews).await;
    let (at, renew) = fake.state().renews[renews].clone();
    assert!(at.since(begun) < Span::millis(10), "{} later", at.since(begun));
    assert!(renew.entries[0].held_rate <= Rate::whole(5).0, "{renew:?}");
    assert_eq!(renew.entries[0].proof, b"proof of g");
    assert_eq!(client.stats().counts.lowers, 1);
}

#[tokio::test(start_paused = true)]
async fn malformed_replies_are_refused_and_asked_again() {
    type Break = fn(&mut v1::Granted);
    let breaks: [Break; 9] = [
        |granted| granted.entries.iter_mut().for_each(|entry| entry.rate = -1),
        |granted| granted.entries.iter_mut().for_each(|entry| entry.cap_micro_ru = i64::MAX),
        |granted| granted.entries.iter_mut().for_each(|entry| entry.lump_micro_ru = i64::MIN),
        |granted| granted.entries.iter_mut().for_each(|entry| entry.ttl_us = u64::MAX),
        |granted| granted.entries.iter_mut().for_each(|entry| entry.status = 77),
        |granted| granted.entries.iter_mut().for_each(|entry| entry.proof = vec![1; 10_000]),
        |granted| granted.entries.iter_mut().for_each(|entry| entry.group = "another".into()),
        |granted| granted.entries.clear(),
        |granted| granted.durable_seq = u64::MAX,
    ];
    for (number, break_it) in breaks.into_iter().enumerate() {
        let fake = Fake::new();
        let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
        drop(group.acquire(Ru::whole(1), SECOND).await.unwrap());
        fake.state().tamper = Some(Box::new(break_it));
        eventually("refused", || client.stats().counts.malformed >= 1).await;
        assert!(client.stats().link.connected, "case {number}");
        fake.state().tamper = None;
        let grants = client.stats().counts.grants;
        eventually("asked again", || client.stats().counts.grants > grants).await;
        drop(group.acquire(Ru::whole(1), Duration::from_secs(10)).await.unwrap());
        fake.until("reported", |state| state.total("g") == group.consumption().ru().clamped()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn out_of_turn_messages_change_nothing() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    let grant = v1::GrantEntry {
        group: "g".into(),
        status: v1::GrantStatus::Leased.into(),
        rate: Rate::MAX.0,
        cap_micro_ru: Ru::MAX.0,
        fill_micro_ru: Ru::MAX.0,
        ttl_us: 60_000_000,
        ..v1::GrantEntry::default()
    };
    for reply in [
        Reply::Granted(v1::Granted {
            seq: 0,
            epoch: 1,
            entries: vec![grant.clone()],
            durable_seq: 0,
            ..Default::default()
        }),
        Reply::Granted(v1::Granted {
            seq: 1,
            epoch: 1,
            entries: vec![grant.clone()],
            durable_seq: 0,
            ..Default::default()
        }),
        Reply::Granted(v1::Granted {
            seq: 9_999,
            epoch: 1,
            entries: vec![grant],
            durable_seq: 0,
            ..Default::default()
        }),
        Reply::Farewell(v1::Farewell { seq: 3, ..Default::default() }),
        Reply::Welcome(v1::Welcome::default()),
        Reply::Lower(v1::Lower {
            epoch: 1,
            entries: vec![v1::LowerEntry { group: "g".into(), rate_at_most: -1 }],
        }),
    ] {
        fake.push(reply);
    }
    eventually("all are seen", || {
        let counts = client.stats().counts;
        counts.stale_grants == 3 && counts.malformed == 3
    })
    .await;
    assert!(group.state().available <= Ru::whole(1_000), "{:?}", group.state());
}

#[tokio::test(start_paused = true)]
async fn reports_are_repeated_until_they_are_durable() {
    let fake = Fake::new();
    fake.state().forgetful = true;
    let (_client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    drop(group.acquire(Ru::whole(3), SECOND).await.unwrap());
    let carrying =
        |state: &crate::fake::State| state.renews.iter().filter(|(_, r)| !r.reports.is_empty()).count();
    fake.until("reported thrice", |state| carrying(state) >= 3).await;
    fake.state().forgetful = false;
    let count = carrying(&fake.state());
    fake.until("renewed five times more", |state| state.renews.len() >= count + 10).await;
    assert!(carrying(&fake.state()) <= count + 2, "still reported after it was durable");
    assert_eq!(fake.total("g"), Ru::whole(3));
}
