//! Worst excess over a rate in any window, exactly, in one pass.
//!
//! In: signed amounts of micro-RU in time order, and the rate in force as a step function. For every window [s, t]
//! the excess is what was admitted in it less the rate's integral over it. With L(t) = admitted until t − integral
//! until t, the worst excess is the largest L(t) − min over s <= t of L(s), so a running minimum is enough: O(1) per
//! event. Amounts are kept in micro-RU times microseconds per second, so nothing is rounded on the way.

use tidegate_core::units::{MICRO, Rate, Ru};

/// The rate from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateStep {
    pub(crate) from_us: u64,
    pub(crate) rate: Rate,
}

/// The worst window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Worst {
    /// Rounded up to a micro-RU; zero when the rate was never passed.
    pub(crate) excess: Ru,
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
}

/// The running computation.
#[derive(Clone, Debug)]
pub(crate) struct ExcessMeter {
    steps: Vec<RateStep>,
    /// Index of the step behind the one in force.
    next: usize,
    rate: Rate,
    now_us: u64,
    level: i128,
    lowest: i128,
    lowest_at_us: u64,
    worst: i128,
    window: (u64, u64),
}

impl ExcessMeter {
    /// A meter whose time begins at `start_us`. `steps` are in time order; before the first one its rate counts, too.
    pub(crate) fn new(start_us: u64, steps: Vec<RateStep>) -> Self {
        Self {
            rate: steps.first().map(|step| step.rate).unwrap_or_default(),
            steps,
            next: 0,
            now_us: start_us,
            level: 0,
            lowest: 0,
            lowest_at_us: start_us,
            worst: 0,
            window: (start_us, start_us),
        }
    }

    /// `amount` was admitted at `at_us`, or given back when negative. An earlier time than the last counts as that.
    pub(crate) fn add(&mut self, at_us: u64, amount: Ru) {
        self.advance(at_us);
        // A window may begin right before this event.
        self.note_low();
        self.level += i128::from(amount.0) * i128::from(MICRO);
        self.note_low();
        if self.level - self.lowest > self.worst {
            self.worst = self.level - self.lowest;
            self.window = (self.lowest_at_us, self.now_us);
        }
    }

    /// The worst so far.
    pub(crate) fn worst(&self) -> Worst {
        let micro = (self.worst + i128::from(MICRO) - 1).div_euclid(i128::from(MICRO));
        Worst {
            excess: Ru(i64::try_from(micro).unwrap_or(i64::MAX)),
            from_us: self.window.0,
            to_us: self.window.1,
        }
    }

    fn advance(&mut self, to_us: u64) {
        while let Some(step) = self.steps.get(self.next)
            && step.from_us <= to_us
        {
            let step = *step;
            self.refill(step.from_us);
            self.rate = step.rate;
            self.next = self.next.saturating_add(1);
        }
        self.refill(to_us);
    }

    fn refill(&mut self, to_us: u64) {
        let span = to_us.saturating_sub(self.now_us);
        self.level -= i128::from(self.rate.0) * i128::from(span);
        self.now_us = self.now_us.max(to_us);
    }

    fn note_low(&mut self) {
        if self.level <= self.lowest {
            (self.lowest, self.lowest_at_us) = (self.level, self.now_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(steps: &[(u64, i64)], events: &[(u64, i64)]) -> Worst {
        let steps =
            steps.iter().map(|(from_us, rate)| RateStep { from_us: *from_us, rate: Rate::whole(*rate) });
        let mut meter = ExcessMeter::new(0, steps.collect());
        for (at, ru) in events {
            meter.add(*at, Ru::whole(*ru));
        }
        meter.worst()
    }

    const S: u64 = 1_000_000;

    #[test]
    fn a_burst_is_an_excess_and_idle_time_earns_nothing() {
        assert_eq!(worst(&[(0, 10)], &[]).excess, Ru::ZERO);
        assert_eq!(worst(&[(0, 10)], &[(0, 50)]).excess, Ru::whole(50));
        // Two seconds at the rate, after a long idle time.
        assert_eq!(worst(&[(0, 10)], &[(100 * S, 5), (101 * S, 10), (102 * S, 10)]).excess, Ru::whole(10));
        let burst = worst(&[(0, 10)], &[(10 * S, 30), (11 * S, 30)]);
        assert_eq!(burst, Worst { excess: Ru::whole(50), from_us: 10 * S, to_us: 11 * S });
    }

    #[test]
    fn refunds_count_and_can_begin_a_window() {
        assert_eq!(worst(&[(0, 10)], &[(0, 50), (0, -40)]).excess, Ru::whole(50));
        assert_eq!(worst(&[(0, 10)], &[(0, 50), (S, -60), (S, 60)]).excess, Ru::whole(60));
    }

    #[test]
    fn a_change_of_the_rate_counts_from_its_time() {
        let events = [(0, 10), (S, 10), (2 * S, 10), (3 * S, 10)];
        assert_eq!(worst(&[(0, 10)], &events).excess, Ru::whole(10));
        assert_eq!(worst(&[(0, 10), (2 * S, 4)], &events).excess, Ru::whole(16));
        // A step between two events is charged in parts.
        assert_eq!(worst(&[(0, 10), (S / 2, 0)], &[(0, 10), (S, 10)]).excess, Ru::whole(15));
    }

    /// The definition, word by word.
    fn slow(steps: &[(u64, i64)], events: &[(u64, i64)]) -> i128 {
        let rate_at = |us: u64| steps.iter().rev().find(|step| step.0 <= us).map_or(0, |step| step.1);
        let integral =
            |from: u64, to: u64| (from..to).map(|us| i128::from(rate_at(us))).sum::<i128>() * 1_000_000;
        let mut worst = 0;
        for (first, event) in events.iter().enumerate() {
            for last in first..events.len() {
                let admitted: i64 = events[first..=last].iter().map(|event| event.1).sum();
                let allowed = integral(event.0, events[last].0);
                worst = worst.max(i128::from(admitted) * 1_000_000 * 1_000_000 - allowed);
            }
        }
        (worst + 999_999) / 1_000_000
    }

    #[test]
    fn one_pass_agrees_with_the_definition() {
        let mut state: u64 = 3;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut at = 0;
            let events: Vec<(u64, i64)> = (0..12)
                .map(|_| {
                    at += random(20);
                    (at, i64::try_from(random(9)).unwrap() - 3)
                })
                .collect();
            let steps = [(0, 100_000), (random(60), 50_000), (60 + random(60), 150_000)];
            assert_eq!(
                i128::from(worst(&steps, &events).excess.0),
                slow(&steps, &events),
                "{steps:?} {events:?}"
            );
        }
    }
}
