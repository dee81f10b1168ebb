//! Between the exact units of the core and the floats of the models.

use tidegate_core::units::{Ru, Span, Time};

/// RU.
#[expect(clippy::cast_precision_loss, reason = "costs are far below 2^53 micro-RU")]
pub(super) fn ru(amount: Ru) -> f64 {
    amount.0 as f64 / 1e6
}

/// Seconds.
#[expect(clippy::cast_precision_loss, reason = "a run is far below 2^53 microseconds")]
pub(super) fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e6
}

/// A length of time from seconds, rounded up to the microsecond; longer than any run when it is not finite.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what fits before it is converted"
)]
pub(super) fn span(seconds: f64) -> Span {
    if seconds.is_finite() {
        Span((seconds * 1e6).ceil().clamp(0.0, 1e15) as u64)
    } else {
        Span(1_000_000_000_000_000)
    }
}

/// A count as a float.
#[expect(clippy::cast_precision_loss, reason = "a count of clients is small")]
pub(super) fn count(number: usize) -> f64 {
    number as f64
}

/// Seconds between two moments; zero when the later one is not later.
pub(super) fn between(earlier: Time, later: Time) -> f64 {
    seconds(later.since(earlier))
}
