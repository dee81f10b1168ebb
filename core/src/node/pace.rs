//! How often renewals go out before the regular time: an allowance, as in GCRA.

use crate::units::{Span, Time};

/// Average interval of early renewals; a few may come at once when the load jumps.
pub(super) const MIN_INTERVAL: Span = Span::millis(100);
/// Allowance that a quiet time saves up: three in a row.
const MIN_INTERVAL_BURST: Span = Span::millis(300);
/// Least interval between an early renewal and the one before: there must be something new to report.
const LEAST_INTERVAL: Span = Span::millis(10);

/// The allowance of early renewals.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Pace {
    /// Until when renewals sent so far use it up.
    paid_until: Time,
    /// Until then nothing goes out early while nothing waits: a lump served the last waiter, and another operation like
    /// it may come at once and be in the same report.
    served_until: Time,
}

impl Pace {
    /// The earliest time of another renewal after the one sent at `sent`.
    pub(super) fn allowed(&self, sent: Option<Time>) -> Time {
        let allowed = Time(self.paid_until.0.saturating_sub(MIN_INTERVAL_BURST.0));
        sent.map_or(allowed, |at| allowed.max(at.after(LEAST_INTERVAL)))
    }

    /// Until when another operation like the last that was served may be in the same report.
    pub(super) fn served_until(&self) -> Time {
        self.served_until
    }

    /// A renewal goes out now.
    pub(super) fn pay(&mut self, now: Time) {
        self.paid_until = self.paid_until.max(now).after(MIN_INTERVAL);
    }

    /// Notes that the last waiter was served.
    pub(super) fn served(&mut self, now: Time) {
        self.served_until = now.after(MIN_INTERVAL);
    }

    /// Notes the end of an operation: one report covers what it did not need and the next operation of its connection.
    pub(super) fn settled(&mut self, now: Time) {
        self.served_until = self.served_until.min(now.after(LEAST_INTERVAL));
    }
}
