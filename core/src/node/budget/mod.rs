//! The amount that a node may spend for one group right now: the right to spend, what is in hand, and what operations
//! under way have taken. Each part keeps its own fields; a step that concerns several is one method here.
//!
//! Invariant I4: tokens never exceed the local cap, and nothing is spent past the end of the lease. At every instant,
//! what the node can spend plus what it has returned is within what the ledger counts.

mod bucket;
mod hand;
mod lump;
mod right;
mod taken;

use crate::exchange::{Grant, Held, LeaseTerms};
use crate::group::Fallback;
use crate::units::{MICRO, Rate, Ru, Span, Time};
use bucket::Bucket;
use hand::Hand;
pub use right::LeaseState;
pub(crate) use right::Right;
use taken::Taken;

/// Tokens that leave with a renewal, and the rest that stays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Returned {
    /// Tokens and lump.
    pub tokens: Ru,
    /// Tokens that operations did not need and that have no room here.
    pub refunded: Ru,
    /// Tokens taken by operations under way, and by the largest of them.
    pub running: Ru,
    pub largest: Ru,
    /// The holding from now on.
    pub held: Held,
}

/// The tokens that an operation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The lump, and then the bucket.
    Both,
    /// The bucket: the lump belongs to another.
    Bucket,
    /// The lump: another came before, and the bucket belongs to that one.
    Lump,
}

/// What one group may spend on one node.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Budget {
    right: Right,
    hand: Hand,
    pub(super) taken: Taken,
    drift_ppm: u32,
}

/// What it says.
impl Budget {
    #[inline]
    pub(crate) fn right(&self) -> &Right {
        &self.right
    }

    #[inline]
    pub(crate) fn hand(&self) -> &Hand {
        &self.hand
    }

    #[inline]
    pub(crate) fn bucket(&self) -> &Bucket {
        self.hand.bucket()
    }

    #[inline]
    pub(crate) fn taken(&self) -> &Taken {
        &self.taken
    }

    /// Whether there are neither tokens nor debt, and no answer is awaited.
    pub(crate) fn is_empty(&self) -> bool {
        self.hand.is_empty() && self.taken.refunded() == Ru::ZERO && self.right.answer_by().is_none()
    }

    /// Whether the lump left over will not cover the operation that waits or, if none waits, another like those before.
    pub(crate) fn has_left_over(&self, first: Option<Ru>) -> bool {
        let too_large = self.taken.largest() > self.bucket().cap();
        let useless = first.map_or(too_large, |cost| self.hand.never_covers(cost));
        self.hand.lump().amount().is_positive() && useless
    }

    /// The rate at which tokens really come, on this node's clock.
    #[inline]
    pub(crate) fn income(&self) -> Rate {
        match self.right.state() {
            // A node with a fast clock must not earn more than the ledger leased.
            LeaseState::Leased => self.bucket().rate().scale(MICRO - i64::from(self.drift_ppm), MICRO),
            LeaseState::Expired => self.right.fallback().0.rate().unwrap_or_default(),
            _ => Rate::ZERO,
        }
    }

    /// When the bucket will be full if nothing is spent; `None` when it never fills.
    pub(crate) fn full_at(&self) -> Option<Time> {
        let (income, bucket) = (self.income(), self.bucket());
        let missing = bucket.cap() - bucket.tokens();
        (income.0 > 0).then(|| income.time_for(missing).map(|span| bucket.last().after(span)))?
    }

    /// Whether an operation may start: nothing owed, and enough in hand.
    #[inline]
    pub(crate) fn covers(&self, cost: Ru, from: From) -> bool {
        let hand = &self.hand;
        let solvent = hand.debt() == Ru::ZERO;
        match from {
            From::Both if self.right.is_free() => true,
            From::Both => self.right.spends() && solvent && hand.available() >= self.right.needed(cost),
            From::Bucket => {
                self.right.state() == LeaseState::Leased && solvent && hand.bucket().tokens() >= cost
            }
            From::Lump => solvent && hand.lump().free() >= cost,
        }
    }

