//! Admission through a group handle: try, wait, check, settle, drop, cancel, charge.

use std::time::Duration;

use tidegate_client::{GroupError, LeaseState, Limits, Refused, Ru, RuParts, Usage};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;
use tokio::time::Instant;

use crate::fake::{Fake, client_and_group, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn an_operation_is_admitted_settled_and_reported() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    let permit = group.acquire(Ru::whole(10), SECOND).await.unwrap();
    assert_eq!((permit.estimate(), &**permit.group()), (Ru::whole(10), "g"));
    let charge = permit.settle(&Usage { cpu_ns: 6_000_000, net_out_bytes: 100, ..Usage::default() });
    assert!(charge.cpu.is_positive(), "{charge:?}");
    let consumed = group.consumption();
    assert_eq!(
        (consumed.ru().clamped(), consumed.operations, consumed.usage.cpu_ns),
        (charge.total(), 1, 6_000_000)
    );
    fake.until("reported", |state| state.total("g") == charge.total()).await;
    assert_eq!(client.stats().metered_cpu_ns, 6_000_000);
    assert_eq!(client.stats().groups, 1);
}

#[tokio::test(start_paused = true)]
async fn an_operation_pays_as_it_runs_and_counts_once() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    let full = group.state().available;
    let third = Usage { cpu_ns: 9_000_000, ..Usage::default() };
    let mut permit = group.acquire(Ru::whole(5), SECOND).await.unwrap();
    assert_eq!(permit.charge(&third).total(), Ru::whole(3));
    assert_eq!((permit.estimate(), group.consumption().operations), (Ru::whole(2), 0));
    assert_eq!(group.state().available, full - Ru::whole(5), "paid from the estimate");
    assert_eq!(permit.charge(&third).total(), Ru::whole(3));
    assert_eq!(permit.estimate(), Ru::ZERO);
    assert_eq!(group.state().available, full - Ru::whole(6), "what is above it is paid at once");
    assert_eq!(permit.settle(&third).total(), Ru::whole(3));
    let consumed = group.consumption();
    assert_eq!(
        (consumed.ru().clamped(), consumed.operations, consumed.usage.cpu_ns),
        (Ru::whole(9), 1, 27_000_000)
    );
    assert_eq!(group.state().available, full - Ru::whole(9));
}

#[tokio::test(start_paused = true)]
async fn what_must_not_wait_is_owed_and_paid_before_anyone_is_admitted() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    let mut permit = group.owe();
    let second = Usage { cpu_ns: 3_000_000_000, ..Usage::default() };
    permit.charge(&second);
    permit.settle(&second);
    let state = group.state();
    assert!(state.debt.is_positive() && group.try_acquire(Ru::whole(1)).is_err(), "{state:?}");
    assert_eq!(group.consumption().operations, 1);
    drop(group.owe());
    assert_eq!((group.consumption().operations, group.consumption().ru().clamped()), (2, Ru::whole(2_000)));
    group.acquire(Ru::whole(1), Duration::from_secs(10)).await.unwrap().cancel();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_taken_now_is_not_counted() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    group.take(Ru::whole(100)).unwrap().settle_ru(RuParts::flat(Ru::whole(100)));
    let left = group.remaining().unwrap();
    assert!(group.take(left + Ru::whole(50)).is_none() && group.take(Ru(-1)).is_none());
    assert_eq!((group.consumption().throttled, group.remaining()), (0, Some(left)));
    group.acquire(left + Ru::whole(50), Duration::from_secs(5)).await.unwrap().cancel();
    assert_eq!((group.consumption().operations, group.consumption().throttled), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn drop_charges_the_estimate_and_cancel_gives_it_back() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    drop(group.acquire(Ru::whole(7), SECOND).await.unwrap());
    assert_eq!(group.consumption().charged.flat, Ru::whole(7).into());
    let before = group.state().available;
    group.acquire(Ru::whole(5), SECOND).await.unwrap().cancel();
    assert!(group.state().available >= before);
    assert_eq!((group.consumption().ru().clamped(), group.consumption().operations), (Ru::whole(7), 1));
    let negative = RuParts { cpu: Ru(-5), ..RuParts::flat(Ru::whole(2)) };
    let charged = group.acquire(Ru::whole(1), SECOND).await.unwrap().settle_ru(negative);
    assert_eq!(charged, RuParts::flat(Ru::whole(2)));
    assert_eq!(group.charge_ru(RuParts::flat(Ru::whole(3))), RuParts::flat(Ru::whole(3)));
    assert_eq!(group.charge(&Usage::default()).total(), Ru::ZERO);
    assert_eq!((group.consumption().ru().clamped(), group.consumption().operations), (Ru::whole(12), 4));
}

