//! Token bucket, GCRA and demotion, beside the bound of every window that ends now.

use proptest::prelude::*;
use tidegate_core::policy::demotion::Demotion;
use tidegate_core::policy::gcra::Gcra;
use tidegate_core::policy::token_bucket::TokenBucket;
use tidegate_core::policy::{Limiter, Policy, Verdict};
use tidegate_core::units::{Rate, Ru, Time};

use super::trace::{any_way, forward};
use super::{Admitted, admits_no_more_when_time_steps_back, agrees};

const MOST: i64 = 20;

/// No window from an admission until now holds more than the capacity and what the rate yields in it; all amounts in
/// millionths of a micro-RU.
fn in_every_window(log: &[&Admitted], now: i128, cost: i128, rate: i64, capacity: i64) -> bool {
    let within = |begin: i128, sum: i128| {
        (sum + cost) * 1_000_000 <= i128::from(capacity) * 1_000_000 + i128::from(rate) * (now - begin)
    };
    let mut sum = 0;
    within(now, 0)
        && log.iter().rev().all(|entry| {
            sum += entry.cost;
            within(entry.at, sum)
        })
}

fn fits_bucket(rate: i64, capacity: i64) -> impl Fn(&[Admitted], i128, i128, bool) -> bool {
    move |log, now, cost, is_low| {
        !is_low && in_every_window(&log.iter().collect::<Vec<_>>(), now, cost, rate, capacity)
    }
}

fn fits_demotion(buckets: [(i64, i64); 2]) -> impl Fn(&[Admitted], i128, i128, bool) -> bool {
    move |log, now, cost, is_low| {
        let [normal, low] = buckets;
        let (rate, capacity) = if is_low { low } else { normal };
        let same: Vec<&Admitted> = log.iter().filter(|entry| entry.is_low == is_low).collect();
        in_every_window(&same, now, cost, rate, capacity)
    }
}

/// Micro-RU per second by which buckets of a few micro-RU fill in 10 us to 20 ms.
fn rates() -> impl Strategy<Value = i64> {
    prop_oneof![50_i64..1_000, 1_000_i64..1_000_000, Just(1_000_000), Just(333_333)]
}

fn demotion(buckets: [(i64, i64); 2]) -> Demotion {
    let [normal, low] = buckets.map(|(rate, capacity)| TokenBucket::new(Rate(rate), Ru(capacity)).unwrap());
    Demotion::new(normal, low)
}

proptest! {
    #[test]
    fn no_window_holds_more_than_capacity_and_rate_and_nothing_less_is_refused(
        rate in rates(), capacity in 1..=MOST, all in forward(MOST)
    ) {
        agrees(&TokenBucket::new(Rate(rate), Ru(capacity)).unwrap(), &fits_bucket(rate, capacity), &all);
        agrees(&Gcra::new(Rate(rate), Ru(capacity)).unwrap(), &fits_bucket(rate, capacity), &all);
    }

    #[test]
    fn what_the_first_bucket_does_not_cover_the_second_admits_at_low_priority(
        buckets in [(rates(), 1..=MOST), (rates(), 1..=MOST)], all in forward(MOST)
    ) {
        agrees(&demotion(buckets), &fits_demotion(buckets), &all);
    }

    #[test]
    fn buckets_admit_no_more_when_time_steps_back(
        buckets in [(rates(), 1..=MOST), (rates(), 1..=MOST)], all in any_way(MOST)
    ) {
        let [(rate, capacity), _] = buckets;
        let bucket = TokenBucket::new(Rate(rate), Ru(capacity)).unwrap();
        admits_no_more_when_time_steps_back(&bucket, &fits_bucket(rate, capacity), &all);
        let gcra = Gcra::new(Rate(rate), Ru(capacity)).unwrap();
        admits_no_more_when_time_steps_back(&gcra, &fits_bucket(rate, capacity), &all);
        admits_no_more_when_time_steps_back(&demotion(buckets), &fits_demotion(buckets), &all);
    }

    #[test]
    fn a_bucket_and_gcra_decide_the_same(
        rate in 1_i64..Rate::MAX.0, capacity in 1_i64..Ru::MAX.0,
        all in proptest::collection::vec((any::<u64>(), any::<i64>(), 0_u32..63), 1..60)
    ) {
        let mut bucket = Limiter::new(TokenBucket::new(Rate(rate), Ru(capacity)).unwrap());
        let mut gcra = Limiter::new(Gcra::new(Rate(rate), Ru(capacity)).unwrap());
        for (at, cost, small) in all {
            let (at, cost) = (Time(at >> small), Ru(cost >> small));
            prop_assert_eq!(bucket.try_acquire(at, cost), gcra.try_acquire(at, cost), "{:?} at {:?}", cost, at);
        }
    }

    #[test]
    fn a_bucket_and_gcra_decide_the_same_near_their_limits(
        rate in rates(), capacity in 1..=MOST, all in any_way(MOST)
    ) {
        let mut bucket = Limiter::new(TokenBucket::new(Rate(rate), Ru(capacity)).unwrap());
        let mut gcra = Limiter::new(Gcra::new(Rate(rate), Ru(capacity)).unwrap());
        for (at, cost) in all {
            prop_assert_eq!(bucket.try_acquire(Time(at), Ru(cost)), gcra.try_acquire(Time(at), Ru(cost)));
        }
    }
}

#[test]
fn debt_is_paid_before_anything_is_admitted() {
    let policy = TokenBucket::new(Rate::whole(10), Ru::whole(10)).unwrap();
    let mut state = policy.fresh();
    assert_eq!(policy.try_acquire(&mut state, Time(0), Ru::whole(5)), Verdict::Admit);
    policy.charge(&mut state, Time(0), Ru::whole(25));
    // 20 of debt and 1: 2.1 s.
    assert_eq!(policy.try_acquire(&mut state, Time(0), Ru::whole(1)), Verdict::RetryAt(Time(2_100_000)));
    assert_eq!(policy.try_acquire(&mut state, Time(2_100_000), Ru::whole(1)), Verdict::Admit);
}

#[test]
fn half_a_minute_of_idleness_fills_half_of_what_a_minute_yields() {
    let rate = Rate::whole(100).scale(1, 60);
    let policy = TokenBucket::new(rate, Ru::whole(100)).unwrap();
    let mut state = policy.fresh();
    assert_eq!(policy.try_acquire(&mut state, Time(0), Ru::whole(100)), Verdict::Admit);
    // 100 a minute is no whole number of micro-RU a second.
    let [most, more] = [Ru(49_999_980), Ru(49_999_981)];
    assert!(!policy.try_acquire(&mut state, Time(30_000_000), more).is_admitted());
    assert!(policy.try_acquire(&mut state, Time(30_000_000), most).is_admitted());
}
