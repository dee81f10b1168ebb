//! The paced queue, beside the backlog of every window and beside nginx's own arithmetic.

use proptest::prelude::*;
use tidegate_core::policy::paced::{Delay, Grain, Paced, PacedSettings};
use tidegate_core::policy::{Limiter, Verdict};
use tidegate_core::units::{Rate, Ru, Time};

use super::trace::{any_way, forward};
use super::{Admitted, admits_no_more_when_time_steps_back, agrees};

const MOST: i64 = 20;

/// What the rate has not drained yet of what was admitted, in millionths of a micro-RU: the worst window says.
fn backlog(log: &[Admitted], now: i128, rate: i64) -> i128 {
    let mut sum = 0;
    let windows = log.iter().rev().map(|entry| {
        sum += entry.cost * 1_000_000;
        sum - i128::from(rate) * (now - entry.at)
    });
    windows.max().unwrap_or(0).max(0)
}

fn fits(rate: i64, burst: i64) -> impl Fn(&[Admitted], i128, i128, bool) -> bool {
    move |log, now, _, is_low| !is_low && backlog(log, now, rate) <= i128::from(burst) * 1_000_000
}

fn exact(rate: i64, burst: i64, delay: Delay) -> Paced {
    Paced::new(PacedSettings { rate: Rate(rate), burst: Ru(burst), delay, grain: Grain::Exact }).unwrap()
}

/// `limit_req` of nginx: thousandths of a request, milliseconds, one request at a time.
struct Nginx {
    rate: i64,
    burst: i64,
    delay: i64,
    node: Option<(i64, i64)>,
}

impl Nginx {
    /// How long a request is delayed, in milliseconds; none when it is refused.
    fn request(&mut self, now: i64) -> Option<i64> {
        let mut excess = 0;
        let mut last = now;
        if let Some((was, at)) = self.node {
            let ms = (now - at).max(0);
            excess = (was - self.rate * ms / 1_000 + 1_000).max(0);
            if excess > self.burst {
                return None;
            }
            last = if ms > 0 { now } else { at };
        }
        self.node = Some((excess, last));
        Some(if excess <= self.delay { 0 } else { (excess - self.delay) * 1_000 / self.rate })
    }
}

proptest! {
    #[test]
    fn what_is_before_an_operation_fits_the_queue(
        rate in 50_i64..1_000_000, burst in 0..=MOST, all in forward(MOST)
    ) {
        agrees(&exact(rate, burst, Delay::None), &fits(rate, burst), &all);
        agrees(&exact(rate, burst + 1, Delay::All), &fits(rate, burst + 1), &all);
    }

    #[test]
    fn an_operation_starts_when_all_before_it_is_drained(
        rate in 50_i64..1_000_000, burst in 1..=MOST, free in 0..=MOST, all in forward(MOST)
    ) {
        for (delay, free) in [(Delay::All, 0), (Delay::Beyond(Ru(free)), free), (Delay::None, burst)] {
            let mut paced = Limiter::new(exact(rate, burst, delay));
            let mut log = Vec::new();
            for (at, cost) in all.iter().copied() {
                let now = i128::from(at);
                let late = (backlog(&log, now, rate) - i128::from(free) * 1_000_000).max(0) / i128::from(rate);
                let start = u64::try_from(now + late).unwrap();
                match paced.try_acquire(Time(at), Ru(cost)) {
                    Verdict::Admit => prop_assert_eq!(start, at),
                    Verdict::AdmitAt(Time(starts)) => prop_assert_eq!((starts, start > at), (start, true)),
                    _ => continue,
                }
                log.push(Admitted { at: now, cost: cost.into(), is_low: false });
            }
        }
    }

    #[test]
    fn a_queue_admits_no_more_when_time_steps_back(
        rate in 50_i64..1_000_000, burst in 1..=MOST, all in any_way(MOST)
    ) {
        admits_no_more_when_time_steps_back(&exact(rate, burst, Delay::All), &fits(rate, burst), &all);
    }

    #[test]
    fn by_milliseconds_it_decides_as_nginx_does(
        rate in prop_oneof![1_i64..5_000, 5_000_i64..2_000_000], burst in 0_i64..30, free in 0_i64..30,
        gaps in proptest::collection::vec(
            prop_oneof![0_u64..3_000, 0_u64..60_000, 0_u64..2_000_000, Just(30_000_000)], 1..100
        ),
        back in 0_u64..50_000
    ) {
        let delays = [(Delay::None, i64::MAX), (Delay::All, 0), (Delay::Beyond(Ru::whole(free)), free * 1_000)];
        for (delay, undelayed) in delays {
            let burst = if delay == Delay::None { burst } else { burst + 1 };
            let mut nginx = Nginx { rate, burst: burst * 1_000, delay: undelayed, node: None };
            let settings =
                PacedSettings { rate: Rate(rate * 1_000), burst: Ru::whole(burst), delay, grain: Grain::Milli };
            let mut paced = Limiter::new(Paced::new(settings).unwrap());
            let mut at = 1_000_000_u64;
            for (number, gap) in gaps.iter().enumerate() {
                // Now and then the clock steps back, by less than what nginx takes for a new one.
                at = if number % 13 == 12 { at - back } else { at + gap };
                let expected = nginx.request(i64::try_from(at / 1_000).unwrap());
                let verdict = paced.try_acquire(Time(at), Ru::whole(1));
                let wait = match verdict {
                    Verdict::Admit => Some(0),
                    Verdict::AdmitAt(Time(start)) => Some(i64::try_from(start / 1_000 - at / 1_000).unwrap()),
                    _ => None,
                };
                prop_assert_eq!(wait, expected, "{:?} at {}", verdict, at);
            }
        }
    }
}

#[test]
fn sixty_queued_operations_start_a_second_apart() {
    let minute =
        PacedSettings { rate: Rate::whole(1), burst: Ru::whole(59), delay: Delay::All, grain: Grain::Exact };
    let mut paced = Limiter::new(Paced::new(minute).unwrap());
    assert_eq!(paced.try_acquire(Time(0), Ru::whole(1)), Verdict::Admit);
    for second in 1..60 {
        let verdict = paced.try_acquire(Time(0), Ru::whole(1));
        assert_eq!(verdict, Verdict::AdmitAt(Time(second * 1_000_000)));
    }
    assert_eq!(paced.try_acquire(Time(0), Ru::whole(1)), Verdict::RetryAt(Time(1_000_000)));
}

#[test]
fn a_queue_does_not_burst_after_a_stop() {
    let settings = PacedSettings {
        rate: Rate::whole(100),
        burst: Ru::whole(10),
        delay: Delay::All,
        grain: Grain::Exact,
    };
    let mut paced = Limiter::new(Paced::new(settings).unwrap());
    assert_eq!(paced.try_acquire(Time(0), Ru::whole(1)), Verdict::Admit);
    // An hour later, operations start 10 ms apart all the same.
    let later = 3_600_000_000;
    assert_eq!(paced.try_acquire(Time(later), Ru::whole(1)), Verdict::Admit);
    for number in 1..=10 {
        let verdict = paced.try_acquire(Time(later), Ru::whole(1));
        assert_eq!(verdict, Verdict::AdmitAt(Time(later + number * 10_000)));
    }
    assert!(!paced.try_acquire(Time(later), Ru::whole(1)).is_admitted());
}
