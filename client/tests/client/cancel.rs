//! Dropping an `acquire` at any moment leaks nothing.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_client::{Permit, QuotaUnit, Ru, RuParts, Usage};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::{Rate, Span};
use tidegate_proto::v1;

use crate::fake::{Fake, client_and_group, eventually, piped};

const HOUR: Duration = Duration::from_secs(3_600);

/// A group that holds 100 RU and gets nothing more, so that every leaked micro-RU shows.
pub(crate) fn fixed_hundred(fake: &Fake) {
    fake.state().tamper = Some(Box::new(|granted: &mut v1::Granted| {
        for entry in &mut granted.entries {
            (entry.rate, entry.lump_micro_ru) = (0, 0);
            (entry.cap_micro_ru, entry.max_fit_micro_ru) = (Ru::whole(100).0, Ru::whole(100).0);
            entry.fill_micro_ru = if granted.seq == 1 { Ru::whole(100).0 } else { 0 };
            (entry.ttl_us, entry.renew_after_us, entry.ask_again_us) = (3_600_000_000, 3_000_000_000, 0);
            (entry.ack_now, entry.scarce) = (false, false);
        }
    }));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_in_the_queue_or_just_admitted_leaves_nothing_behind() {
    let fake = Fake::new();
    fixed_hundred(&fake);
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    let all = group.try_acquire(Ru::whole(100)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = Box::pin(group.acquire(Ru::whole(60), HOUR));
    let mut second = Box::pin(group.acquire(Ru::whole(60), HOUR));
    let mut third = Box::pin(group.acquire(Ru::whole(60), HOUR));
    for waiter in [&mut first, &mut second, &mut third] {
        assert!(waiter.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(group.state().waiting, 3);
    drop(second);
    assert_eq!(group.state().waiting, 2);
    // Admits the first, which is dropped before it hears of it; that admits the third.
    all.cancel();
    assert_eq!(group.state().available, Ru::whole(40));
    drop(first);
    assert_eq!((group.state().waiting, group.state().available), (0, Ru::whole(40)));
    let Poll::Ready(Ok(permit)) = third.as_mut().poll(&mut context) else { panic!("the third is next") };
    permit.cancel();
    assert_eq!(group.state().available, Ru::whole(100));
    assert_eq!(client.stats().counts.abandoned, 2);
    assert_eq!(group.consumption().operations, 0);
    drop(third);
    assert_eq!(client.shutdown().await.open_permits, 0);
}

/// Requests that began, as the next renewal says, which a change of the definition brings on.
async fn told(fake: &Fake, spec: &GroupSpec) -> u64 {
    let before = fake.state().renews.len();
    fake.group("g", spec.clone());
    fake.until("a renewal", |state| state.renews.len() > before).await;
    let state = fake.state();
    let (_, renew) = &state.renews[before];
    renew.entries[0].requests.unwrap().used
}

/// A window that rolls may have let go by then what the controller was told of.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_was_just_admitted_gives_back_the_request_that_the_controller_was_not_told_of() {
    let fake = Fake::new();
    fixed_hundred(&fake);
    let spec = GroupSpec {
        quota: Some(Ru::whole(1_000)),
        quota_unit: QuotaUnit::Requests,
        ..GroupSpec::capped(Rate::whole(1_000))
    };
    fake.group("g", spec.clone());
    fake.open_rolling_quota("g", Span::secs(60));
    let client = piped(&fake).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    // Its clock ticks: what began in the moment of a renewal is never given back.
    let tick = || tokio::time::sleep(Duration::from_millis(50));
    tick().await;
    let all = group.acquire(Ru::whole(100), HOUR).await.unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut early = Box::pin(group.acquire(Ru::whole(50), HOUR));
    let mut late = Box::pin(group.acquire(Ru::whole(50), HOUR));
    for waiter in [&mut early, &mut late] {
        assert!(waiter.as_mut().poll(&mut context).is_pending());
    }
    // Admits both, which never hear of it.
    all.cancel();
    assert_eq!(group.state().waiting, 0);
    drop(early);
    assert_eq!(told(&fake, &spec).await, 1);
    tick().await;
    drop(late);
    assert_eq!(group.state().available, Ru::whole(100));
    assert_eq!(told(&fake, &spec).await, 1);
    assert_eq!(client.shutdown().await.open_permits, 0);
}

#[tokio::test(start_paused = true)]
async fn however_an_operation_ends_no_permit_stays_open() {
    type End = fn(Permit<'_>);
    let cpu = |cpu_ns| Usage { cpu_ns, ..Usage::default() };
    let ends: [(&str, End); 7] = [
        ("dropped", |permit| drop(permit)),
        ("cancelled", |permit| permit.cancel()),
        ("cost nothing", |permit| _ = permit.settle_ru(RuParts::default())),
        ("cost more", |permit| _ = permit.settle_ru(RuParts::flat(Ru::whole(5)))),
        ("owned, dropped", |permit| drop(permit.into_owned())),
        ("owned, cancelled", |permit| permit.into_owned().cancel()),
        ("charged on the way", |mut permit| _ = permit.charge(&Usage { cpu_ns: 7, ..Usage::default() })),
    ];
    for (how, end) in ends {
        // Admitted at once, and out of the queue; and a neighbour in the queue goes away at each moment.
        let fake = Fake::new();
        fixed_hundred(&fake);
        let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
        let mut context = Context::from_waker(Waker::noop());
        end(group.try_acquire(Ru::whole(1)).unwrap());
        end(group.owe());
        let first = group.try_acquire(group.state().available).unwrap();
        let mut queued = Box::pin(group.acquire(Ru::whole(1), HOUR));
        let mut gone = Box::pin(group.acquire(Ru::whole(1), HOUR));
        let mut admitted = Box::pin(group.acquire(Ru::whole(1), HOUR));
        for waiter in [&mut queued, &mut gone, &mut admitted] {
            assert!(waiter.as_mut().poll(&mut context).is_pending());
        }
        drop(gone);
        first.cancel();
        // Both were admitted; one goes away before it hears of it.
        drop(admitted);
        let Poll::Ready(Ok(permit)) = queued.as_mut().poll(&mut context) else {
            panic!("{how}: not admitted")
        };
        end(permit);
        drop(queued);
        let mut late = Box::pin(group.acquire(Ru::whole(1_000), Duration::from_millis(1)));
        assert!(late.as_mut().poll(&mut context).is_ready(), "{how}: it never fits");
        drop(late);
        group.charge(&cpu(1));
        assert_eq!(client.shutdown().await.open_permits, 0, "{how}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_acquires_cancels_and_settlements_conserve_every_token() {
    let fake = Fake::new();
    fixed_hundred(&fake);
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let group = group.clone();
            tokio::spawn(async move {
                for round in 0..400_u64 {
                    let cost = Ru::whole(i64::try_from((task * 7 + round * 13) % 30 + 1).unwrap());
                    let yields = (task + round * 5) % 4;
                    let give_up = async {
                        for _ in 0..yields {
                            tokio::task::yield_now().await;
                        }
                    };
                    let permit = tokio::select! {
                        permit = group.acquire(cost, HOUR) => permit.unwrap(),
                        () = give_up => continue,
                    };
                    tokio::task::yield_now().await;
                    // Nothing is spent for good, so that what is missing at the end was leaked.
                    match round % 2 {
                        0 => permit.cancel(),
                        _ => drop(permit.settle_ru(RuParts::default())),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    eventually("the queue is empty", || group.state().waiting == 0).await;
    assert_eq!(group.state().available, Ru::whole(100));
    assert_eq!((group.state().debt, group.consumption().ru().clamped()), (Ru::ZERO, Ru::ZERO));
    drop(group.try_acquire(Ru::whole(100)).unwrap());
    assert_eq!(client.shutdown().await.open_permits, 0);
}
