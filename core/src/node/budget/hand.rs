//! What is in hand: the bucket, the lump beside it, and debt, which is paid before anything else.

use super::From;
use super::bucket::Bucket;
use super::lump::Lump;
use crate::exchange::LeaseTerms;
use crate::units::{Rate, Ru, Time};

/// Tokens, lump and debt.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Hand {
    bucket: Bucket,
    lump: Lump,
    debt: Ru,
}

impl Hand {
    /// Nothing but debt, as of `last`.
    pub(super) fn empty(last: Time, debt: Ru) -> Self {
        Self { bucket: Bucket::new(last), debt, ..Self::default() }
    }

    #[inline]
    pub(crate) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    #[inline]
    pub(super) fn bucket_mut(&mut self) -> &mut Bucket {
        &mut self.bucket
    }

    #[inline]
    pub(crate) fn lump(&self) -> &Lump {
        &self.lump
    }

    #[inline]
    pub(super) fn lump_mut(&mut self) -> &mut Lump {
        &mut self.lump
    }

    #[inline]
    pub(crate) fn debt(&self) -> Ru {
        self.debt
    }

    /// Whether there is nothing, debt included.
    pub(super) fn is_empty(&self) -> bool {
        self.bucket.is_empty() && self.lump.amount() == Ru::ZERO && self.debt == Ru::ZERO
    }

    /// Tokens and lump, less debt.
    #[inline]
    pub(crate) fn available(&self) -> Ru {
        self.bucket.tokens() + self.lump.free() - self.debt
    }

    /// `available` with what threads have drawn.
    pub(crate) fn remaining(&self) -> Ru {
        (self.available() + self.bucket.drawn()).or_zero()
    }

    /// Whether the bucket and the lump in hand can never cover an operation, so that it takes another lump.
    pub(crate) fn never_covers(&self, cost: Ru) -> bool {
        cost > self.bucket.cap() + self.lump.amount()
    }

    /// Takes tokens, lump first; what is missing becomes debt.
    #[inline]
    pub(super) fn spend(&mut self, cost: Ru, from: From) {
        let from_lump = if from == From::Bucket { Ru::ZERO } else { self.lump.take(cost) };
        let from_tokens = self.bucket.take(cost - from_lump);
        self.debt += cost - from_lump - from_tokens;
    }

    /// Pays debt; returns the rest.
    #[inline]
    fn pay(&mut self, amount: Ru) -> Ru {
        let paid = amount.min(self.debt);
        self.debt -= paid;
        amount - paid
    }

    /// Pays debt, then fills the bucket; returns what does not fit.
    #[inline]
    fn add(&mut self, amount: Ru) -> Ru {
        let rest = self.pay(amount);
        self.bucket.fill(rest)
    }

    /// Adds what `income` yields until `until`.
    #[inline]
    pub(super) fn earn(&mut self, income: Rate, until: Time) {
        let earned = self.bucket.earn(income, until);
        self.lump.advance(until);
        let _full = self.add(earned);
    }

    /// Takes back what an operation did not need, of which `released` was counted as taken. It goes to the lump as far
    /// as the ledger counts one, because no rate fills a lump, then to the bucket; returns the rest of what was taken.
    pub(super) fn refund(&mut self, amount: Ru, released: Ru) -> Ru {
        let rest = self.pay(amount);
        let to_lump = self.lump.refund(rest.min(released));
        let over = self.add(rest - to_lump);
        over.min(released - to_lump)
    }

    /// Takes in a new lease, on a clock that may run fast by `ppm`.
    pub(super) fn lease(&mut self, now: Time, terms: &LeaseTerms, ppm: u32) {
        self.bucket.lease(terms.rate, terms.cap);
        // A deeper bucket takes back what was set aside: it would be spent twice otherwise, by what is earned into that
        // room, and by others when it is returned.
        let aside = self.bucket.take_aside();
        let over = self.add(aside);
        self.bucket.put_aside(over);
        let _full = self.add(terms.fill);
        if terms.lump_after.0 > 0 {
            // A lump that may not be spent yet pays no debt.
            self.lump.give_ahead(now, terms.lump, terms.lump_after, ppm);
        } else {
            let rest = self.pay(terms.lump);
            self.lump.give(terms.lump, terms.lump - rest);
        }
    }

    /// Drops tokens and lump; debt stays.
    pub(super) fn clear(&mut self) {
        self.bucket.clear();
        self.lump.clear();
    }
}
