//! What operations under way have taken, and what of it comes back.

use crate::units::Ru;

/// Renewals, about a minute, for which the bucket stays deep enough for operations like one that went on elsewhere, while
/// there are such. At two, one of 80 RU a second in a group of 100 RU/s would go on elsewhere every other time.
const KEPT: u8 = 60;

/// Tokens taken by operations that have not ended.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Taken {
    /// What these do not need comes back.
    running: Ru,
    /// The largest operation admitted since the last renewal, and between that and the one before it.
    largest: [Ru; 2],
    /// Renewals for which the largest operation is reported although none is under way: one went on elsewhere.
    kept: u8,
    /// `running` as of the newest renewal, less what came back since: the ledger keeps room for no more.
    told: Ru,
    /// Tokens that came back and have no room here: not spendable, returned with the next renewal.
    refunded: Ru,
}

impl Taken {
    /// Tokens that operations did not need, for others to use.
    pub(crate) fn refunded(&self) -> Ru {
        self.refunded
    }

    /// The largest operation admitted since the renewal before last.
    pub(crate) fn largest(&self) -> Ru {
        let [newest, older] = self.largest;
        newest.max(older)
    }

    /// An operation begins.
    #[inline]
    pub(super) fn begin(&mut self, cost: Ru) {
        self.running += cost;
        let [newest, _] = &mut self.largest;
        *newest = (*newest).max(cost);
    }

    /// An operation found no tokens and goes on elsewhere. The next like it would start in a bucket that is deep enough.
    pub(crate) fn pass(&mut self, cost: Ru) {
        let [newest, _] = &mut self.largest;
        *newest = (*newest).max(cost);
        self.kept = KEPT;
    }

    /// An operation that was admitted for `estimate` ends; returns what of it was counted.
    #[inline]
    pub(super) fn end(&mut self, estimate: Ru) -> Ru {
        let released = estimate.min(self.running);
        self.running -= released;
        released
    }

    /// Keeps what has no room here for the controller, as far as it keeps room; the rest is lost.
    pub(super) fn refund(&mut self, amount: Ru) {
        let elsewhere = amount.min(self.told);
        self.told -= elsewhere;
        self.refunded += elsewhere;
    }

    /// Reports in a renewal: tokens that go back, tokens taken, and the largest operation among these.
    pub(super) fn report(&mut self) -> (Ru, Ru, Ru) {
        let largest = if self.kept > 0 { self.largest() } else { self.largest().min(self.running) };
        self.kept = self.kept.saturating_sub(1);
        self.told = self.running;
        let [newest, _] = self.largest;
        self.largest = [Ru::ZERO, newest];
        (std::mem::take(&mut self.refunded), self.running, largest)
    }

    /// Forgets operations under way: what these do not need came from a lease that ended.
    pub(super) fn clear(&mut self) {
        (self.running, self.told, self.refunded) = Default::default();
    }
}
