//! The controller's only clock.
//!
//! `now()` is microseconds since the controller started, on tokio's monotonic clock, which tests can pause. Nothing
//! that outlives a process is kept on it: saved leases carry the time they have left. `unix_us()` is the wall clock;
//! nothing about safety hangs on it but the end of a proof, which is checked conservatively.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_core::units::{Span, Time};
use tokio::time::Instant;

/// Reads time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    /// A clock that shows zero now.
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// Monotonic time.
    pub fn now(&self) -> Time {
        Time(self.uptime().0)
    }

    /// Time since this clock was made.
    pub fn uptime(&self) -> Span {
        span(self.started.elapsed())
    }

    /// Wall clock, in microseconds since the Unix epoch.
    #[expect(clippy::disallowed_methods, reason = "this file is the clock the rule points to")]
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
        self.started + duration(Span(time.0))
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
    async fn time_starts_at_zero_and_goes_on() {
        let clock = Clock::start();
        tokio::time::advance(Duration::from_micros(5)).await;
        assert_eq!(clock.now(), Time(5));
        assert_eq!(clock.instant(Time(5)), Instant::now());
        assert!(clock.unix_us() > 1_600_000_000_000_000);
    }
}