    /// When an operation will be covered without any message; `None` when that needs one.
    pub(crate) fn covered_at(&self, cost: Ru, from: From) -> Option<Time> {
        let (bucket, lump, debt) = (self.bucket(), self.hand.lump(), self.hand.debt());
        let (cap, pending) = (bucket.cap(), lump.amount() - lump.free());
        let comes = |missing| Some(bucket.last().after(self.income().time_for(missing)?));
        let at = match from {
            From::Both => {
                let cost = self.right.needed(cost);
                if !self.right.spends() || self.hand.never_covers(cost) {
                    return None;
                }
                let missing = cost + debt - bucket.tokens() - lump.amount();
                let at = comes(missing)?;
                lump.pending_until().map_or(at, |until| {
                    // The bucket alone may cover it before the pending lump may be spent.
                    let alone = Some(missing + pending).filter(|_| cost <= cap + lump.free());
                    let with = at.max(until);
                    alone.and_then(comes).map_or(with, |alone| alone.min(with))
                })
            }
            From::Bucket => {
                if self.right.state() != LeaseState::Leased || cost > cap {
                    return None;
                }
                comes((cost + debt - bucket.tokens()).or_zero())?
            }
            From::Lump => {
                let covers = debt == Ru::ZERO && lump.amount() >= cost;
                return covers
                    .then(|| lump.pending_until().map_or(bucket.last(), |at| at.max(bucket.last())));
            }
        };
        self.right.changes_at().is_none_or(|end| at < end).then_some(at)
    }
}

/// What operations do.
impl Budget {
    /// Notes an operation in an idle group: it asks for a lease, and a controller that has not answered by then counts
    /// as away.
    pub(crate) fn want(&mut self, answer_by: Time) {
        self.right.want(answer_by);
    }

    /// Takes tokens for an operation that begins, which may not need all of them.
    #[inline]
    pub(crate) fn admit(&mut self, cost: Ru, from: From) {
        if !self.right.is_free() {
            self.hand.spend(cost, from);
            self.taken.begin(cost);
        }
    }

    /// Takes tokens for what an operation needed beyond its estimate.
    #[inline]
    pub(crate) fn overrun(&mut self, cost: Ru) {
        if !self.right.is_free() {
            self.hand.spend(cost, From::Both);
        }
    }

    /// Takes back `amount`, which an operation admitted for `estimate` did not need; what has no room goes to the
    /// controller.
    #[inline]
    pub(crate) fn refund(&mut self, estimate: Ru, amount: Ru) {
        let released = self.taken.end(estimate);
        if !self.right.is_free() && amount.is_positive() {
            let over = self.hand.refund(amount, released);
            self.taken.refund(over);
        }
    }

    /// Draws a batch of a lease for a thread to spend on its own, of at most `most`. `None` when that is less than
    /// `least`.
    pub(crate) fn draw(&mut self, least: Ru, most: Ru) -> Option<Ru> {
        match self.right.state() {
            LeaseState::Unlimited => Some(most).filter(|most| *most >= least),
            LeaseState::Leased if self.hand.debt() == Ru::ZERO => self.hand.bucket_mut().draw(least, most),
            _ => None,
        }
    }

    /// Takes back a batch of `drawn`, of which `left` is unspent. A batch drawn from a lease that ended is gone.
    pub(crate) fn put_back(&mut self, drawn: Ru, left: Ru) {
        if self.right.state() == LeaseState::Leased {
            self.hand.bucket_mut().put_back(drawn, left);
        }
    }
}

/// What time, renewals and answers do.
impl Budget {
    /// A budget with nothing in hand.
    pub(crate) fn new(now: Time, drift_ppm: u32, right: Right) -> Self {
        Self { right, hand: Hand::empty(now, Ru::ZERO), taken: Taken::default(), drift_ppm }
    }

    /// Takes in that this node's clock may now run off by `ppm`.
    pub(crate) fn drift_by(&mut self, now: Time, ppm: u32) {
        self.advance(now);
        if ppm > self.drift_ppm {
            self.hand.lump_mut().wait_by_clock(now, ppm);
        }
        self.drift_ppm = ppm;
    }

