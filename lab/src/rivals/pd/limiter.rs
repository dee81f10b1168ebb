//! The client's local bucket: reservations into the future, and a notice when tokens run low.

use tidegate_core::units::{Span, Time};

use crate::rivals::number::{between, seconds, span};

/// Reservations that fail give notice this often until the count is set again.
const NOTICES: u32 = 3;

/// Tokens of one group on one client.
#[derive(Clone, Debug)]
pub struct Limiter {
    rate: f64,
    burst: f64,
    tokens: f64,
    since: Time,
    threshold: f64,
    low: bool,
    notified: bool,
    notices: u32,
}

impl Limiter {
    /// Tokens at a moment, refilled at `rate` RU/s, never above `burst` RU unless that is zero. A negative burst is no
    /// limit at all.
    pub fn new(now: Time, rate: f64, burst: f64, tokens: f64, threshold: f64) -> Self {
        Self { rate, burst, tokens, since: now, threshold, low: false, notified: false, notices: NOTICES }
    }

    /// Tokens now; negative is what was reserved ahead.
    pub fn available(&self, now: Time) -> f64 {
        if self.burst < 0.0 {
            return self.tokens;
        }
        let tokens = self.tokens + self.rate * between(self.since, now);
        if self.burst > 0.0 { tokens.min(self.burst) } else { tokens }
    }

    /// Reserves `cost` RU, to be spent after the returned wait; `None` when that would be longer than `patience`.
    pub fn reserve(&mut self, now: Time, cost: f64, patience: Span) -> Option<Span> {
        if self.burst < 0.0 {
            return Some(Span(0));
        }
        let left = self.available(now) - cost;
        let wait = match () {
            () if left >= 0.0 => 0.0,
            () if self.rate <= 0.0 => f64::INFINITY,
            () => -left / self.rate,
        };
        if wait > seconds(patience) {
            if self.rate == 0.0 {
                self.notify();
            } else if self.notices > 0 {
                self.notices -= 1;
                self.notify();
            }
            return None;
        }
        self.tokens = left;
        self.since = self.since.max(now);
        self.notify_if_low();
        Some(span(wait))
    }

    /// Gives tokens back, or takes them when negative, into debt if need be.
    pub fn refund(&mut self, now: Time, tokens: f64) {
        if self.burst >= 0.0 {
            self.tokens = self.available(now) + tokens;
            self.since = self.since.max(now);
        }
    }

    /// More tokens, another rate and burst, and the level below which to give notice.
    pub fn reconfigure(&mut self, now: Time, tokens: f64, rate: f64, burst: f64, threshold: f64) {
        self.tokens = if burst >= 0.0 { self.available(now) + tokens } else { tokens };
        self.since = self.since.max(now);
        self.rate = rate;
        self.burst = burst;
        self.threshold = threshold;
        self.low = false;
        self.notify_if_low();
    }

    /// The level below which to give notice.
    pub fn set_threshold(&mut self, threshold: f64) {
        self.threshold = threshold;
    }

    /// Failed reservations may give notice again.
    pub fn renew_notices(&mut self) {
        self.notices = NOTICES;
    }

    /// Whether notice was given and nothing came since.
    pub fn is_low(&self) -> bool {
        self.low
    }

    /// Whether there is a new notice.
    pub fn take_notice(&mut self) -> bool {
        std::mem::take(&mut self.notified)
    }

    fn notify_if_low(&mut self) {
        if self.burst >= 0.0 && self.threshold > 0.0 && self.tokens < self.threshold {
            self.notify();
        }
    }

    fn notify(&mut self) {
        if !self.low {
            self.low = true;
            self.threshold = 0.0;
            self.notified = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000)
    }

    fn limiter(rate: f64, burst: f64, tokens: f64) -> Limiter {
        Limiter::new(at(0), rate, burst, tokens, 0.0)
    }

    #[test]
    fn c1_reserve() {
        let mut limiter = limiter(1.0, 0.0, 2.0);
        let mut acts = |now: u64, cost: f64, patience: u64| {
            limiter.reserve(at(now), cost, Span::secs(patience)).map(|wait| now + wait.0 / 1_000_000)
        };
        assert_eq!(acts(0, 3.0, 1_000), Some(1));
        assert_eq!(acts(0, 3.0, 1_000), Some(4));
        assert_eq!(acts(3, 2.0, 1_000), Some(6));
        assert_eq!(acts(3, 2.0, 4), None);
        assert_eq!(acts(5, 2_000.0, 100), None);
        assert_eq!(acts(3, 2.0, 8), Some(8));
        limiter.reconfigure(at(5), 0.0, 1.0, -1.0, 0.0);
        assert_eq!(limiter.reserve(at(5), 2_000.0, Span(0)), Some(Span(0)));
    }

    #[test]
    fn c2_reconfigure() {
        let mut limiter = limiter(1.0, 0.0, 2.0);
        limiter.reserve(at(0), 4.0, Span::secs(100));
        limiter.reconfigure(at(1), 6.0, 2.0, 0.0, 0.0);
        assert_eq!([1, 2].map(|second| limiter.available(at(second))), [5.0, 7.0]);
        limiter.reconfigure(at(1), 6.0, 2.0, -1.0, 0.0);
        assert_eq!([1, 2].map(|second| limiter.available(at(second))), [6.0, 6.0]);
    }

    #[test]
    fn c3_time_does_not_run_back() {
        let mut limiter = limiter(100.0, 0.0, 0.0);
        limiter.reserve(at(10), 10.0, Span::secs(1));
        assert_eq!(limiter.available(at(10)), 990.0);
        limiter.refund(at(9), 0.0);
        assert_eq!(limiter.available(at(11)), 1_090.0);
        limiter.reconfigure(at(9), 10.0, 100.0, 0.0, 0.0);
        assert_eq!(limiter.available(at(11)), 1_100.0);
    }

    #[test]
    fn c4_refund() {
        let mut limiter = limiter(0.0, 0.0, 100.0);
        let after = [-30.0, 20.0, 50.0].map(|tokens| {
            limiter.refund(at(1), tokens);
            limiter.available(at(1))
        });
        assert_eq!(after, [70.0, 90.0, 140.0]);
        limiter.reconfigure(at(1), 0.0, 0.0, 100.0, 0.0);
        assert_eq!(limiter.available(at(1)), 100.0);
        limiter.reconfigure(at(1), 5.0, 0.0, -1.0, 0.0);
        limiter.refund(at(1), 50.0);
        assert_eq!(limiter.available(at(1)), 5.0);
    }

    #[test]
    fn c5_one_notice_when_low() {
        let mut limiter = limiter(0.0, 0.0, 0.0);
        limiter.reconfigure(at(0), 1_000.0, 2.0, 0.0, 400.0);
        let notices = (0..100).filter(|_| {
            limiter.reserve(at(0), 10.0, Span::secs(1));
            limiter.take_notice()
        });
        assert_eq!(notices.count(), 1);
    }
}
