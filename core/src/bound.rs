//! The bound on what any window admits: the one place that computes it, for the demo and every test.
//!
//! For a window from s to t the excess is what was admitted in it less the rate's integral over it. With L(t), what was
//! admitted until t less the integral until t, the worst excess is the largest L(t) less the smallest L(s) of s <= t. So
//! a running minimum is enough: a few operations an event, and nothing is rounded on the way, since amounts are kept in
//! micro-RU times microseconds per second.

use crate::units::{Rate, Ru, Span, Time};

/// How much a window may pass its bound because clocks are read in whole microseconds: a node whose clock is fast may see
/// one more than there was.
pub fn tick(rate: Rate) -> Ru {
    rate.over(Span(1)) + Ru(1)
}

/// The worst excess of admitted RU over `rate * window`, over all windows, found as the highest rise of
/// `admitted − rate·t` above its lowest point before. With a depth, also the worst excess over `rate * window` and the
/// depth at the beginning of the window.
#[derive(Clone, Debug)]
pub struct Bound {
    rate: Rate,
    since: Time,
    /// Rate integrated until `since`, in micro-RU times microseconds per second.
    allowed: i128,
    admitted: i128,
    lowest: i128,
    lowest_at: Time,
    worst: i128,
    worst_window: Span,
    /// Depth of the bucket, the lowest point with it on top, and the highest rise above that.
    depth: i128,
    floor: i128,
    excess: i128,
}

impl Bound {
    /// Watches a group with this cap.
    pub fn new(now: Time, rate: Rate) -> Self {
        Self {
            rate,
            since: now,
            allowed: 0,
            admitted: 0,
            lowest: 0,
            lowest_at: now,
            worst: 0,
            worst_window: Span(0),
            depth: 0,
            floor: 0,
            excess: 0,
        }
    }

    fn level(&mut self, now: Time) -> i128 {
        self.allowed += i128::from(self.rate.0) * i128::from(now.since(self.since).0);
        self.since = self.since.max(now);
        self.admitted * 1_000_000 - self.allowed
    }

    /// RU were admitted, or given back when negative.
    pub fn admit(&mut self, now: Time, cost: Ru) {
        self.may_begin(now);
        self.admitted += i128::from(cost.0);
        let level = self.level(now);
        self.excess = self.excess.max(level - self.floor);
        let rise = level - self.lowest;
        if rise > self.worst {
            (self.worst, self.worst_window) = (rise, now.since(self.lowest_at));
        }
    }

    /// A window may begin now.
    fn may_begin(&mut self, now: Time) {
        let level = self.level(now);
        if level <= self.lowest {
            (self.lowest, self.lowest_at) = (level, now);
        }
        self.floor = self.floor.min(level + self.depth);
    }

