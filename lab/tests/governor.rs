//! The crate `governor` beside GCRA: the same decisions, and the same moments to try again, on the same sequences.
//!
//! governor keeps a cell's time in whole nanoseconds. The rates here have one, as most do that people set; others it
//! rounds to a faster rate, by less than a nanosecond for each cell, which is shown, too.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, FakeRelativeClock};
use governor::{Quota, RateLimiter};
use tidegate_core::policy::gcra::Gcra;
use tidegate_core::policy::{Limiter, Verdict};
use tidegate_core::units::{Rate, Ru, Time};

/// A generator of the xorshift family: the same numbers every time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// How many of so many decisions, or of the moments to try again, differ; and how many were admitted.
fn differing(rate: u32, burst: u32, seed: u64, operations: u32) -> (u32, u32) {
    let count = |number| NonZeroU32::new(number).unwrap();
    let clock = FakeRelativeClock::default();
    let quota = Quota::per_second(count(rate)).allow_burst(count(burst));
    let theirs = RateLimiter::direct_with_clock(quota, clock.clone());
    let start = clock.now();
    let mut ours = Limiter::new(Gcra::new(Rate::whole(rate.into()), Ru::whole(burst.into())).unwrap());
    let (mut random, mut now, mut differ, mut admitted) = (Random(seed | 1), 0_u64, 0, 0);
    // On average the rate is offered one and a half times.
    let gap = 2_000_000 * u64::from(burst.div_ceil(4)) / u64::from(rate) / 2;
    for _ in 0..operations {
        let cells = count(u32::try_from(random.below(u64::from(burst) / 2 + 2)).unwrap() + 1);
        let step = if random.below(3) == 0 { 0 } else { random.below(gap.max(2) * 2) };
        clock.advance(Duration::from_micros(step));
        now += step;
        let verdict = ours.try_acquire(Time(now), Ru::whole(cells.get().into()));
        let same = match theirs.check_n(cells) {
            Ok(Ok(())) => verdict == Verdict::Admit,
            Ok(Err(until)) => {
                let nanos = until.earliest_possible().as_u64() - start.as_u64();
                verdict == Verdict::RetryAt(Time(nanos.div_ceil(1_000)))
            }
            Err(_) => verdict == Verdict::Never,
        };
        differ += u32::from(!same);
        admitted += u32::from(verdict.is_admitted());
    }
    (differ, admitted)
}

#[test]
fn gcra_decides_as_governor_does_at_rates_of_whole_nanoseconds() {
    let (mut operations, mut passed) = (0, 0);
    for rate in [1, 2, 5, 10, 64, 100, 1_000, 12_500, 50_000, 1_000_000] {
        for burst in [1, 2, 7, 100, 5_000] {
            for seed in 1..=4 {
                let (differ, admitted) = differing(rate, burst, seed * 7_919, 1_000);
                assert_eq!(differ, 0, "{rate}/s, burst {burst}, seed {seed}");
                operations += 1_000;
                passed += admitted;
            }
        }
    }
    println!("{operations} decisions, {passed} admitted: 0 differ");
    assert!(passed > operations / 10 && passed < operations * 9 / 10, "{passed} of {operations}");
}

#[test]
fn at_other_rates_governor_is_faster_than_asked() {
    // A cell of 1,428.57 ns becomes one of 1,428 ns: 0.04 % more than 700,000 a second.
    let (differ, _) = differing(700_000, 100, 7_919, 1_000);
    println!("700,000/s: {differ} of 1000 differ");
    assert!(differ > 0, "the rates above are chosen for a reason");
}
