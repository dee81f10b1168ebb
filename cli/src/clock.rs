//! The command's clocks, the only place that reads them.
//!
//! `monotonic_us` is `CLOCK_MONOTONIC` in microseconds, the same for every process of the machine, so that logs of
//! several processes can be merged. `unix_ms` is the wall clock, for people.

use rustix::time::{ClockId, clock_gettime};
use tidegate_sql::date_text;

/// Microseconds since the machine started.
pub(crate) fn monotonic_us() -> u64 {
    micros(ClockId::Monotonic)
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    micros(ClockId::Realtime) / 1_000
}

/// Nanoseconds of the clock that is kept in step.
pub(crate) fn monotonic_ns() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Nanoseconds of the oscillator, which no time server adjusts.
pub(crate) fn monotonic_raw_ns() -> u64 {
    nanos(ClockId::MonotonicRaw)
}

fn micros(clock: ClockId) -> u64 {
    nanos(clock) / 1_000
}

fn nanos(clock: ClockId) -> u64 {
    let reading = clock_gettime(clock);
    let seconds = u64::try_from(reading.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(reading.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// `unix_ms` as `2026-01-31 23:59:58Z`.
pub(crate) fn utc_text(unix_ms: u64) -> String {
    format!("{}Z", date_text(unix_ms / 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_827_696_000, "2000-02-29 12:34:56Z"),
            (1_767_225_599_999, "2025-12-31 23:59:59Z"),
        ] {
            assert_eq!(utc_text(ms), text);
        }
    }

    #[test]
    fn the_monotonic_clock_does_not_step_back() {
        let first = monotonic_us();
        assert!(first > 0 && monotonic_us() >= first && unix_ms() > 1_600_000_000_000);
    }
}