#[tokio::test(start_paused = true)]
async fn a_full_group_throttles_at_once_and_says_when_to_retry() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(100))).await;
    let mut taken = Vec::new();
    let refused = loop {
        match group.try_acquire(Ru::whole(10)) {
            Ok(permit) => taken.push(permit),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(&refused, Refused::Throttled { group, .. } if &***group == "g"), "{refused:?}");
    assert!(refused.to_string().starts_with("group g is throttled; retry in"), "{refused}");
    assert!(group.check(Ru::whole(10)).is_err() && refused.retry_after().is_some());
    // Waiting longer than that succeeds.
    group.acquire(Ru::whole(10), 2 * SECOND).await.unwrap().cancel();
    assert_eq!(client.stats().counts.refused, 1);
    assert!(group.consumption().throttled >= 1);
}

#[tokio::test(start_paused = true)]
async fn what_never_fits_and_what_makes_no_sense_is_told_apart() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(100))).await;
    let refused = group.acquire(Ru::whole(5_000), SECOND).await.unwrap_err();
    let Refused::NeverFits { max, cost, .. } = &refused else { panic!("{refused:?}") };
    assert!(*max < Ru::whole(5_000) && *cost == Ru::whole(5_000));
    assert!(refused.to_string().contains("group g"), "{refused}");
    for cost in [Ru(-1), Ru(i64::MAX)] {
        assert!(matches!(group.try_acquire(cost), Err(Refused::InvalidCost { .. })));
        assert!(matches!(group.check(cost), Err(Refused::InvalidCost { .. })));
        assert!(matches!(group.acquire(cost, SECOND).await, Err(Refused::InvalidCost { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn an_estimate_above_what_fits_takes_that_and_counts_as_refused_at_most_once() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(100))).await;
    let counted = || (client.stats().counts.refused, group.consumption().throttled);
    let permit = group.acquire_estimated(Ru::whole(5_000), SECOND).await.unwrap();
    assert!(permit.estimate() < Ru::whole(5_000) && permit.estimate().is_positive(), "{permit:?}");
    assert_eq!(counted(), (0, 0));
    let began = Instant::now();
    group.acquire_estimated(Ru::whole(5_000), SECOND / 2).await.unwrap_err();
    assert!(began.elapsed() <= SECOND / 2, "{:?}", began.elapsed());
    assert_eq!(counted(), (1, 1));
    group.acquire(Ru::whole(5_000), SECOND).await.unwrap_err();
    assert_eq!(counted(), (2, 2), "what is no estimate is refused");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_group_is_told_once_asked_and_found_once_created() {
    let fake = Fake::new();
    let client = piped(&fake).connect().await.unwrap();
    let error = client.group("nowhere").await.unwrap_err();
    assert!(matches!(&error, GroupError::UnknownGroup { group } if &**group == "nowhere"), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert!(matches!(client.group("").await, Err(GroupError::Name(_))));
    fake.group("nowhere", GroupSpec::capped(Rate::whole(10)));
    let group = client.group("nowhere").await.unwrap();
    // The controller folds upper case; two spellings must not become two buckets.
    assert_eq!(client.group("NoWhere").await.unwrap().name(), group.name());
    assert_eq!(client.stats().groups, 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_group_refuses_as_unknown() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(100))).await;
    fake.remove_group("g");
    eventually("the lease is gone", || group.state().lease == LeaseState::Unknown).await;
    assert!(matches!(group.try_acquire(Ru(1)), Err(Refused::UnknownGroup { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_unlimited_group_is_metered_and_not_throttled() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, GroupSpec::unlimited()).await;
    for _ in 0..100 {
        drop(group.try_acquire(Ru::whole(1_000_000)).unwrap());
    }
    assert_eq!(group.consumption().ru().clamped(), Ru::whole(100_000_000));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_waiters_are_served_in_order() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(10_000))).await;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let patience = Duration::from_secs(60);
    for number in 0..10_000_u32 {
        let (group, sender) = (group.clone(), sender.clone());
        // A current-thread runtime polls tasks in the order they were spawned.
        tokio::spawn(async move {
            let permit = group.acquire(Ru::whole(1), patience).await.unwrap();
            sender.send(number).unwrap();
            drop(permit);
        });
    }
    drop(sender);
    let mut order = Vec::new();
    while let Some(number) = receiver.recv().await {
        order.push(number);
    }
    assert_eq!(order, (0..10_000).collect::<Vec<_>>());
    assert_eq!(group.state().waiting, 0);
    let counts = client.stats().counts;
    assert!(counts.queued > 5_000, "{counts:?}");
    assert_eq!(group.consumption().ru().clamped(), Ru::whole(10_000));
}

#[tokio::test(start_paused = true)]
async fn limits_are_kept() {
    let fake = Fake::new();
    fake.group("g", GroupSpec::capped(Rate::whole(1)));
    let limits = Limits { groups: 1, waiters: 2 };
    let client = piped(&fake).limits(limits).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    assert!(matches!(client.group("h").await, Err(GroupError::TooMany { limit: 1, .. })));
    fake.state().mute = true;
    let wait = |group: tidegate_client::Group| async move {
        group.acquire(Ru(900_000), 60 * SECOND).await.map(drop)
    };
    let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(wait(group.clone()))).collect();
    eventually("both wait", || group.state().waiting == 2 || waiting.iter().any(|task| task.is_finished()))
        .await;
    // One of them may have been admitted from the first lease.
    while group.state().waiting < 2 {
        tokio::spawn(wait(group.clone()));
        tokio::task::yield_now().await;
    }
    let refused = group.acquire(Ru(900_000), 60 * SECOND).await.unwrap_err();
    assert!(matches!(refused, Refused::TooManyWaiters { limit: 2, .. }), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn the_shadow_table_is_counted_and_not_charged() {
    let fake = Fake::new();
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    let table = |name: &str, ru_per_unit: &str| v1::CostTable {
        name: name.into(),
        version: 2,
        replicas: 1,
        ru_per_unit: [("cpu_ns".to_owned(), ru_per_unit.to_owned())].into(),
    };
    let (active, shadow) = (Some(table("mine", "1/1000000")), Some(table("next", "1/500000")));
    fake.set_cost_tables(v1::CostTables { active, shadow });
    eventually("the tables are in force", || client.stats().shadow_table.is_some()).await;
    assert_eq!(client.stats().cost_table, ("mine".to_owned(), 2));
    let permit = group.acquire(Ru::whole(1), SECOND).await.unwrap();
    let usage = Usage { cpu_ns: 4_000_000, ..Usage::default() };
    assert_eq!(permit.price(&usage).total(), Ru::whole(4));
    assert_eq!(permit.settle(&usage).total(), Ru::whole(4));
    assert_eq!(group.consumption().shadow.clamped(), Ru::whole(8));
    // A table that cannot be used changes nothing.
    fake.set_cost_tables(v1::CostTables { active: Some(table("Bad Name", "x")), shadow: None });
    eventually("it was refused", || client.stats().counts.watch_refused == 1).await;
    assert_eq!(client.stats().cost_table, ("mine".to_owned(), 2));
}
