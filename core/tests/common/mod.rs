//! What tests of single rules share: moments in milliseconds, and a grant that must be a lease.

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::units::Time;

pub(crate) fn at(ms: u64) -> Time {
    Time(ms * 1_000)
}

pub(crate) fn leased(grant: Option<Grant>) -> LeaseTerms {
    match grant {
        Some(Grant::Leased(terms)) => terms,
        other => panic!("not a lease: {other:?}"),
    }
}
