//! The controller's only clock.
//!
//! `now()` is microseconds since the controller started, on the machine's raw clock, which no time server slews: pools
//! accrue and leases end by it, whatever chrony does to other clocks. On a machine without one, and in tests, which
//! pause time, it is tokio's monotonic clock. Nothing that outlives a process uses it: saved leases carry the time they
//! have left. `unix_us()` is the wall clock; safety depends on it only for the end of a proof, which is checked
//! conservatively. A simulation sets the time of a driven clock itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_core::units::{Span, Time};
use tokio::time::Instant;

/// Wall clock of a driven clock that shows zero: 2020-01-01, in microseconds since the Unix epoch.
const DRIVEN_UNIX_US: u64 = 1_577_836_800_000_000;

/// Reads time.
#[derive(Clone, Debug)]
pub struct Clock {
    started: Started,
    driven: Option<Driven>,
}

/// A moment on the machine's raw clock.
#[cfg(all(target_os = "linux", not(test)))]
#[derive(Clone, Copy, Debug)]
struct Started(Duration);

#[cfg(all(target_os = "linux", not(test)))]
impl Started {
    fn now() -> Self {
        let raw = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicRaw);
        Self(Duration::try_from(raw).unwrap_or_default())
    }

    fn elapsed(self) -> Span {
        span(Self::now().0.saturating_sub(self.0))
    }
}

/// A moment on the clock that tests pause, or the only one that the machine has.
#[cfg(not(all(target_os = "linux", not(test))))]
#[derive(Clone, Copy, Debug)]
struct Started(Instant);

#[cfg(not(all(target_os = "linux", not(test))))]
impl Started {
    fn now() -> Self {
        Self(Instant::now())
    }

    fn elapsed(self) -> Span {
        span(self.0.elapsed())
    }
}

/// A time that the caller sets.
#[derive(Clone, Debug)]
struct Driven {
    now: Arc<AtomicU64>,
    started: u64,
    /// How far the wall clock was set forward, in microseconds.
    ahead: Arc<AtomicU64>,
}

impl Clock {
    /// Starts a clock at zero.
    pub fn start() -> Self {
        Self { started: Started::now(), driven: None }
    }

    /// Starts a clock at zero that follows `now`, in microseconds, which must never go back.
    pub fn driven(now: Arc<AtomicU64>) -> Self {
        let started = now.load(Ordering::Relaxed);
        Self { driven: Some(Driven { now, started, ahead: Arc::default() }), ..Self::start() }
    }

    /// The same driven clock with a wall clock that is so many microseconds ahead, which may change both ways.
    #[must_use]
    pub fn with_wall(mut self, ahead: Arc<AtomicU64>) -> Self {
        if let Some(driven) = &mut self.driven {
            driven.ahead = ahead;
        }
        self
    }

    /// Monotonic time.
    pub fn now(&self) -> Time {
        Time(self.uptime().0)
    }

    /// Time since this clock was started.
    pub fn uptime(&self) -> Span {
        match &self.driven {
            None => self.started.elapsed(),
            Some(driven) => Span(driven.now.load(Ordering::Relaxed).saturating_sub(driven.started)),
        }
    }

    /// Wall clock, in microseconds since the Unix epoch.
    #[expect(clippy::disallowed_methods, reason = "this file is the clock the rule points to")]
    pub fn unix_us(&self) -> u64 {
        if let Some(driven) = &self.driven {
            let ahead = driven.ahead.load(Ordering::Relaxed);
            return DRIVEN_UNIX_US.saturating_add(driven.now.load(Ordering::Relaxed)).saturating_add(ahead);
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Wall clock, in milliseconds since the Unix epoch.
    pub fn unix_ms(&self) -> u64 {
        self.unix_us() / 1_000
    }

    /// The instant at which a timer should fire for `time`, as far as timers keep pace with this clock: the caller
    /// checks the clock again then.
    pub fn instant(&self, time: Time) -> Instant {
        Instant::now() + duration(time.since(self.now()))
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

    #[test]
    fn a_driven_clock_shows_what_it_is_set_to() {
        let time = Arc::new(AtomicU64::new(7));
        let clock = Clock::driven(Arc::clone(&time));
        let unix_us = clock.unix_us();
        time.store(12, Ordering::Relaxed);
        assert_eq!((clock.now(), clock.unix_us() - unix_us), (Time(5), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn time_starts_at_zero_and_goes_on() {
        let clock = Clock::start();
        tokio::time::advance(Duration::from_micros(5)).await;
        assert_eq!(clock.now(), Time(5));
        assert_eq!(clock.instant(Time(5)), Instant::now());
        assert!(clock.unix_us() > 1_600_000_000_000_000);
    }
}
