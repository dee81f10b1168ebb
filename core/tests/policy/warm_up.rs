//! The warm-up, beside the numbers of its formula and Guava's own arithmetic.

use proptest::prelude::*;
use tidegate_core::policy::warm_up::WarmUp;
use tidegate_core::policy::{Limiter, Policy, Verdict};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::keeps_its_promise;
use super::trace::any_way;

/// `SmoothWarmingUp` of Guava, in microseconds and permits of one RU.
struct Guava {
    stable: f64,
    slope: f64,
    threshold: f64,
    most: f64,
    refill: f64,
    stored: f64,
    next: f64,
}

impl Guava {
    fn new(rate: f64, warm_up: f64, factor: f64) -> Self {
        let stable = 1e6 / rate;
        let cold = stable * factor;
        let threshold = 0.5 * warm_up / stable;
        let most = threshold + 2.0 * warm_up / (stable + cold);
        let slope = (cold - stable) / (most - threshold);
        Self { stable, slope, threshold, most, refill: warm_up / most, stored: most, next: 0.0 }
    }

    fn permits_to_time(&self, permits: f64) -> f64 {
        self.stable + permits * self.slope
    }

    /// Takes permits if none are owed, and says when none are owed any more.
    fn try_acquire(&mut self, now: f64, permits: f64) -> Result<f64, f64> {
        if now < self.next {
            return Err(self.next);
        }
        self.stored = (self.stored + (now - self.next) / self.refill).min(self.most);
        let taken = permits.min(self.stored);
        let above = self.stored - self.threshold;
        let mut micros = 0.0;
        let mut left = taken;
        if above > 0.0 {
            let cold = above.min(left);
            micros += cold * (self.permits_to_time(above) + self.permits_to_time(above - cold)) / 2.0;
            left -= cold;
        }
        micros += self.stable * left;
        self.next = now + micros + (permits - taken) * self.stable;
        self.stored -= taken;
        Ok(self.next)
    }
}

proptest! {
    #[test]
    fn it_owes_what_guava_owes(
        rate in 1_i64..100_000, warm_up in 1_000_u64..60_000_000, factor in 2_u32..20,
        all in proptest::collection::vec((0_u64..2_000, 0_u64..20_000_000, any::<bool>(), 1_i64..50), 1..60)
    ) {
        let policy = WarmUp::new(Rate::whole(rate), Span(warm_up), factor).unwrap();
        let mut guava = Guava::new(rate as f64, warm_up as f64, factor.into());
        let mut state = policy.fresh();
        // The first moment at which nothing is owed, as the policy has it.
        let mut at = 0;
        for (short, long, is_short, cost) in all {
            at += if is_short { short } else { long };
            prop_assert_eq!(policy.try_acquire(&mut state, Time(at), Ru::whole(cost)), Verdict::Admit);
            // Guava's floats may be off by a part of the microsecond.
            let next = guava.try_acquire(at as f64, cost as f64).unwrap_or(f64::NAN);
            let Verdict::RetryAt(Time(promised)) = policy.try_acquire(&mut state.clone(), Time(at), Ru(1)) else {
                panic!("nothing is owed after {cost} at {at}");
            };
            let off = promised as f64 - next;
            prop_assert!((-1e-3..=1.001).contains(&off), "{} at {}: {} beside {}", cost, at, promised, next);
            at = promised;
            // As much idle time in both.
            guava.next = guava.next.min(promised as f64);
        }
    }

    #[test]
    fn a_warm_up_keeps_its_promises_at_any_moments(
        rate in 1_i64..1_000_000, warm_up in 1_u64..100_000, factor in 2_u32..=100, all in any_way(20)
    ) {
        let policy = WarmUp::new(Rate(rate), Span(warm_up), factor).unwrap();
        let mut state = policy.fresh();
        let mut free = 0;
        for (at, cost) in all {
            let verdict = policy.try_acquire(&mut state, Time(at), Ru(cost));
            // What was owed is owed by any clock.
            prop_assert_eq!(verdict.is_admitted(), at >= free, "{:?} at {}, free at {}", verdict, at, free);
            keeps_its_promise(&policy, &state, at, cost, verdict);
            if verdict.is_admitted() {
                // At least by the stable rate.
                let after = policy.try_acquire(&mut state.clone(), Time(at), Ru(1));
                let Verdict::RetryAt(Time(next)) = after else { panic!("{after:?} after {cost} at {at}") };
                let least = (i128::from(cost) * 1_000_000).div_euclid(i128::from(rate));
                prop_assert!(i128::from(next) >= i128::from(at) + least, "{} after {} at {}", next, cost, at);
                free = next;
            }
        }
    }
}

