//! The right to run one operation, to be settled with what it really used.

use std::sync::Arc;

use tidegate_core::units::{Ru, Time};
use tidegate_core::usage::{RuParts, Usage};
use tokio::time::Instant;

use crate::cell::GroupCell;
use crate::names::GroupName;

/// An admitted operation. Settle it when the operation has run; a permit that is dropped charges its estimate.
#[derive(Debug)]
#[must_use = "a permit that is dropped charges its estimate; settle it with what the operation used"]
pub struct Permit {
    cell: Arc<GroupCell>,
    estimate: Ru,
    admitted_at: Time,
    settled: bool,
}

impl Permit {
    pub(crate) fn new(cell: Arc<GroupCell>, estimate: Ru, admitted_at: Time) -> Self {
        Self { cell, estimate, admitted_at, settled: false }
    }

    /// What was taken when the operation was admitted.
    pub fn estimate(&self) -> Ru {
        self.estimate
    }

    /// When the tokens were taken, for a log of admissions; the caller may have been woken later.
    pub fn admitted_at(&self) -> Instant {
        self.cell.shared.clock.instant(self.admitted_at)
    }

    /// The group that pays.
    pub fn group(&self) -> &GroupName {
        self.cell.name()
    }

    /// What `usage` would be charged now; settles nothing.
    pub fn price(&self, usage: &Usage) -> RuParts {
        self.cell.shared.prices.price(usage).charged
    }

    /// The operation used this: charges it by the cost table in force, counts it by the shadow table, gives back what
    /// the estimate was too high or goes into debt for what it was too low. Returns the charge.
    pub fn settle(mut self, usage: &Usage) -> RuParts {
        self.settled = true;
        let actual = self.cell.shared.prices.price(usage);
        self.cell.settle(self.estimate, &actual);
        actual.charged
    }

    /// As [`Permit::settle`] for an operation whose cost is known in RU. Negative parts count as zero.
    pub fn settle_ru(mut self, charge: RuParts) -> RuParts {
        self.settled = true;
        let actual = self.cell.shared.prices.direct(charge);
        self.cell.settle(self.estimate, &actual);
        actual.charged
    }

    /// The operation never ran: gives everything back and counts nothing.
    pub fn cancel(mut self) {
        self.settled = true;
        self.cell.give_back(self.estimate);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.settled {
            let actual = self.cell.shared.prices.direct(RuParts::flat(self.estimate));
            self.cell.settle(self.estimate, &actual);
        }
    }
}
