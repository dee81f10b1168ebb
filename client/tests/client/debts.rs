//! How long a group takes to pay what it owes.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate_client::{Group, Ru, RuParts};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;

use crate::fake::{Fake, eventually, piped};

const HOUR: Duration = Duration::from_secs(3_600);

/// Has the fake lease each group this rate, and nothing beside it.
fn leases(fake: &Fake, rate: Rate) -> Arc<AtomicI64> {
    let current = Arc::new(AtomicI64::new(rate.0));
    let leased = Arc::clone(&current);
    fake.state().tamper = Some(Box::new(move |granted: &mut v1::Granted| {
        for entry in &mut granted.entries {
            entry.rate = leased.load(Ordering::SeqCst);
            (entry.fill_micro_ru, entry.lump_micro_ru) = (0, 0);
            (entry.cap_micro_ru, entry.max_fit_micro_ru) = (Ru::whole(1_000).0, Ru::whole(1_000).0);
            (entry.ttl_us, entry.renew_after_us, entry.ask_again_us) = (3_600_000_000, 3_000_000_000, 0);
            (entry.ack_now, entry.scarce) = (false, false);
        }
    }));
    current
}

/// What it owes, and what waits for it.
fn owed(group: &Group) -> (Ru, Ru) {
    let state = group.state();
    (state.debt, state.backlog)
}

fn at(rate: Rate, amount: Ru) -> Option<Duration> {
    rate.time_for(amount).map(|span| Duration::from_micros(span.0))
}

#[tokio::test(start_paused = true)]
async fn how_long_a_group_pays_goes_by_the_last_rate_that_it_was_leased() {
    let fake = Fake::new();
    let usual = GroupSpec::capped(Rate::whole(1_000));
    fake.group("g", usual.clone());
    let hundred = Rate::whole(100);
    let rate = leases(&fake, hundred);
    fake.state().mute = true;
    let client = piped(&fake).connect().await.unwrap();
    let group = client.group_now("g").unwrap();
    let none = Some(Duration::ZERO);
    assert_eq!((group.pays_within(), group.debt_within()), (none, none));
    group.charge_ru(RuParts::flat(Ru::whole(70)));
    assert_eq!(owed(&group), (Ru::whole(70), Ru::ZERO));
    assert_eq!((group.pays_within(), group.debt_within()), (None, None), "it was never leased any rate");

    fake.state().mute = false;
    eventually("it has a lease", || group.state().rate == hundred).await;
    let mut waits = Box::pin(group.acquire(Ru::whole(30), HOUR));
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // The controller gathers tokens for a large operation, in place of a rate.
    for now in [hundred, Rate::ZERO] {
        rate.store(now.0, Ordering::SeqCst);
        fake.group("g", usual.clone());
        eventually("it has this rate", || group.state().rate == now).await;
        let (debt, backlog) = owed(&group);
        assert!(debt.is_positive() && backlog == Ru::whole(30), "{:?}", group.state());
        assert_eq!(group.debt_within(), at(hundred, debt));
        assert_eq!(group.pays_within(), at(hundred, debt + backlog));
    }
    let twenty = Rate::whole(20);
    rate.store(twenty.0, Ordering::SeqCst);
    fake.group("g", usual);
    eventually("it has another rate", || group.state().rate == twenty).await;
    let (debt, backlog) = owed(&group);
    assert_eq!((group.debt_within(), group.pays_within()), (at(twenty, debt), at(twenty, debt + backlog)));
    // Once it is paid nothing is left to wait for.
    drop(waits.await.unwrap());
    assert_eq!((group.debt_within(), group.pays_within()), (none, none));
}
