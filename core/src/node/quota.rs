//! A node's share of its group's quota: what it may use within the window, by the newest grant.
//!
//! Used is what was settled in the window, and operations under way at their estimates. So an operation that runs across
//! the end of a window counts in the one in which it ends, as it does in the ledger, and what it cost beyond its
//! estimate leaves less for those after it.

use crate::exchange::{Allowance, Spending};
use crate::units::{MICRO, Ru, RuTotal, Span, Time};
use crate::usage::Total;

/// What a node knows of its group's quota, for those who call it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLeft {
    /// RU for all nodes within the window.
    pub amount: Ru,
    /// RU left of it when the controller said so last, less what this node used since, operations under way at their
    /// estimates. What other nodes used since is not known here.
    pub left: Ru,
    /// Time to the next window, on the slowest clock.
    pub resets_in: Span,
    /// The length of the window; zero: the controller does not say.
    pub length: Span,
}

/// What was used, and may be.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Quota {
    allowance: Allowance,
    /// The end of the window on this node's clock, no later than the controller's.
    until: Time,
    /// RU settled before the node's first share in the window.
    base: RuTotal,
    /// Estimates of operations under way.
    running: Ru,
    /// Used when the share was granted.
    used_then: Ru,
    /// Used as the newest renewal said.
    told: Ru,
    /// All that this node may have used when nothing is left for anyone, as far as the newest grant knows.
    in_reach: Ru,
}

impl Quota {
    /// Whether there is none.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.allowance.window == 0
    }

    /// An operation begins; returns whether most of the share is used, so that it is time to ask for more.
    #[cold]
    pub(super) fn begin(&mut self, cost: Ru, settled: &Total) -> bool {
        self.running += cost;
        let share = self.allowance.ceiling - self.used_then;
        self.allowance.ceiling - self.used(settled) < share.scale(1, 2)
    }

    /// An operation ends, or never ran.
    #[inline]
    pub(super) fn end(&mut self, estimate: Ru) {
        if !self.is_none() {
            // One that began before the quota counts for nothing.
            self.running = (self.running - estimate).or_zero();
        }
    }

    /// RU used since the first share in the window.
    fn used(&self, settled: &Total) -> Ru {
        RuTotal(settled.ru().0.saturating_sub(self.base.0)).clamped().min(Ru::MAX) + self.running
    }

    /// Whether the share covers an operation.
    pub(super) fn covers(&self, now: Time, cost: Ru, settled: &Total) -> bool {
        now < self.until && self.used(settled) + cost <= self.allowance.ceiling
    }

    /// Time to the next window, if nothing can cover an operation before: neither this node's share nor another's.
    pub(super) fn used_up(&self, now: Time, cost: Ru, settled: &Total) -> Option<Span> {
        if self.is_none() || now >= self.until {
            return None;
        }
        let left = self.allowance.left - (self.used(settled) - self.used_then);
        let covers = cost <= left || self.covers(now, cost, settled);
        (!covers).then(|| self.until.since(now))
    }

    /// The end of the window, which is when to ask for a share in the next.
    pub(super) fn until(&self) -> Option<Time> {
        (!self.is_none()).then_some(self.until)
    }

    /// What is known of it for callers, until the window ends.
    pub(super) fn left(&self, now: Time, settled: &Total) -> Option<QuotaLeft> {
        let Allowance { amount, length, .. } = self.allowance;
        (!self.is_none() && now < self.until).then(|| {
            let left = (self.in_reach - self.used(settled)).or_zero().min(amount);
            QuotaLeft { amount, left, resets_in: self.until.since(now), length }
        })
    }

    /// What a renewal says.
    pub(super) fn spending(&mut self, settled: &Total) -> Spending {
        match self.is_none() {
            true => Spending::default(),
            false => {
                self.told = self.used(settled);
                let Allowance { window, ceiling, .. } = self.allowance;
                Spending { window, used: self.told, ceiling }
            }
        }
    }

    /// Gives back what was not used; returns what the last renewal says.
    pub(super) fn give_up(&mut self, settled: &Total) -> Spending {
        self.allowance.ceiling = self.allowance.ceiling.min(self.used(settled));
        self.spending(settled)
    }

    /// Takes in the share of a grant, the answer to the renewal sent at `asked`, by a clock that may run slow by
    /// `drift_ppm`.
    pub(super) fn grant(
        &mut self,
        asked: Time,
        allowance: Option<Allowance>,
        settled: &Total,
        drift_ppm: u32,
    ) {
        let Some(allowance) = allowance else {
            *self = Self::default();
            return;
        };
        if allowance.window != self.allowance.window {
            (self.base, self.told) = (settled.ru(), Ru::ZERO);
        }
        let second = u128::from(MICRO.unsigned_abs());
        let sure = u128::from(allowance.resets_in.0) * second.saturating_sub(u128::from(drift_ppm)) / second;
        self.until = asked.after(Span(u64::try_from(sure).unwrap_or(u64::MAX)));
        self.allowance = allowance;
        self.used_then = self.used(settled);
        self.in_reach = allowance.left + self.told;
    }
}
