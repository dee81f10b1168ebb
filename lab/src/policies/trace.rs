//! Operations through a policy, one after another, and the worst windows of what it admitted.

use tidegate_core::policy::{Limiter, Policy, Verdict};
use tidegate_core::units::{Ru, Span, Time};

/// What decides, with the state of one key.
pub type Decide = Box<dyn FnMut(Time, Ru) -> Verdict>;

/// A policy with a key that has done nothing.
pub fn decide<P: Policy<State: 'static> + 'static>(policy: P) -> Decide {
    let mut limiter = Limiter::new(policy);
    Box::new(move |now, cost| limiter.try_acquire(now, cost))
}

/// The moments of those calls that are admitted, each of one RU.
pub fn admitted(decide: &mut Decide, calls: impl IntoIterator<Item = Time>) -> Vec<Time> {
    calls.into_iter().filter(|at| decide(*at, Ru::whole(1)).is_admitted()).collect()
}

/// Moments at equal distances.
pub fn every(gap: Span, from: Time, count: u64) -> impl Iterator<Item = Time> {
    (0..count).map(move |number| from.after(Span(gap.0 * number)))
}

/// The most moments within any window, which ends before its length is over; they are in order.
pub fn most_within(window: Span, moments: &[Time]) -> usize {
    let mut begin = moments.iter();
    let mut first = begin.next();
    let mut within = 0;
    let mut most = 0;
    for moment in moments {
        within += 1;
        while let Some(leaving) = first.filter(|first| moment.since(**first) >= window) {
            within -= 1;
            first = begin.next().filter(|_| leaving <= moment);
        }
        most = most.max(within);
    }
    most
}

/// How many moments are in `[from, until)`.
pub fn between(moments: &[Time], from: Time, until: Time) -> usize {
    moments.iter().filter(|moment| (from..until).contains(*moment)).count()
}

/// How many moments there were by each, as a curve over seconds.
pub fn cumulative(moments: &[Time]) -> Vec<(f64, f64)> {
    (1_u32..).zip(moments).map(|(count, moment)| (seconds(*moment), f64::from(count))).collect()
}

/// The same curve at equal distances, from zero to an end: few points for many moments.
pub fn sampled(moments: &[Time], step: Span, end: Time) -> Vec<(f64, f64)> {
    let mut count = 0_u32;
    let mut coming = moments.iter().peekable();
    let looks = (0..=end.0 / step.0.max(1)).map(|look| Time(look * step.0));
    looks
        .map(|look| {
            while coming.next_if(|moment| **moment <= look).is_some() {
                count += 1;
            }
            (seconds(look), f64::from(count))
        })
        .collect()
}

/// A moment in seconds.
#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
pub fn seconds(moment: Time) -> f64 {
    moment.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_window_is_open_at_its_end() {
        let moments: Vec<Time> = every(Span::secs(1), Time(0), 10).collect();
        for (window, most) in [(Span(1), 1), (Span::secs(1), 1), (Span(1_000_001), 2), (Span::secs(60), 10)] {
            assert_eq!(most_within(window, &moments), most, "{window}");
        }
        let together = [Time(0), Time(5), Time(5), Time(5), Time(9)];
        assert_eq!(most_within(Span(5), &together), 4);
        assert_eq!(most_within(Span(5), &[]), 0);
        assert_eq!(sampled(&together, Span(4), Time(9)), [(0.0, 1.0), (4e-6, 1.0), (8e-6, 4.0)]);
    }
}
