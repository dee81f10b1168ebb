//! The right to run one operation, to be settled with what it really used.

use std::ops::Deref;
use std::sync::Arc;

use tidegate_core::node::{Admitted, Estimate, QuotaLeft};
use tidegate_core::quota::Unit;
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts, Usage};
use tidegate_cost_model::Charge;
use tokio::time::Instant;

use crate::clock::Tick;
use crate::group::{Group, quota_left};
use crate::groups::GroupCell;
use crate::names::GroupName;

/// An admitted operation. Settle it when the operation has run; a permit that is dropped charges its estimate.
#[derive(Debug)]
#[must_use = "a permit that is dropped charges its estimate; settle it with what the operation used"]
pub struct Permit<'a> {
    cell: Holder<'a>,
    /// `None` once it is settled.
    estimate: Option<Ru>,
    admitted_at: Tick,
}

/// The owner that keeps the group alive: counting references would cost more than the rest of an admission.
#[derive(Debug)]
enum Holder<'a> {
    /// Of an operation that took its estimate.
    Handle(&'a Arc<GroupCell>),
    /// What an operation took is told here and not by its estimate: every permit would pay for that. So is whether another
    /// group than its own pays.
    Permit(Arc<GroupCell>, Admitted, Payer),
}

/// Which group pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payer {
    /// The one that was asked.
    Own,
    /// The one to which it demotes.
    Target,
}

impl Deref for Holder<'_> {
    type Target = Arc<GroupCell>;

    #[inline]
    fn deref(&self) -> &Arc<GroupCell> {
        match self {
            Self::Handle(cell) => cell,
            Self::Permit(cell, ..) => cell,
        }
    }
}

impl<'a> Permit<'a> {
    #[inline(always)]
    pub(crate) fn new(cell: &'a Arc<GroupCell>, estimate: Ru, admitted_at: Tick) -> Self {
        Self { cell: Holder::Handle(cell), estimate: Some(estimate), admitted_at }
    }

    /// The same for an operation that took its estimate, or is over a limit in shadow.
    #[inline(always)]
    pub(crate) fn admitted(cell: &'a Arc<GroupCell>, estimate: Ru, (at, admitted): (Tick, Admitted)) -> Self {
        match admitted {
            Admitted::Paid => Self::new(cell, estimate, at),
            Admitted::Over => Self::over(cell, estimate, at),
        }
    }

    #[cold]
    fn over(cell: &Arc<GroupCell>, estimate: Ru, admitted_at: Tick) -> Self {
        Self {
            cell: Holder::Permit(Arc::clone(cell), Admitted::Over, Payer::Own),
            estimate: Some(estimate),
            admitted_at,
        }
    }

    /// A permit that owns a handle which the caller no longer needs.
    pub(crate) fn owning(
        cell: Arc<GroupCell>,
        estimate: Ru,
        (at, admitted): (Tick, Admitted),
    ) -> Permit<'static> {
        Permit { cell: Holder::Permit(cell, admitted, Payer::Own), estimate: Some(estimate), admitted_at: at }
    }

    /// A permit of the group to which that of the operation demotes.
    pub(crate) fn of_target(
        target: Arc<GroupCell>,
        estimate: Ru,
        (at, admitted): (Tick, Admitted),
    ) -> Permit<'static> {
        let cell = Holder::Permit(target, admitted, Payer::Target);
        Permit { cell, estimate: Some(estimate), admitted_at: at }
    }

    /// The same for a permit of the other group that was waited for.
    pub(crate) fn into_demoted(mut self) -> Permit<'static> {
        let cell = Holder::Permit(Arc::clone(&self.cell), self.cell.admitted(), Payer::Target);
        Permit { cell, estimate: self.estimate.take(), admitted_at: self.admitted_at }
    }

    /// RU in this node's bucket of the group, as [`crate::Group::remaining`] returns them.
    pub(crate) fn remaining(&self) -> Option<Ru> {
        self.cell.remaining()
    }

    /// What is left of the quota, as [`crate::Group::quota_left`] returns it, once the operation has cost `charge`.
    pub(crate) fn quota_left(&self, charge: Ru) -> Option<QuotaLeft> {
        let mut quota = quota_left(&self.cell)?;
        if quota.unit == Unit::Requests {
            // It counts since it began, whatever it costs.
            return Some(quota);
        }
        let counted = match self.cell.admitted() {
            Admitted::Paid => self.estimate(),
            Admitted::Over => Ru::ZERO,
        };
        quota.left = (quota.left - (charge - counted).or_zero()).or_zero();
        Some(quota)
    }

    /// The same without a borrow of the group's handle.
    pub fn into_owned(mut self) -> Permit<'static> {
        let cell = Holder::Permit(Arc::clone(&self.cell), self.cell.admitted(), self.cell.payer());
        Permit { cell, estimate: self.estimate.take(), admitted_at: self.admitted_at }
    }

    /// RU estimated when the operation was admitted, less what was charged since.
    pub fn estimate(&self) -> Ru {
        self.estimate.unwrap_or_default()
    }

    /// Takes the estimate; after that there is nothing left to settle.
    #[inline(always)]
    fn close(&mut self) -> Ru {
        self.estimate.take().unwrap_or_default()
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

    /// A handle of the group that pays.
    pub fn payer(&self) -> Group {
        Group { cell: Arc::clone(&self.cell) }
    }

    /// Whether the group that pays is the one to which that of the operation demotes.
    pub fn is_demoted(&self) -> bool {
        self.cell.payer() == Payer::Target
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
        let left = self.estimate();
        let taken = left.min(charge.total);
        let part = self.cell.estimate(taken);
        self.cell.with(|state, now| state.settle_part(now, part, &actual));
        self.estimate = Some(left - taken);
        charge.parts
    }

    /// The operation used this: charges it by the cost table in force, counts it by the shadow table, gives back what
    /// the estimate was too high or goes into debt for what it was too low. Returns the charge.
    #[inline]
    pub fn settle(mut self, usage: &Usage) -> RuParts {
        let charge = self.cell.shared().prices.price(usage);
        let estimate = self.close();
        match self.cell {
            Holder::Handle(cell) => {
                // There is nothing left to drop, and the compiler does not see it.
                std::mem::forget(self);
                settle(cell, estimate, &charge, usage);
            }
            ref owner => owner.settle(estimate, &charge, usage),
        }
        charge.parts
    }

    /// As [`Permit::settle`] for an operation whose cost is known in RU. Negative parts count as zero.
    #[inline(always)]
    pub fn settle_ru(mut self, charge: RuParts) -> RuParts {
        let estimate = self.close();
        match self.cell {
            Holder::Handle(cell) => {
                // There is nothing left to drop, and the compiler does not see it.
                std::mem::forget(self);
                let charge = cell.shared().prices.direct(charge);
                settle_charge(cell, estimate, &charge);
                charge.parts
            }
            ref owner => owner.settle_ru(estimate, charge),
        }
    }

    /// The operation never ran: gives everything back and counts nothing.
    pub fn cancel(mut self) {
        let estimate = self.close();
        let paid = self.cell.admitted() == Admitted::Paid;
        if !(paid && self.cell.lending().give_back(estimate)) {
            let estimate = self.cell.estimate(estimate);
            let began = self.cell.shared().clock.time(self.admitted_at);
            self.cell.with(|state, now| state.give_back(now, began, estimate));
        }
    }
}

