//! The client's clocks: microseconds since the client started, and the wall clock for the incarnation number.
//!
//! Everything that decides reads time here, from tokio's pausable clock, so that tests can stop and move it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(any(test, all(target_os = "linux", not(feature = "test-util"))))]
use tidegate_core::slew::READING;
use tidegate_core::units::{Span, Time};
use tokio::time::Instant;

/// Monotonic time since the client was built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    coarse: coarse::Clock,
}

impl Clock {
    /// A clock that reads zero now.
    pub(crate) fn start() -> Self {
        // Read first: the coarse clock may be ahead of the other, so that nothing lasts longer by it.
        let coarse = coarse::Clock::start();
        Self { origin: Instant::now(), coarse }
    }

    /// The time for a third of the price of [`Clock::now`]; late by up to [`Clock::lag`], and rarely by more.
    #[inline]
    pub(crate) fn tick(&self) -> Tick {
        self.coarse.tick(self)
    }

    /// This clock and one that no time server slews, read at the same moment; `None` where there is no such clock, or
    /// the process is held up between the readings.
    pub(crate) fn beside_raw(&self) -> Option<(Time, Time)> {
        raw::beside(|| self.now())
    }

    /// A time that no time server slews, where there is one: the controller compares its own clock with it, to know how
    /// long a message was on its way.
    pub(crate) fn steady(&self) -> Time {
        raw::now().unwrap_or_else(|| self.now())
    }

    /// How late [`Clock::tick`] is at most while every processor runs.
    pub(crate) fn lag(&self) -> Span {
        self.coarse.lag()
    }

    /// The same where the processor that keeps the time is held up, as the host of a virtual machine may do: then
    /// another one takes over after five ticks of its own (Linux, `MAX_STALLED_JIFFIES` in kernel/time/tick-sched.c).
    pub(crate) fn worst_lag(&self) -> Span {
        Span(4 * self.lag().0)
    }

    /// The tick at `time`.
    pub(crate) fn tick_at(&self, time: Time) -> Tick {
        self.coarse.tick_at(time)
    }

    /// The time of a tick.
    pub(crate) fn time(&self, tick: Tick) -> Time {
        self.coarse.time(tick)
    }

    /// Microseconds since the start.
    #[cfg(not(all(test, shuttle)))]
    pub(crate) fn now(&self) -> Time {
        self.at(Instant::now())
    }

    /// The moment `instant` on this clock; zero when it lies before the start.
    pub(crate) fn at(&self, instant: Instant) -> Time {
        Time(span(instant.saturating_duration_since(self.origin)).0)
    }

    /// The moment `time` of this clock as tokio's.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.origin.checked_add(Duration::from_micros(time.0)).unwrap_or(self.origin)
    }

    /// Microseconds of virtual time.
    #[cfg(all(test, shuttle))]
    pub(crate) fn now(&self) -> Time {
        crate::virtual_time::now()
    }

    /// Completes when virtual time has come to `time`.
    #[cfg(all(test, shuttle))]
    pub(crate) async fn sleep_until(&self, time: Time) {
        crate::virtual_time::sleep_until(time).await;
    }

    /// Completes at `time`; at once when it has passed, never when it is beyond what the timer can express.
    #[cfg(not(all(test, shuttle)))]
    pub(crate) async fn sleep_until(&self, time: Time) {
        match self.origin.checked_add(Duration::from_micros(time.0)) {
            Some(instant) => tokio::time::sleep_until(instant).await,
            None => std::future::pending().await,
        }
    }
}

/// Two clocks, read at the same moment; `None` where the process is held up between the readings.
#[cfg(any(test, all(target_os = "linux", not(feature = "test-util"))))]
fn together(now: impl Fn() -> Time, raw: impl Fn() -> Time) -> Option<(Time, Time)> {
    /// Each try takes a tenth of a microsecond: one that fails was interrupted.
    const TRIES: usize = 3;
    (0..TRIES).find_map(|_| {
        let (used, raw) = (now(), raw());
        (now().since(used) < READING).then_some((used, raw))
    })
}

/// The clock of the machine that no time server adjusts.
#[cfg(all(target_os = "linux", not(any(test, feature = "test-util"))))]
mod raw {
    use rustix::time::{ClockId, clock_gettime};
    use tidegate_core::units::Time;

    pub(super) fn beside(now: impl Fn() -> Time) -> Option<(Time, Time)> {
        super::together(now, read)
    }

    #[expect(clippy::unnecessary_wraps, reason = "elsewhere there is none")]
    pub(super) fn now() -> Option<Time> {
        Some(read())
    }

