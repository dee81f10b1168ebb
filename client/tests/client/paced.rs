//! A group with a paced limit: its operations follow each other at the rate, whatever thread or call they come from.

use std::time::Duration;

use tidegate_client::{Refused, Ru, RuParts};
use tidegate_core::group::{GroupSpec, Policy};
use tidegate_core::units::Rate;
use tokio::time::Instant;

use crate::fake::{Fake, client_and_group};

fn spec() -> GroupSpec {
    GroupSpec { policy: Policy::Paced, burst: Some(Ru::whole(50)), ..GroupSpec::capped(Rate::whole(100)) }
}

/// Far more than the rate covers in the time of a purse: none of it is lent, and each waits for those before it.
#[tokio::test(start_paused = true)]
async fn operations_start_one_after_the_other_also_after_a_silence() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, spec()).await;
    for _ in 0..3 {
        tokio::time::advance(Duration::from_secs(10)).await;
        let begun = Instant::now();
        let costs = [50, 1, 1, 20, 8, 20];
        let mut started = Vec::new();
        for cost in costs {
            let permit = group.acquire(Ru::whole(cost), Duration::from_secs(5)).await.unwrap();
            started.push(begun.elapsed().as_millis());
            permit.settle_ru(RuParts::flat(Ru::whole(cost)));
        }
        // 10 ms for each RU before it, 5 ms of the rate in hand, clocks of a millisecond, one part in 1,000 for drift.
        let mut paid = 0;
        for (cost, at) in costs.into_iter().zip(&started) {
            assert!((paid * 10_u128).saturating_sub(6) <= *at && *at <= paid * 10 + 3, "{started:?}");
            paid += u128::try_from(cost).unwrap();
        }
    }
    let consumed = group.consumption();
    assert_eq!((consumed.operations, consumed.throttled, consumed.ru().clamped()), (18, 0, Ru::whole(300)));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_repeated_until_the_operation_before_is_paid_for_and_no_longer() {
    let fake = Fake::new();
    let (_client, group) = client_and_group(&fake, spec()).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let running = group.try_acquire(Ru::whole(40)).unwrap();
    for _ in 0..5 {
        for cost in [0, 1, 50] {
            let refused = group.try_acquire(Ru::whole(cost)).unwrap_err();
            let Refused::Throttled { retry_after, .. } = refused else { panic!("{refused:?}") };
            // An idle group has leased half of its limit.
            assert!(retry_after <= Duration::from_millis(801), "{retry_after:?}");
        }
        tokio::time::advance(Duration::from_millis(70)).await;
    }
    assert!(matches!(group.try_acquire(Ru::whole(51)), Err(Refused::NeverFits { .. })));
    // It needed less: what it gives back pays for it.
    running.settle_ru(RuParts::flat(Ru::whole(1)));
    group.try_acquire(Ru::whole(1)).unwrap().settle_ru(RuParts::flat(Ru::whole(1)));
}