    /// Brings tokens up to `now`; ends a lease that is past.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) {
        let now = now.max(self.bucket().last());
        loop {
            let end = self.right.changes_at().filter(|end| now >= *end);
            let until = end.unwrap_or(now);
            // The elapsed time is often zero: many waiters are admitted at one moment.
            if until > self.bucket().last() {
                let income = self.income();
                self.hand.earn(income, until);
            }
            self.bucket().assert_within();
            if end.is_none() {
                return;
            }
            self.right.end_fallback();
            self.fall_back();
        }
    }

    fn fall_back(&mut self) {
        self.clear();
        if let Some(cap) = self.right.fall_back() {
            self.hand.bucket_mut().resize(cap);
        }
    }

    /// Sets the fallback of the answer to the renewal sent at `asked`.
    fn fall_back_to(&mut self, asked: Time, fallback: Fallback) {
        if let Some(cap) = self.right.fall_back_to(asked, fallback) {
            self.hand.bucket_mut().resize(cap);
        }
    }

    /// Drops all of a lease that ended but debt.
    fn clear(&mut self) {
        self.hand.clear();
        self.taken.clear();
    }

    /// Lowers the rate and, in proportion, the cap.
    pub(crate) fn lower(&mut self, rate: Rate) {
        if self.right.state() == LeaseState::Leased {
            self.hand.bucket_mut().lower(rate);
        }
    }

    /// Takes out the tokens to return: all that is set aside, the tokens above `keep`, and the lump if `lump_too`.
    /// Tokens of the fallback belong to nobody else and stay.
    pub(crate) fn give_back(&mut self, keep: Ru, lump_too: bool) -> Returned {
        let own = self.right.state() == LeaseState::Expired;
        let surplus = self.hand.bucket_mut().give_back(if own { Ru::MAX } else { keep });
        let lump = self.hand.lump_mut().report(lump_too);
        let (refunded, running, largest) = self.taken.report();
        let (rate, cap) = (self.bucket().rate(), self.bucket().granted_cap());
        let held = Held { rate, cap, lump: self.hand.lump().amount() };
        Returned { tokens: surplus + lump, refunded, running, largest, held }
    }

    /// Gives everything up.
    pub(crate) fn abandon(&mut self, state: LeaseState) -> Returned {
        let returned = self.give_back(Ru::ZERO, true);
        self.clear();
        self.right.give_up(state);
        returned
    }

    /// Applies a new lease in place of the one before. It runs from `asked`, when the renewal was sent.
    pub(crate) fn lease(&mut self, now: Time, asked: Time, terms: &LeaseTerms) {
        self.advance(now);
        let end = asked.after(terms.ttl);
        let state = self.right.state();
        self.right.enforce(terms);
        if state == LeaseState::Expired && end <= now {
            // The lease ended before it came. Tokens that the fallback gathered stay.
            return self.fall_back_to(asked, terms.fallback);
        }
        if state != LeaseState::Leased {
            self.clear();
        }
        self.right.lease(end);
        self.fall_back_to(asked, terms.fallback);
        self.hand.lease(now, terms, self.drift_ppm);
        self.advance(now);
    }

    /// Extends the lease in hand by the grant of a renewal sent at `asked`, within the lower of both; its tokens are
    /// not taken. False: it adds nothing, and nothing changed.
    pub(crate) fn extend(&mut self, now: Time, asked: Time, grant: &Grant) -> bool {
        self.advance(now);
        let longer =
            |ttl| Some(asked.after(ttl)).filter(|end| self.right.expires().is_some_and(|at| *end > at));
        match (self.right.state(), grant) {
            // Terms without a rate mean that the operation in front waits for a lump; what is held serves others until
            // the answer.
            (LeaseState::Leased, Grant::Leased(terms)) if terms.rate > Rate::ZERO => {
                let Some(end) = longer(terms.ttl) else { return false };
                self.hand.bucket_mut().lower(terms.rate);
                self.hand.bucket_mut().lower_cap(terms.cap);
                self.right.extend(end);
                true
            }
            (LeaseState::Unlimited, Grant::Unlimited { ttl, .. }) => {
                let Some(end) = longer(*ttl) else { return false };
                self.right.extend(end);
                true
            }
            _ => false,
        }
    }

    /// Applies a lease without a rate, under which nothing is owed.
    pub(crate) fn unlimited(&mut self, now: Time, asked: Time, ttl: Span, fallback: Fallback) {
        self.advance(now);
        self.hand = Hand::empty(self.bucket().last(), Ru::ZERO);
        self.taken = Taken::default();
        self.right.unlimited(asked.after(ttl));
        self.fall_back_to(asked, fallback);
        self.advance(now);
    }

    /// The controller recovers and leases nothing: the node spends the lease in hand until it ends, unless the fallback
    /// is worth more.
    pub(crate) fn recover(&mut self, now: Time, asked: Time, fallback: Option<Fallback>) {
        self.advance(now);
        if let Some(fallback) = fallback {
            self.fall_back_to(asked, fallback);
        }
        match (self.right.state(), self.right.fallback().0) {
            (LeaseState::Leased, fallback) if !fallback.outweighs(self.bucket().rate()) => {}
            (LeaseState::Unlimited, _) => {}
            (LeaseState::Expired, fallback) if fallback.rate().is_some() => {}
            (_, Fallback::Stop) => self.stop(now, LeaseState::Recovering),
            _ => self.fall_back(),
        }
    }

    /// Ends all spending for the reason `state`.
    pub(crate) fn stop(&mut self, now: Time, state: LeaseState) {
        self.advance(now);
        self.hand = Hand::empty(self.bucket().last(), self.hand.debt());
        self.taken = Taken::default();
        self.right.end(state);
    }
}