    #[expect(clippy::cast_sign_loss, reason = "the raw clock starts at zero")]
    fn read() -> Time {
        let raw = clock_gettime(ClockId::MonotonicRaw);
        Time((raw.tv_sec as u64).saturating_mul(1_000_000).saturating_add(raw.tv_nsec as u64 / 1_000))
    }
}

/// For systems without such a clock, and where tests move time.
#[cfg(not(all(target_os = "linux", not(any(test, feature = "test-util")))))]
mod raw {
    use tidegate_core::units::Time;

    pub(super) fn beside(_: impl Fn() -> Time) -> Option<(Time, Time)> {
        None
    }

    pub(super) fn now() -> Option<Time> {
        None
    }
}

/// A reading of the quick clock, not worked out further: most readings are only compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(pub(crate) u64);

/// The time of the kernel's last tick, in nanoseconds of the monotonic clock.
#[cfg(all(target_os = "linux", not(any(test, feature = "test-util"))))]
mod coarse {
    use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};
    use tidegate_core::units::{Span, Time};

    use super::Tick;

    #[derive(Clone, Copy, Debug)]
    pub(super) struct Clock {
        origin: u64,
        lag: Span,
    }

    impl Clock {
        pub(super) fn start() -> Self {
            let step = nanos(clock_getres(ClockId::MonotonicCoarse)).div_ceil(1_000);
            // A tick may come a tick late.
            Self { origin: nanos(clock_gettime(ClockId::Monotonic)), lag: Span(2 * step) }
        }

        #[inline]
        pub(super) fn tick(&self, _: &super::Clock) -> Tick {
            Tick(nanos(clock_gettime(ClockId::MonotonicCoarse)))
        }

        pub(super) fn lag(&self) -> Span {
            self.lag
        }

        pub(super) fn tick_at(&self, time: Time) -> Tick {
            Tick(time.0.saturating_mul(1_000).saturating_add(self.origin))
        }

        pub(super) fn time(&self, tick: Tick) -> Time {
            Time(tick.0.saturating_sub(self.origin) / 1_000)
        }
    }

    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "the monotonic clock starts at zero")]
    fn nanos(time: Timespec) -> u64 {
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

/// Where there is no such clock, or tests move time: the clock itself.
#[cfg(not(all(target_os = "linux", not(any(test, feature = "test-util")))))]
mod coarse {
    use tidegate_core::units::{Span, Time};

    use super::Tick;

    #[derive(Clone, Copy, Debug)]
    pub(super) struct Clock;

    impl Clock {
        pub(super) fn start() -> Self {
            Self
        }

        pub(super) fn tick(&self, clock: &super::Clock) -> Tick {
            Tick(clock.now().0)
        }

        pub(super) fn lag(&self) -> Span {
            Span(0)
        }

        pub(super) fn tick_at(&self, time: Time) -> Tick {
            Tick(time.0)
        }

        pub(super) fn time(&self, tick: Tick) -> Time {
            Time(tick.0)
        }
    }
}

/// The output of `work`, or `None` when it takes longer than `limit`.
pub(crate) async fn within<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    tokio::time::timeout(limit, work).await.ok()
}

/// Microseconds since 1970; zero when the wall clock stands before that.
#[expect(clippy::disallowed_methods, reason = "this is the crate's only reading of the wall clock")]
pub(crate) fn wall_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| span(since).0)
}

/// A duration in microseconds, saturating.
pub(crate) fn span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// A span as the standard library's duration.
pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_micros(span.0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Two clocks of which one is read late would seem to run apart.
    #[test]
    fn clocks_are_compared_only_when_nothing_comes_between_their_readings() {
        let second = Span::secs(1).0;
        for (held_up, expected) in [(0, Some(0)), (1, Some(1)), (2, Some(2)), (3, None)] {
            let (reading, raw_reading) = (Cell::new(0), Cell::new(0));
            // Each try reads this clock before and after the raw one. Held up is the process in the first ones.
            let now = || {
                let (turn, is_after) = (reading.get() / 2, reading.get() % 2);
                reading.set(reading.get() + 1);
                let took = if turn < held_up { READING } else { Span(READING.0 - 1) };
                Time(second * turn + is_after * took.0)
            };
            let raw = || {
                raw_reading.set(raw_reading.get() + 1);
                Time(7 * second * raw_reading.get())
            };
            let expected = expected.map(|turn| (Time(second * turn), Time(7 * second * (turn + 1))));
            assert_eq!(together(now, raw), expected, "held up {held_up} times");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_paused_time() {
        let clock = Clock::start();
        assert_eq!(clock.now(), Time(0));
        clock.sleep_until(Time(1_500)).await;
        // Tokio's timer rounds up to the next millisecond.
        assert_eq!(clock.now(), Time(2_000));
        assert!(wall_micros() > 1_600_000_000_000_000);
    }
}
