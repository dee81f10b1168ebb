//! The local bucket: tokens, their refill, and what leaves it without being spent.
//!
//! Tokens in the bucket and in the hands of threads never exceed the local cap (I4). Tokens given back stay counted
//! against the cap until the controller has answered, because the message may still be on its way.

use crate::decide::LOCAL_CAP;
use crate::units::{Accrual, Rate, Ru, Time};

/// Tokens that a rate fills.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Bucket {
    rate: Rate,
    cap: Ru,
    /// The cap that the controller's ledger counts at least, and tokens returned in messages not yet answered.
    ledger_cap: Ru,
    in_flight: Ru,
    tokens: Ru,
    /// Tokens in the hands of threads that spend on their own.
    drawn: Ru,
    /// Tokens above a lowered cap: not spendable, returned with the next renewal.
    set_aside: Ru,
    accrual: Accrual,
    last: Time,
}

impl Bucket {
    /// An empty bucket as of `last`.
    pub(super) fn new(last: Time) -> Self {
        Self { last, ..Self::default() }
    }

    /// The leased rate.
    #[inline]
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Its depth, less what is on its way back.
    #[inline]
    pub(crate) fn cap(&self) -> Ru {
        self.cap.min(self.ledger_cap - self.in_flight).or_zero()
    }

    /// Its depth as granted.
    pub(super) fn granted_cap(&self) -> Ru {
        self.cap
    }

    /// Tokens in it.
    #[inline]
    pub(super) fn tokens(&self) -> Ru {
        self.tokens
    }

    /// Tokens drawn from it and not put back.
    pub(super) fn drawn(&self) -> Ru {
        self.drawn
    }

    /// Tokens above a lowered cap.
    pub(crate) fn set_aside(&self) -> Ru {
        self.set_aside
    }

    /// Until when its tokens are counted.
    #[inline]
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// Whether it holds nothing, and nobody holds anything of it.
    pub(super) fn is_empty(&self) -> bool {
        [self.tokens, self.drawn, self.set_aside] == [Ru::ZERO; 3]
    }

    /// Whether an operation is larger than a usual bucket, so that lumps or a deeper bucket serve it.
    pub(crate) fn takes_lumps(&self, cost: Ru) -> bool {
        cost > self.rate.over(LOCAL_CAP).min(self.cap)
    }

    /// Room for tokens.
    #[inline]
    fn room(&self) -> Ru {
        (self.cap() - self.drawn).or_zero()
    }

    /// Checks that tokens are within the room for them.
    #[inline]
    pub(super) fn assert_within(&self) {
        debug_assert!(self.tokens <= self.room() && self.tokens >= Ru::ZERO, "I4: {self:?}");
    }

    /// Checks that no batch is out when the lease changes: what a thread holds cannot be set aside.
    fn assert_gathered(&self) {
        debug_assert!(self.drawn == Ru::ZERO, "a batch is out: {self:?}");
    }

    /// What `income` yields until `until`, to be put in.
    #[inline]
    pub(super) fn earn(&mut self, income: Rate, until: Time) -> Ru {
        let earned = self.accrual.take(income, until.since(self.last));
        self.last = until;
        earned
    }

    /// Puts tokens in; returns what does not fit.
    #[inline]
    pub(super) fn fill(&mut self, amount: Ru) -> Ru {
        let tokens = self.tokens + amount;
        self.tokens = tokens.min(self.room()).or_zero();
        tokens - self.tokens
    }

    /// Takes tokens out, as far as there are some; returns how many.
    #[inline]
    pub(super) fn take(&mut self, amount: Ru) -> Ru {
        let taken = amount.min(self.tokens);
        self.tokens -= taken;
        taken
    }

    /// Draws a batch of at most `most` for a thread to spend on its own: a quarter of what is above an eighth of the
    /// bucket, because other threads come, too. `None` when that is less than `least`.
    pub(super) fn draw(&mut self, least: Ru, most: Ru) -> Option<Ru> {
        let batch = (self.tokens - self.cap().scale(1, 8)).or_zero().scale(1, 4).min(most);
        if batch < least {
            return None;
        }
        self.tokens -= batch;
        self.drawn += batch;
        Some(batch)
    }

    /// Takes back a batch of `drawn`, of which `left` is unspent.
    pub(super) fn put_back(&mut self, drawn: Ru, left: Ru) {
        let drawn = drawn.min(self.drawn);
        self.drawn -= drawn;
        self.tokens = (self.tokens + left.or_zero().min(drawn)).min(self.room()).or_zero();
    }

    /// Lowers the rate and, in proportion, the cap.
    pub(super) fn lower(&mut self, rate: Rate) {
        if rate < self.rate {
            let rate = rate.max(Rate::ZERO);
            let cap = self.cap.scale(rate.0, self.rate.0);
            self.rate = rate;
            self.lower_cap(cap);
        }
    }

    /// Lowers the cap, and sets aside what is above it.
    pub(super) fn lower_cap(&mut self, cap: Ru) {
        self.assert_gathered();
        self.cap = self.cap.min(cap);
        let excess = (self.tokens - self.cap()).or_zero();
        self.tokens -= excess;
        self.set_aside += excess;
    }

    /// Takes out all that is set aside, and the tokens above `keep`.
    pub(super) fn give_back(&mut self, keep: Ru) -> Ru {
        self.assert_gathered();
        let surplus = (self.tokens - keep.or_zero()).or_zero();
        self.tokens -= surplus;
        // A bucket that is deeper than others shrinks to their depth, so that the pool has room for the returned
        // tokens.
        let deeper = (self.cap - self.rate.over(LOCAL_CAP)).or_zero().min(surplus);
        self.cap -= deeper;
        self.ledger_cap -= deeper;
        let surplus = surplus + self.take_aside();
        self.in_flight += surplus - deeper;
        self.tokens = self.tokens.min(self.cap());
        surplus
    }

    /// A new lease begins: its rate and cap apply, and what was on its way back has come.
    pub(super) fn lease(&mut self, rate: Rate, cap: Ru) {
        self.assert_gathered();
        self.ledger_cap = cap.max(self.cap);
        self.in_flight = Ru::ZERO;
        (self.rate, self.cap) = (rate, cap);
    }

    /// Takes out what is set aside.
    pub(super) fn take_aside(&mut self) -> Ru {
        std::mem::take(&mut self.set_aside)
    }

    /// Sets tokens aside.
    pub(super) fn put_aside(&mut self, amount: Ru) {
        self.set_aside += amount;
    }

    /// Sets the depth of a bucket that the ledger does not count.
    pub(super) fn resize(&mut self, cap: Ru) {
        (self.cap, self.ledger_cap) = (cap, cap);
        self.tokens = self.tokens.min(cap);
    }

    /// Drops everything: no lease, no tokens.
    pub(super) fn clear(&mut self) {
        *self = Self { accrual: self.accrual, last: self.last, ..Self::default() };
    }
}
