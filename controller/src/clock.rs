//! The controller's only clock.
//!
//! `now()` is microseconds on tokio's monotonic clock (which tests can pause), counted on from a start value: after
//! a clean restart that is the moment the saved state was taken, so that time stands still while the controller is
//! down and no lease is thought to be over too early. `unix_us()` is the wall clock; nothing about safety hangs on
//! it but the end of a proof, which is checked conservatively.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_core::units::{Span, Time};
use tokio::time::Instant;

/// Reads time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    at_start: Time,
}

impl Clock {
    /// A clock that shows `at_start` now.
    pub fn starting_at(at_start: Time) -> Self {
        Self {
            started: Instant::now(),
            at_start,
        }
    }

    /// Monotonic time.
    pub fn now(&self) -> Time {
        self.at_start.after(self.uptime())
    }

    /// Time since this clock was made.
    pub fn uptime(&self) -> Span {
        span(self.started.elapsed())
    }

    /// Wall clock, in microseconds since the Unix epoch.
    #[expect(
        clippy::disallowed_methods,
        reason = "this file is the clock the rule points to"
    )]
    pub fn unix_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Wall clock, in milliseconds since the Unix epoch.
    pub fn unix_ms(&self) -> u64 {
        self.unix_us() / 1_000
    }

    /// The instant to sleep to for `time` to be reached.
    pub fn instant(&self, time: Time) -> Instant {
        self.started + duration(time.since(self.at_start))
    }
}

/// A span as the standard library's type.
pub const fn duration(span: Span) -> Duration {
    Duration::from_micros(span.0)
}

/// The standard library's type as a span, saturating.
pub fn span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_goes_on_from_the_start_value() {
        let clock = Clock::starting_at(Time(7));
        tokio::time::advance(Duration::from_micros(5)).await;
        assert_eq!(clock.now(), Time(12));
        assert_eq!(clock.instant(Time(12)), Instant::now());
        assert!(clock.unix_us() > 1_600_000_000_000_000);
    }
}
