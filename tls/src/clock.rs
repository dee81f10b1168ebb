//! The wall clock, by which certificates begin and end.

use std::time::UNIX_EPOCH;

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the clock of this crate")]
    let now = std::time::SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
