//! The smoothed demand of one client: RU asked for per second, with a half-life.

use tidegate_core::units::{Span, Time};

use crate::rivals::number::{between, seconds};

/// After this long half of an old sample is forgotten.
pub const HALF_LIFE: Span = Span::secs(5);
/// Less than this, in RU/s, is nothing.
const FLOOR: f64 = 1.0;

/// Exponential average over uneven steps.
#[derive(Clone, Debug)]
pub struct Tracker {
    half_life: Span,
    last: Option<Time>,
    average: Option<f64>,
}

impl Default for Tracker {
    fn default() -> Self {
        Self::new(HALF_LIFE)
    }
}

impl Tracker {
    /// A tracker before the first request.
    pub fn new(half_life: Span) -> Self {
        Self { half_life, last: None, average: None }
    }

    /// The client asked for `required` RU now. The first call only sets the time.
    pub fn sample(&mut self, now: Time, required: f64) {
        let Some(last) = self.last else {
            self.last = Some(now);
            return;
        };
        let step = between(last, now);
        if step <= 0.0 {
            return;
        }
        self.last = Some(now);
        let rate = required.max(0.0) / step;
        let average = self.average.map_or(rate, |average| {
            let keep = (-step / seconds(self.half_life)).exp2();
            keep * average + (1.0 - keep) * rate
        });
        self.average = Some(if average < FLOOR { 0.0 } else { average });
    }

    /// RU/s, once two samples are known.
    pub fn demand(&self) -> Option<f64> {
        self.average
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conformance row T10.
    #[test]
    fn t10_tracker() {
        let mut tracker = Tracker::new(Span::secs(1));
        let mut seen = Vec::new();
        for (second, required) in [(0, 100.0), (1, 100.0), (2, 100.0), (3, 200.0)] {
            tracker.sample(Time(second * 1_000_000), required);
            seen.push(tracker.demand().unwrap_or(0.0));
        }
        assert_eq!(seen, [0.0, 100.0, 100.0, 150.0]);
        for second in 4..40 {
            tracker.sample(Time(second * 1_000_000), 10_000.0);
        }
        assert!((tracker.demand().unwrap() - 10_000.0).abs() < 1.0);
    }

    /// Conformance row G15, for the server's average: no time, no sample, never NaN.
    #[test]
    fn no_time_between_samples_changes_nothing() {
        let mut tracker = Tracker::default();
        for _ in 0..3 {
            tracker.sample(Time(7), 100.0);
        }
        assert_eq!(tracker.demand(), None);
    }
}