    /// The cap changed.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        self.may_begin(now);
        self.rate = rate;
    }

    /// The cap changed, and the depth with it; in windows that include this moment so much more may be admitted.
    pub fn set_cap(&mut self, now: Time, rate: Rate, depth: Ru, more: Ru) {
        self.set_rate(now, rate);
        self.depth = i128::from(depth.0) * 1_000_000;
        self.allowed += i128::from(more.0) * 1_000_000;
        self.may_begin(now);
    }

    /// Windows begin now at the soonest from here on.
    pub fn begin_again(&mut self, now: Time) {
        (self.lowest, self.lowest_at) = (self.level(now), now);
        self.floor = self.lowest + self.depth;
    }

    /// RU above `rate * window` and the depth at its beginning, in the worst window.
    pub fn excess(&self) -> Ru {
        Ru(i64::try_from(self.excess / 1_000_000).unwrap_or(i64::MAX))
    }

    /// RU above `rate * window` in the worst window, cut to whole micro-RU.
    pub fn worst(&self) -> Ru {
        Ru(i64::try_from(self.worst / 1_000_000).unwrap_or(i64::MAX))
    }

    /// The length of the worst window.
    pub fn worst_window(&self) -> Span {
        self.worst_window
    }

    /// RU admitted in all.
    pub fn admitted(&self) -> Ru {
        Ru(i64::try_from(self.admitted).unwrap_or(i64::MAX))
    }

    /// RU that the cap allowed in all.
    pub fn allowed(&mut self, now: Time) -> Ru {
        self.level(now);
        Ru(i64::try_from(self.allowed / 1_000_000).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worst window with these rates in RU/s from a moment on, and these amounts in RU.
    fn watched(steps: &[(u64, i64)], events: &[(u64, i64)]) -> Bound {
        let mut steps = steps.iter().peekable();
        let mut bound = Bound::new(Time(0), Rate::ZERO);
        for (at, ru) in events {
            while let Some((from, rate)) = steps.next_if(|(from, _)| from <= at) {
                bound.set_rate(Time(*from), Rate::whole(*rate));
            }
            bound.admit(Time(*at), Ru::whole(*ru));
        }
        bound
    }

    const S: u64 = 1_000_000;

    #[test]
    fn a_burst_is_an_excess_and_idle_time_earns_nothing() {
        let worst = |events: &[(u64, i64)]| watched(&[(0, 10)], events).worst();
        assert_eq!(worst(&[]), Ru::ZERO);
        assert_eq!(worst(&[(0, 50)]), Ru::whole(50));
        // Two seconds at the rate, after a long idle time.
        assert_eq!(worst(&[(100 * S, 5), (101 * S, 10), (102 * S, 10)]), Ru::whole(10));
        let burst = watched(&[(0, 10)], &[(10 * S, 30), (11 * S, 30)]);
        assert_eq!((burst.worst(), burst.worst_window()), (Ru::whole(50), Span::secs(1)));
    }

    #[test]
    fn refunds_count_and_can_begin_a_window() {
        assert_eq!(watched(&[(0, 10)], &[(0, 50), (0, -40)]).worst(), Ru::whole(50));
        assert_eq!(watched(&[(0, 10)], &[(0, 50), (S, -60), (S, 60)]).worst(), Ru::whole(60));
    }

    #[test]
    fn a_change_of_the_rate_counts_from_its_time() {
        let events = [(0, 10), (S, 10), (2 * S, 10), (3 * S, 10)];
        assert_eq!(watched(&[(0, 10)], &events).worst(), Ru::whole(10));
        assert_eq!(watched(&[(0, 10), (2 * S, 4)], &events).worst(), Ru::whole(16));
        // A step between two events is charged in parts.
        assert_eq!(watched(&[(0, 10), (S / 2, 0)], &[(0, 10), (S, 10)]).worst(), Ru::whole(15));
    }

    #[test]
    fn a_whole_microsecond_more_is_allowed() {
        assert_eq!(tick(Rate::whole(5)), Ru(6));
    }

    /// A full bucket of this depth, filled with 1 RU/s.
    fn bucket(depth: i64) -> Bound {
        let mut bound = Bound::new(Time(0), Rate::ZERO);
        bound.set_cap(Time(0), Rate::whole(1), Ru::whole(depth), Ru::ZERO);
        bound.begin_again(Time(0));
        bound
    }

    #[test]
    fn a_bucket_s_depth_counts_as_it_is_when_the_window_begins() {
        let excess = |admitted: i64| {
            let mut bound = bucket(5);
            bound.admit(Time(0), Ru::whole(admitted));
            bound.excess()
        };
        assert_eq!((excess(5), excess(8)), (Ru::ZERO, Ru::whole(3)));
        let lowered = |then: i64| {
            let mut bound = bucket(9);
            bound.admit(Time(0), Ru::whole(9));
            bound.set_cap(Time(S), Rate::ZERO, Ru::whole(2), Ru::ZERO);
            // One RU was earned in a second, and none since.
            bound.admit(Time(3 * S), Ru::whole(then));
            bound.excess()
        };
        assert_eq!((lowered(1), lowered(2)), (Ru::ZERO, Ru::whole(1)));
    }

    #[test]
    fn what_comes_at_once_with_a_change_is_allowed_in_windows_that_include_it() {
        let excess = |more: i64, admitted: i64| {
            let mut bound = bucket(5);
            bound.admit(Time(0), Ru::whole(5));
            bound.set_cap(Time(0), Rate::whole(1), Ru::whole(5), Ru::whole(more));
            bound.admit(Time(0), Ru::whole(admitted));
            bound.excess()
        };
        assert_eq!((excess(3, 3), excess(3, 4), excess(0, 1)), (Ru::ZERO, Ru::whole(1), Ru::whole(1)));
    }

    #[test]
    fn windows_that_begin_again_forget_what_was_before() {
        let mut bound = bucket(4);
        bound.admit(Time(0), Ru::whole(4));
        bound.begin_again(Time(0));
        bound.admit(Time(0), Ru::whole(4));
        assert_eq!((bound.excess(), bound.worst()), (Ru::ZERO, Ru::whole(4)));
        bound.admit(Time(0), Ru::whole(1));
        assert_eq!((bound.excess(), bound.worst()), (Ru::whole(1), Ru::whole(5)));
    }

    #[test]
    fn sums_are_of_all_that_was_admitted_and_allowed() {
        let mut bound = watched(&[(0, 10), (S, 4)], &[(0, 50), (2 * S, 7), (2 * S, -3)]);
        assert_eq!((bound.admitted(), bound.allowed(Time(3 * S))), (Ru::whole(54), Ru::whole(18)));
    }

    /// The definition, word by word, in whole micro-RU.
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
        worst / 1_000_000
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
            let worst = watched(&steps, &events).worst();
            assert_eq!(i128::from(worst.0), slow(&steps, &events), "{steps:?} {events:?}");
        }
    }
}
