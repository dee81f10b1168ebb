//! What waits in two groups, `g` and the one to which it demotes, and how the wait ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_client::{Group, LeaseState, Limits, Permit, Rate, Refused, Ru, RuParts};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Span;

use crate::demotion::{G, SPILL, both, demoting, fixed_both, fixed_but};
use crate::fake::{Fake, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

type Waits<'g> = Pin<Box<dyn Future<Output = Result<Permit<'g>, Refused>> + 'g>>;

fn usual() -> GroupSpec {
    GroupSpec::capped(Rate::whole(1_000))
}

fn look<'g>(waits: &mut Waits<'g>) -> Poll<Result<Permit<'g>, Refused>> {
    waits.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn waiting(groups: [&Group; 2]) -> [usize; 2] {
    groups.map(|group| group.state().waiting)
}

/// As [`fixed_both`]; no operation above so much fits `g`.
async fn fitting(fake: &Fake, most: Ru) -> (tidegate_client::Client, Group, Group, Arc<AtomicI64>) {
    let fits = Arc::new(AtomicI64::new(most.0));
    let most = Arc::clone(&fits);
    fixed_but(fake, move |entry| {
        if entry.group == "g" {
            entry.max_fit_micro_ru = most.load(Ordering::SeqCst);
        }
    });
    let (client, g, spill) = both(fake, usual(), usual()).await;
    (client, g, spill, fits)
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_refused_by_its_own_group_and_counts_nowhere() {
    let fake = Fake::new();
    let (client, g, _spill) = fixed_both(&fake).await;
    for cost in [Ru(-1), Ru(i64::MAX)] {
        for answer in [g.acquire(cost, SECOND).await, g.acquire_estimated(cost, SECOND).await] {
            let refused = answer.unwrap_err();
            assert!(matches!(&refused, Refused::InvalidCost { group, .. } if &**group == "g"), "{refused}");
        }
    }
    let counts = client.counts();
    assert_eq!((counts.refused, counts.abandoned, g.consumption().throttled), (0, 0, 0));
}

/// The group may not know the costs that its operations have elsewhere, and its lease follows what it is asked for.
#[tokio::test(start_paused = true)]
async fn an_operation_that_goes_on_elsewhere_counts_as_load_once_in_either_group() {
    let mut loads = Vec::new();
    for tries in [true, false] {
        let fake = Fake::new();
        let (_client, g, spill) = fixed_both(&fake).await;
        let _all = g.try_acquire(G).unwrap();
        for _ in 0..10 {
            let permit =
                if tries { g.try_acquire(Ru::whole(4)).unwrap() } else { g.take(Ru::whole(4)).unwrap() };
            assert!(permit.is_demoted());
            permit.settle_ru(RuParts::default());
        }
        loads.push([&g, &spill].map(|group| group.state().demand));
    }
    assert!(loads[0].iter().all(|load| *load > Rate::ZERO), "{loads:?}");
    assert_eq!(loads[0], loads[1]);
}

#[tokio::test(start_paused = true)]
async fn what_never_fits_its_own_group_waits_in_the_other_alone_and_is_not_refused_when_that_admits_it() {
    let fake = Fake::new();
    let (client, g, spill, _) = fitting(&fake, Ru::whole(40)).await;
    let (_own, all) = (g.try_acquire(G).unwrap(), spill.try_acquire(SPILL).unwrap());
    let load = g.state().demand;
    let mut waits: Waits<'_> = Box::pin(g.acquire(Ru::whole(45), HOUR));
    assert!(look(&mut waits).is_pending());
    assert_eq!((waiting([&g, &spill]), g.state().demand), ([0, 1], load));
    all.cancel();
    let Poll::Ready(Ok(permit)) = look(&mut waits) else { panic!("the other has room") };
    assert!(permit.is_demoted());
    assert_eq!(g.consumption().throttled, 0, "it ran");
    assert!(g.state().demand > load, "it asked here");
    // Without room in either it is refused once, and by its own group.
    let refused = g.acquire(Ru::whole(45), Duration::ZERO).await.unwrap_err();
    assert!(matches!(&refused, Refused::NeverFits { group, .. } if &**group == "g"), "{refused}");
    let counts = client.counts();
    assert_eq!((counts.demoted, counts.refused, g.consumption().throttled), (1, 1, 1), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_estimate_above_what_fits_waits_in_both_queues_for_what_does() {
    for first in ["g", "spill"] {
        let fake = Fake::new();
        let (_client, g, spill) = fixed_both(&fake).await;
        let (own, other) = (g.try_acquire(G).unwrap(), spill.try_acquire(SPILL).unwrap());
        let mut waits: Waits<'_> = Box::pin(g.acquire_estimated(G + SPILL, HOUR));
        assert!(look(&mut waits).is_pending());
        assert_eq!(waiting([&g, &spill]), [1, 1]);
        let (freed, _held) = if first == "g" { (own, other) } else { (other, own) };
        freed.cancel();
        let Poll::Ready(Ok(permit)) = look(&mut waits) else { panic!("{first} has room") };
        assert_eq!((&**permit.group(), permit.estimate()), (first, if first == "g" { G } else { SPILL }));
        assert_eq!(waiting([&g, &spill]), [0, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_by_its_own_group_while_it_waits_waits_on_in_the_other() {
    let fake = Fake::new();
    let (client, g, spill, fits) = fitting(&fake, G).await;
    let (_own, other) = (g.try_acquire(G).unwrap(), spill.try_acquire(SPILL).unwrap());
    let mut waits: Waits<'_> = Box::pin(g.acquire(Ru::whole(45), HOUR));
    assert!(look(&mut waits).is_pending());
    assert_eq!(waiting([&g, &spill]), [1, 1]);
    // From the next answer on it never fits.
    fits.store(Ru::whole(40).0, Ordering::SeqCst);
    fake.group("g", usual());
    eventually("its own group refuses it", || g.state().waiting == 0).await;
    for _ in 0..3 {
        assert!(look(&mut waits).is_pending());
        assert_eq!(waiting([&g, &spill]), [0, 1]);
    }
    other.cancel();
    let Poll::Ready(Ok(permit)) = look(&mut waits) else { panic!("the other has room") };
    assert!(permit.is_demoted());
    let counts = client.counts();
    assert_eq!((counts.demoted, counts.refused), (1, 0), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_both_queues_of_a_group_that_goes_does_not_wait_on() {
    let fake = Fake::new();
    let (client, g, spill) = fixed_both(&fake).await;
    let (_own, _other) = (g.try_acquire(G).unwrap(), spill.try_acquire(SPILL).unwrap());
    let mut waits: Waits<'_> = Box::pin(g.acquire(Ru::whole(30), HOUR));
    assert!(look(&mut waits).is_pending());
    fake.remove_group("g");
    eventually("the group is gone", || g.state().lease == LeaseState::Unknown).await;
    let Poll::Ready(Err(refused)) = look(&mut waits) else { panic!("it has nothing to wait for") };
    assert!(matches!(&refused, Refused::UnknownGroup { group } if &**group == "g"), "{refused}");
    drop(waits);
    assert_eq!(waiting([&g, &spill]), [0, 0]);
    assert_eq!((client.counts().refused, client.counts().abandoned), (1, 0));
}

/// The group may have a target, and has no lease yet: the next answer of the controller will say so.
#[tokio::test(start_paused = true)]
async fn who_finds_the_queue_full_is_refused_before_anything_is_heard_of_a_target() {
    let fake = Fake::new();
    fake.group("g", usual());
    let limits = Limits { waiters: 1, ..Limits::default() };
    let client = piped(&fake).limits(limits).connect().await.unwrap();
    fake.state().mute = true;
    let g = client.group_now("g").unwrap();
    let mut first: Waits<'_> = Box::pin(g.acquire(Ru::whole(1), HOUR));
    assert!(look(&mut first).is_pending());
    let mut second: Waits<'_> = Box::pin(g.acquire(Ru::whole(1), HOUR));
    let Poll::Ready(Err(refused)) = look(&mut second) else { panic!("it waits") };
    assert!(matches!(refused, Refused::TooManyWaiters { limit: 1, .. }), "{refused}");
    assert_eq!((g.state().waiting, client.counts().refused), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_the_queue_of_the_target_alone_counts_as_queued() {
    let fake = Fake::new();
    let _demotes = demoting(&fake, |_| {});
    let daily = GroupSpec { quota: Some(Ru::whole(10)), ..usual() };
    let slow = GroupSpec { burst: Some(Ru::whole(5)), ..GroupSpec::capped(Rate::whole(5)) };
    let (client, g, spill) = both(&fake, daily, slow).await;
    fake.open_quota("g", Span::secs(3_000), Span::secs(3_000));
    eventually("the quota is known", || g.quota_left().is_some_and(|left| left.left == Ru::whole(10))).await;
    while g.quota_left().unwrap().left > Ru::ZERO {
        drop(g.acquire(Ru::whole(1), 30 * SECOND).await.unwrap());
    }
    while spill.try_acquire(Ru::whole(1)).is_ok() {}
    let before = client.counts();
    let permit = g.acquire(Ru::whole(2), 30 * SECOND).await.unwrap();
    assert!(permit.is_demoted());
    let counts = client.counts();
    assert_eq!((counts.queued, counts.demoted), (before.queued + 1, before.demoted + 1));
    assert_eq!((counts.refused, counts.abandoned), (before.refused, before.abandoned));
}

#[tokio::test(start_paused = true)]
async fn an_estimate_of_which_the_target_takes_a_part_counts_there_with_that_part() {
    let fake = Fake::new();
    let (client, g, spill) = fixed_both(&fake).await;
    let _own = g.try_acquire(G).unwrap();
    let permit = g.acquire_estimated(SPILL + Ru::whole(20), SECOND).await.unwrap();
    assert_eq!((permit.is_demoted(), permit.estimate()), (true, SPILL));
    assert_eq!((g.demoted(), client.counts().demoted), ((1, SPILL), 1));
    assert_eq!(spill.state().available, Ru::ZERO);
}