impl Drop for Permit<'_> {
    // Small, so that it vanishes where the permit is settled in sight.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(estimate) = self.estimate {
            self.cell.settle_estimate(estimate);
        }
    }
}

/// The operation ran, used this and was charged for it; it took its estimate.
fn settle(cell: &Arc<GroupCell>, estimate: Ru, charge: &Charge, usage: &Usage) {
    if !cell.lending().settle(estimate, charge, usage, &cell.shared().clock) {
        settle_in_group(cell, Estimate::Paid(estimate), &charge.of_one_operation(usage));
    }
}

/// The operation ran and was charged directly; it took its estimate.
#[inline(always)]
fn settle_charge(cell: &Arc<GroupCell>, estimate: Ru, charge: &Charge) {
    if !cell.lending().settle_charge(estimate, charge, &cell.shared().clock) {
        settle_in_group(cell, Estimate::Paid(estimate), &charge.of_one_operation(&Usage::default()));
    }
}

fn settle_in_group(cell: &Arc<GroupCell>, estimate: Estimate, actual: &Consumption) {
    cell.with(|state, now| state.settle(now, estimate, actual));
}

/// Permits of every kind; those that borrow a handle are settled in sight of the caller.
impl Holder<'_> {
    fn admitted(&self) -> Admitted {
        match self {
            Self::Handle(_) => Admitted::Paid,
            Self::Permit(_, admitted, _) => *admitted,
        }
    }

    fn payer(&self) -> Payer {
        match self {
            Self::Handle(_) => Payer::Own,
            Self::Permit(.., payer) => *payer,
        }
    }

    /// The estimate as the group's machine settles it.
    fn estimate(&self, amount: Ru) -> Estimate {
        self.admitted().with(amount)
    }

    #[inline(never)]
    fn settle_estimate(&self, estimate: Ru) {
        let charge = self.shared().prices.flat(estimate);
        self.settle_charge(estimate, &charge);
    }

    #[inline(never)]
    fn settle_ru(&self, estimate: Ru, charge: RuParts) -> RuParts {
        let charge = self.shared().prices.direct(charge);
        self.settle_charge(estimate, &charge);
        charge.parts
    }

    fn settle_charge(&self, estimate: Ru, charge: &Charge) {
        match self.admitted() {
            Admitted::Paid => settle_charge(self, estimate, charge),
            Admitted::Over => self.settle_over(estimate, &charge.of_one_operation(&Usage::default())),
        }
    }

    #[inline(never)]
    fn settle(&self, estimate: Ru, charge: &Charge, usage: &Usage) {
        match self.admitted() {
            Admitted::Paid => settle(self, estimate, charge, usage),
            Admitted::Over => self.settle_over(estimate, &charge.of_one_operation(usage)),
        }
    }

    #[cold]
    fn settle_over(&self, estimate: Ru, actual: &Consumption) {
        settle_in_group(self, Estimate::Over(estimate), actual);
    }
}
