//! The ends of ranges: costs, moments and settings that no key has.

use proptest::prelude::*;
use tidegate_core::policy::demotion::Demotion;
use tidegate_core::policy::fixed_window::FixedWindow;
use tidegate_core::policy::gcra::Gcra;
use tidegate_core::policy::paced::{Delay, Grain, Paced, PacedSettings};
use tidegate_core::policy::setting::{LONGEST, MOST_STORED};
use tidegate_core::policy::sliding_log::SlidingLog;
use tidegate_core::policy::sub_windows::SubWindows;
use tidegate_core::policy::token_bucket::TokenBucket;
use tidegate_core::policy::two_windows::TwoWindows;
use tidegate_core::policy::warm_up::WarmUp;
use tidegate_core::policy::{Policy, Verdict};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::keeps_its_promise;

/// The ends of a range, what is near them, and anything.
fn extreme_times() -> impl Strategy<Value = u64> {
    prop_oneof![
        0_u64..3,
        (u64::MAX - 3)..=u64::MAX,
        Just(u64::MAX / 2),
        any::<u64>(),
        (u64::MAX - LONGEST.0)..=u64::MAX
    ]
}

fn extreme_costs() -> impl Strategy<Value = i64> {
    prop_oneof![
        1_i64..3,
        (i64::MAX - 3)..=i64::MAX,
        i64::MIN..=(i64::MIN + 3),
        (Ru::MAX.0 - 3)..=(Ru::MAX.0 + 3),
        (Ru::MAX.0 / 2 - 3)..=(Ru::MAX.0 / 2 + 3),
        Just(0),
        any::<i64>()
    ]
}

fn extreme_rates() -> impl Strategy<Value = i64> {
    prop_oneof![1_i64..3, (Rate::MAX.0 - 3)..=Rate::MAX.0, 1..=Rate::MAX.0]
}

fn extreme_limits() -> impl Strategy<Value = i64> {
    prop_oneof![1_i64..3, (Ru::MAX.0 - 3)..=Ru::MAX.0, 1..=Ru::MAX.0]
}

fn extreme_windows() -> impl Strategy<Value = u64> {
    prop_oneof![1_u64..3, (LONGEST.0 - 3)..=LONGEST.0, 1..=LONGEST.0]
}

fn run<P: Policy<State: Clone>>(policy: &P, most: Ru, all: &[(u64, i64)]) {
    let mut state = policy.fresh();
    assert!(
        policy.try_acquire(&mut state.clone(), Time(0), most).is_admitted(),
        "the most that is ever admitted"
    );
    for (at, cost) in all.iter().copied() {
        let verdict = policy.try_acquire(&mut state, Time(at), Ru(cost));
        if cost <= 0 {
            assert_eq!(verdict, Verdict::Admit);
        } else if cost > most.0 {
            assert_eq!(verdict, Verdict::Never);
        }
        if verdict == Verdict::Never {
            continue;
        }
        keeps_its_promise(policy, &state, at, cost, verdict);
    }
}

proptest! {
    #[test]
    fn windows_of_any_size_hold_at_any_moment(
        limit in extreme_limits(), window in extreme_windows(), cells in 1_u32..10,
        all in proptest::collection::vec((extreme_times(), extreme_costs()), 1..40)
    ) {
        let (limit, window) = (Ru(limit), Span(window));
        run(&FixedWindow::new(limit, window).unwrap(), limit, &all);
        run(&SlidingLog::new(limit, window, 8).unwrap(), limit, &all);
        run(&TwoWindows::new(limit, window).unwrap(), limit, &all);
        let even = Span((window.0 - window.0 % u64::from(cells)).max(u64::from(cells)));
        run(&SubWindows::new(limit, even, cells).unwrap(), limit, &all);
        run(&SubWindows::weighted(limit, even, cells).unwrap(), limit, &all);
    }

    #[test]
    fn rates_of_any_size_hold_at_any_moment(
        rate in extreme_rates(), capacity in extreme_limits(), undelayed in 0..=Ru::MAX.0,
        all in proptest::collection::vec((extreme_times(), extreme_costs()), 1..40)
    ) {
        let (rate, capacity) = (Rate(rate), Ru(capacity));
        let bucket = TokenBucket::new(rate, capacity).unwrap();
        run(&bucket, capacity, &all);
        run(&Gcra::new(rate, capacity).unwrap(), capacity, &all);
        run(&Demotion::new(bucket, TokenBucket::new(rate, Ru::MAX).unwrap()), Ru::MAX, &all);
        for delay in [Delay::All, Delay::Beyond(Ru(undelayed)), Delay::None] {
            for grain in [Grain::Exact, Grain::Milli] {
                run(&Paced::new(PacedSettings { rate, burst: capacity, delay, grain }).unwrap(), Ru::MAX, &all);
            }
        }
    }

    #[test]
    fn warm_ups_of_any_size_hold_at_any_moment(
        rate in extreme_rates(), factor in prop_oneof![Just(2_u32), Just(100), 2_u32..=100],
        part in 1_u64..=1_000, all in proptest::collection::vec((extreme_times(), extreme_costs()), 1..40)
    ) {
        // The longest that can be stored, and shorter ones.
        let twice = u128::from(MOST_STORED.0.unsigned_abs()) * 2_000_000 * u128::from(1 + factor);
        let longest = twice / u128::from(5 + factor) / u128::from(rate.unsigned_abs());
        let longest = u64::try_from(longest).unwrap_or(u64::MAX).min(LONGEST.0);
        let warm_up = Span((longest / part).max(1));
        run(&WarmUp::new(Rate(rate), warm_up, factor).unwrap(), Ru::MAX, &all);
    }

    #[test]
    fn debt_of_any_size_is_kept(
        rate in extreme_rates(), all in proptest::collection::vec((extreme_times(), extreme_costs()), 1..40)
    ) {
        let policy = TokenBucket::new(Rate(rate), Ru::MAX).unwrap();
        let two = TwoWindows::new(Ru::MAX, LONGEST).unwrap();
        let (mut state, mut counters) = (policy.fresh(), two.fresh());
        for (at, cost) in all {
            policy.charge(&mut state, Time(at), Ru(cost));
            two.charge(&mut counters, Time(at), Ru(cost));
            assert!(two.used(&mut counters, Time(at)) >= Ru(cost).or_zero());
            let verdict = policy.try_acquire(&mut state.clone(), Time(at), Ru(1));
            keeps_its_promise(&policy, &state, at, 1, verdict);
            two.try_acquire(&mut counters, Time(at), Ru(cost));
        }
    }
}