/// Sentinel's example: 200 a second after 10 s, a third of it at first.
fn example() -> WarmUp {
    WarmUp::new(Rate::whole(200), Span::secs(10), 3).unwrap()
}

#[test]
fn its_threshold_is_1000_and_its_most_2000() {
    let policy = example();
    assert_eq!((policy.threshold(), policy.most()), (Ru::whole(1_000), Ru::whole(2_000)));
    // Cold 15 ms, stable 5 ms: 0.00001 s over each of a thousand tokens.
    let mut limiter = Limiter::new(example());
    assert_eq!(limiter.try_acquire(Time(0), Ru::whole(1)), Verdict::Admit);
    // From 2000 to 1999 the mean is 14.995 ms.
    assert_eq!(limiter.try_acquire(Time(0), Ru::whole(1)), Verdict::RetryAt(Time(14_995)));
    assert_eq!(limiter.try_acquire(Time(14_995), Ru::whole(1)), Verdict::Admit);
    assert_eq!(limiter.try_acquire(Time(14_995), Ru::whole(1)), Verdict::RetryAt(Time(14_995 + 14_985)));
}

/// When each operation starts that comes as soon as it may.
fn starts(policy: &WarmUp, state: &mut <WarmUp as Policy>::State, from: u64, until: u64) -> Vec<u64> {
    let (mut at, mut starts) = (from, Vec::new());
    while at < until {
        match policy.try_acquire(state, Time(at), Ru::whole(1)) {
            Verdict::RetryAt(Time(next)) => at = next,
            _ => starts.push(at),
        }
    }
    starts
}

#[test]
fn it_reaches_its_rate_after_the_warm_up_and_is_cold_again_after_as_long_a_pause() {
    let policy = example();
    let mut state = policy.fresh();
    let within =
        |starts: &[u64], from: u64, until: u64| starts.iter().filter(|at| (from..until).contains(at)).count();
    let first = starts(&policy, &mut state, 0, 20_000_000);
    assert_eq!(within(&first, 0, 10_000_000), 1_000, "a warm-up spends what is above the threshold");
    assert_eq!(within(&first, 10_000_000, 11_000_000), 200);
    // 66.7 a second at first, rising by the square root of what is left.
    assert_eq!(within(&first, 0, 1_000_000), 69);
    let again = starts(&policy, &mut state, 40_000_000, 41_000_000);
    assert_eq!(within(&again, 40_000_000, 41_000_000), 69);
}

#[test]
fn steps_of_any_size_store_the_same() {
    let policy = WarmUp::new(Rate(999_983), Span(777_777), 7).unwrap();
    let mut state = policy.fresh();
    assert!(policy.try_acquire(&mut state, Time(0), policy.most()).is_admitted());
    let Verdict::RetryAt(Time(begin)) = policy.try_acquire(&mut state, Time(0), Ru(1)) else {
        panic!("owed")
    };
    let stored = |from: Ru, at: u64| policy.stored(&state, Time(at)) - from;
    let none = policy.stored(&state, Time(begin));
    assert!(none <= Ru(1), "{none}");
    assert_eq!(stored(none, begin + 777_777), policy.most() - none);
}

/// Half a way stays half a way: from cold to warm, and from there to an empty store.
#[test]
fn a_key_is_as_warm_under_another_curve_as_it_was() {
    let curve = |rate| WarmUp::new(Rate::whole(rate), Span::secs(10), 3).unwrap();
    for (from, to) in [(1_000, 100), (100, 1_000), (200, 200)] {
        let (before, after) = (curve(from), curve(to));
        // Of 1,000 RU/s: warm with 5,000 in store, and cold with 10,000.
        assert_eq!((before.threshold(), before.most()), (Ru::whole(5 * from), Ru::whole(10 * from)));
        for percent in [0, 1, 25, 50, 99, 100, 150, 200] {
            let state = before.with_stored(Ru::whole(5 * from * percent / 100));
            let stored = after.stored(&after.as_warm_as(&before, &state), Time(0));
            assert_eq!(
                stored,
                Ru::whole(5 * to * percent / 100),
                "{percent} % of what a warm key has, {from} to {to}"
            );
        }
    }
}
