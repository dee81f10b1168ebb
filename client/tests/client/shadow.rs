//! A group whose limits are in shadow: everyone is admitted, and what is over the limit is counted.

use std::future::Future as _;
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate_client::{Ru, RuParts, Usage};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;

use crate::fake::{Fake, client_and_group, eventually};

const SECOND: Duration = Duration::from_secs(1);

fn spec() -> GroupSpec {
    GroupSpec { shadow: true, ..GroupSpec::capped(Rate::whole(1_000)) }
}

/// However a permit ends, one that is over the limit takes nothing, gives nothing back and is counted once.
#[tokio::test(start_paused = true)]
async fn however_an_operation_over_the_limit_ends_the_budget_stays_and_its_cost_is_counted() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, spec()).await;
    let all = group.state().available;
    let _paid = group.try_acquire(all).unwrap();
    let left = |group: &tidegate_client::Group| (group.state().available, group.state().debt);
    let before = left(&group);
    assert!(group.state().shadow && before.0 < Ru::whole(1));
    let cost = Ru::whole(30);

    group.try_acquire(cost).unwrap().settle_ru(RuParts::flat(Ru::whole(7)));
    group.acquire(cost, SECOND).await.unwrap().settle_ru(RuParts::flat(Ru::whole(70)));
    drop(group.acquire_estimated(Ru::whole(1_000_000), SECOND).await.unwrap());
    group.take(cost).unwrap().cancel();
    let mut long = group.acquire(cost, SECOND).await.unwrap().into_owned();
    let used = Usage { cpu_ns: 60_000_000, ..Usage::default() };
    assert_eq!(long.charge(&used).total(), Ru::whole(20));
    assert_eq!(long.estimate(), Ru::whole(10));
    assert_eq!(long.charge(&used).total(), Ru::whole(20));
    assert_eq!(long.settle(&used).total(), Ru::whole(20));

    assert_eq!(left(&group), before, "no token was taken or given back");
    let consumed = group.consumption();
    assert_eq!(consumed.ru().clamped(), Ru::whole(7 + 70 + 1_000_000 + 3 * 20));
    assert_eq!((consumed.operations, consumed.throttled, consumed.waited_us), (4, 5, 0));
    fake.until("all is reported", |state| state.total("g") == Ru::whole(1_000_137)).await;
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_off_goes_on() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, spec()).await;
    fake.go_down();
    for _ in 0..100 {
        tokio::time::advance(SECOND).await;
        group.try_acquire(Ru::whole(5_000)).unwrap().settle_ru(RuParts::flat(Ru::whole(5_000)));
    }
    assert_eq!(group.consumption().operations, 100);
}

/// A limit may be enforced while operations run that were over it in shadow: they took nothing, so their ends give nothing
/// back, neither to the group nor to what their thread holds of it.
#[tokio::test(start_paused = true)]
async fn what_was_over_a_limit_in_shadow_gives_nothing_back_once_it_is_enforced() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, spec()).await;
    let _paid = group.try_acquire(group.state().available).unwrap();
    let one = Ru::whole(1);
    let [never_ran, for_less] = [(); 2].map(|()| group.try_acquire(one).unwrap());
    fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    eventually("the limit is enforced", || !group.state().shadow && group.state().available > one + one)
        .await;
    // One after another in a moment: from the second on, the thread has a purse.
    let before = group.state().available;
    let taken = 8;
    for _ in 0..taken {
        drop(group.try_acquire(one).unwrap());
    }
    never_ran.cancel();
    for_less.settle_ru(RuParts::flat(Ru::ZERO));
    assert_eq!(group.state().available, before - Ru::whole(taken));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_given_up_after_shadow_let_it_through_gives_nothing_back() {
    let fake = Fake::new();
    // It gets ten RU, and nothing more.
    let (all, mut fill) = (Ru::whole(10), Ru::whole(10));
    fake.state().tamper = Some(Box::new(move |granted: &mut v1::Granted| {
        for entry in &mut granted.entries {
            (entry.rate, entry.lump_micro_ru) = (0, 0);
            (entry.cap_micro_ru, entry.max_fit_micro_ru) = (all.0, all.0);
            entry.fill_micro_ru = std::mem::take(&mut fill).0;
        }
    }));
    let enforced = GroupSpec::capped(Rate::whole(10));
    let (client, group) = client_and_group(&fake, enforced.clone()).await;
    let _paid = group.try_acquire(all).unwrap();
    let mut waits = Box::pin(group.acquire(Ru::whole(4), 60 * SECOND));
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    fake.group("g", GroupSpec { shadow: true, ..enforced });
    eventually("it is let through", || group.state().shadow && group.state().waiting == 0).await;
    drop(waits);
    assert_eq!((group.state().available, group.state().debt), (Ru::ZERO, Ru::ZERO));
    assert_eq!((client.counts().abandoned, group.consumption().operations), (1, 0));
}
