//! The lump: tokens beside the bucket, spent first, which no rate refills.

use crate::units::{MICRO, Ru, Span, Time};

/// Lump tokens in hand.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Lump {
    amount: Ru,
    /// The part that may be spent only from `pending_until` on.
    pending: Ru,
    pending_until: Time,
    /// The amount that the ledger counts: the rest at the node's last renewal, and grants since.
    ledger: Ru,
}

impl Lump {
    /// All of it.
    #[inline]
    pub(super) fn amount(&self) -> Ru {
        self.amount
    }

    /// The part that may be spent.
    #[inline]
    pub(super) fn free(&self) -> Ru {
        self.amount - self.pending
    }

    /// When all of it may be spent; `None` when it already may.
    pub(crate) fn pending_until(&self) -> Option<Time> {
        self.pending.is_positive().then_some(self.pending_until)
    }

    /// Whether it alone will cover an operation, once all of it may be spent.
    pub(crate) fn will_cover(&self, cost: Ru) -> bool {
        self.pending.is_positive() && self.amount >= cost
    }

    /// Notes the time: what was pending until then may be spent.
    #[inline]
    pub(super) fn advance(&mut self, now: Time) {
        if now >= self.pending_until {
            self.pending = Ru::ZERO;
        }
    }

    /// Counts the rest of the wait by a clock that may run fast by `ppm`.
    pub(super) fn wait_by_clock(&mut self, now: Time, ppm: u32) {
        if self.pending.is_positive() {
            self.pending_until = now.after(by_a_fast_clock(self.pending_until.since(now), ppm));
        }
    }

    /// Takes tokens, as far as they may be spent; returns how many.
    #[inline]
    pub(super) fn take(&mut self, amount: Ru) -> Ru {
        let taken = amount.min(self.free());
        self.amount -= taken;
        taken
    }

    /// Takes back what an operation did not need, as far as the ledger counts it; returns how much.
    pub(super) fn refund(&mut self, amount: Ru) -> Ru {
        let taken = amount.min(self.ledger - self.amount).or_zero();
        self.amount += taken;
        taken
    }

    /// Adds a grant, of which `paid` was owed.
    pub(super) fn give(&mut self, granted: Ru, paid: Ru) {
        self.amount += granted - paid;
        self.ledger += granted;
    }

    /// Adds a grant that may be spent when `wait` has passed, by a clock that may run fast by `ppm`.
    pub(super) fn give_ahead(&mut self, now: Time, granted: Ru, wait: Span, ppm: u32) {
        self.give(granted, Ru::ZERO);
        self.pending = (self.pending + granted).min(self.amount);
        let wait = by_a_fast_clock(wait, ppm);
        self.pending_until = self.pending_until.max(now.after(wait));
    }

    /// Reports it in a renewal; takes all of it out if it goes back.
    pub(super) fn report(&mut self, goes_back: bool) -> Ru {
        let back = if goes_back { std::mem::take(&mut self.amount) } else { Ru::ZERO };
        self.pending = self.pending.min(self.amount);
        self.ledger = self.amount;
        back
    }

    /// Drops it.
    pub(super) fn clear(&mut self) {
        (self.amount, self.pending, self.ledger) = Default::default();
    }
}

/// The reading on this node's clock after which `span` has surely passed, however fast the clock runs.
fn by_a_fast_clock(span: Span, ppm: u32) -> Span {
    let more = (u128::from(span.0) * u128::from(ppm)).div_ceil(MICRO.unsigned_abs().into()) + 1;
    Span(u64::try_from(u128::from(span.0) + more).unwrap_or(u64::MAX))
}
