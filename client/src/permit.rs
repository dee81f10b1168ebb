//! The right to run one operation, to be settled with what it really used.

use std::ops::Deref;
use std::sync::Arc;

use tidegate_core::node::{Admitted, Estimate};
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts, Usage};
use tidegate_cost_model::Charge;
use tokio::time::Instant;

use crate::clock::Tick;
use crate::groups::GroupCell;
use crate::names::GroupName;

/// An admitted operation. Settle it when the operation has run; a permit that is dropped charges its estimate.
#[derive(Debug)]
#[must_use = "a permit that is dropped charges its estimate; settle it with what the operation used"]
pub struct Permit<'a> {
    cell: Holder<'a>,
    /// `None` once it is settled.
    estimate: Option<Estimate>,
    admitted_at: Tick,
}

/// The owner that keeps the group alive: counting references would cost more than the rest of an admission.
#[derive(Debug)]
enum Holder<'a> {
    Handle(&'a Arc<GroupCell>),
    Permit(Arc<GroupCell>),
}

impl Deref for Holder<'_> {
    type Target = Arc<GroupCell>;

    #[inline]
    fn deref(&self) -> &Arc<GroupCell> {
        match self {
            Self::Handle(cell) => cell,
            Self::Permit(cell) => cell,
        }
    }
}

impl<'a> Permit<'a> {
    #[inline(always)]
    pub(crate) fn new(cell: &'a Arc<GroupCell>, estimate: Ru, admitted_at: Tick) -> Self {
        Self { cell: Holder::Handle(cell), estimate: Some(Estimate::Paid(estimate)), admitted_at }
    }

    /// The same for an operation that took its estimate, or is over a limit in shadow.
    #[inline(always)]
    pub(crate) fn admitted(cell: &'a Arc<GroupCell>, estimate: Ru, (at, admitted): (Tick, Admitted)) -> Self {
        Self { cell: Holder::Handle(cell), estimate: Some(admitted.with(estimate)), admitted_at: at }
    }

    /// A permit that owns a handle which the caller no longer needs.
    pub(crate) fn owning(
        cell: Arc<GroupCell>,
        estimate: Ru,
        (at, admitted): (Tick, Admitted),
    ) -> Permit<'static> {
        Permit { cell: Holder::Permit(cell), estimate: Some(admitted.with(estimate)), admitted_at: at }
    }

    /// RU in this node's bucket of the group, as [`crate::Group::remaining`] returns them.
    pub(crate) fn remaining(&self) -> Option<Ru> {
        self.cell.remaining()
    }

    /// The same without a borrow of the group's handle.
    pub fn into_owned(mut self) -> Permit<'static> {
        let cell = Holder::Permit(Arc::clone(&self.cell));
        Permit { cell, estimate: self.close(), admitted_at: self.admitted_at }
    }

    /// RU estimated when the operation was admitted, less what was charged since.
    pub fn estimate(&self) -> Ru {
        self.estimate.map_or(Ru::ZERO, Estimate::amount)
    }

    /// Takes the estimate; after that there is nothing left to settle.
    #[inline(always)]
    fn close(&mut self) -> Option<Estimate> {
        self.estimate.take()
    }

    /// When the tokens were taken, for a log of admissions; the caller may have been woken later. Early by up to two
    /// ticks of the kernel's clock (8 ms where it ticks 250 times a second), rarely by more.
    pub fn admitted_at(&self) -> Instant {
        let clock = &self.cell.shared().clock;
        clock.instant(clock.time(self.admitted_at))
    }

    /// The group that pays.
    pub fn group(&self) -> &GroupName {
        self.cell.name()
    }

    /// The charge of `usage` now; settles nothing.
    pub fn price(&self, usage: &Usage) -> RuParts {
        self.cell.shared().prices.price(usage).parts
    }

    /// The operation goes on and has used this since it began or was last charged: charges it, from the estimate while
    /// that lasts. So a long operation pays as it runs; what is left of the estimate is settled at the end. Returns
    /// the charge.
    pub fn charge(&mut self, usage: &Usage) -> RuParts {
        let charge = self.cell.shared().prices.price(usage);
        let actual = charge.of_a_part(usage);
        if let Some(left) = self.estimate {
            let taken = left.amount().min(charge.total);
            self.cell.with(|state, now| state.settle_part(now, left.of(taken), &actual));
            self.estimate = Some(left.of(left.amount() - taken));
        }
        charge.parts
    }

    /// The operation used this: charges it by the cost table in force, counts it by the shadow table, gives back what
    /// the estimate was too high or goes into debt for what it was too low. Returns the charge.
    #[inline]
    pub fn settle(mut self, usage: &Usage) -> RuParts {
        let charge = self.cell.shared().prices.price(usage);
        if let Some(estimate) = self.close() {
            settle(&self.cell, estimate, &charge, usage);
        }
        charge.parts
    }

    /// As [`Permit::settle`] for an operation whose cost is known in RU. Negative parts count as zero.
    #[inline(always)]
    pub fn settle_ru(mut self, charge: RuParts) -> RuParts {
        let charge = self.cell.shared().prices.direct(charge);
        if let Some(estimate) = self.close() {
            settle_charge(&self.cell, estimate, &charge);
        }
        charge.parts
    }

    /// The operation never ran: gives everything back and counts nothing.
    pub fn cancel(mut self) {
        let Some(estimate) = self.close() else { return };
        let lent = matches!(estimate, Estimate::Paid(paid) if self.cell.lending().give_back(paid));
        if !lent {
            self.cell.with(|state, now| state.give_back(now, estimate));
        }
    }
}

impl Drop for Permit<'_> {
    // Small, so that it vanishes where the permit is settled in sight.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(estimate) = self.estimate {
            settle_estimate(&self.cell, estimate);
        }
    }
}

#[inline(never)]
fn settle_estimate(cell: &Arc<GroupCell>, estimate: Estimate) {
    let charge = cell.shared().prices.flat(estimate.amount());
    settle_charge(cell, estimate, &charge);
}

/// The operation ran, used this and was charged for it.
fn settle(cell: &Arc<GroupCell>, estimate: Estimate, charge: &Charge, usage: &Usage) {
    if let Estimate::Paid(paid) = estimate
        && cell.lending().settle(paid, charge, usage, &cell.shared().clock)
    {
        return;
    }
    settle_in_group(cell, estimate, &charge.of_one_operation(usage));
}

/// The operation ran and was charged directly.
#[inline(always)]
fn settle_charge(cell: &Arc<GroupCell>, estimate: Estimate, charge: &Charge) {
    if let Estimate::Paid(paid) = estimate
        && cell.lending().settle_charge(paid, charge, &cell.shared().clock)
    {
        return;
    }
    settle_in_group(cell, estimate, &charge.of_one_operation(&Usage::default()));
}

fn settle_in_group(cell: &Arc<GroupCell>, estimate: Estimate, actual: &Consumption) {
    cell.with(|state, now| state.settle(now, estimate, actual));
}
