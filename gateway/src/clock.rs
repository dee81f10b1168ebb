//! The gateway's only readings of clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Now, by tokio's clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The moment after `pause`; the same moment where the later one is beyond the clock's range.
pub(crate) fn after(moment: Instant, pause: Duration) -> Instant {
    moment.checked_add(pause).unwrap_or(moment)
}

/// The output of `work`, or `None` when it takes longer than `limit`.
pub(crate) async fn within<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    tokio::time::timeout(limit, work).await.ok()
}

/// Milliseconds since 1970; zero when the wall clock stands before that.
pub(crate) fn wall_ms() -> u64 {
    wall_us() / 1_000
}

/// The same in microseconds.
#[expect(clippy::disallowed_methods, reason = "this is the crate's only reading of the wall clock")]
pub(crate) fn wall_us() -> u64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in microseconds, saturating.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
