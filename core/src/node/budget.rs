//! The amount that a node may spend for one group right now: the local bucket, the lump beside it, and debt.
//!
//! Invariant I4: tokens never exceed the local cap, and nothing is spent past the end of the lease. Tokens given back
//! stay counted against the cap until the controller has answered, because the message may still be on its way: at
//! every instant, what the node can spend plus what it has returned is within what the ledger counts.

use super::NodeConfig;
use crate::decide::LOCAL_CAP;
use crate::exchange::{Held, LeaseTerms};
use crate::group::Fallback;
use crate::units::{Accrual, MICRO, Rate, Ru, Span, Time};

/// The basis of the right to spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// No grant yet.
    #[default]
    None,
    /// A lease on a rate.
    Leased,
    /// A lease without a rate: metered, not throttled.
    Unlimited,
    /// There is no lease: the fallback applies.
    Expired,
    /// Given up after a long silence; asked for again at the next operation.
    Idle,
    /// The controller does not know the group.
    Unknown,
    /// The controller recovers, and there is neither lease nor fallback.
    Recovering,
    /// Released for good.
    Closed,
}

/// The longest burst at the fallback rate.
const FALLBACK_CAP: Span = Span::secs(1);

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

/// Tokens, lump and debt of one group on one node.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Budget {
    state: LeaseState,
    rate: Rate,
    cap: Ru,
    /// The cap that the controller's ledger counts at least, and tokens returned in messages not yet answered.
    ledger_cap: Ru,
    in_flight: Ru,
    tokens: Ru,
    /// Tokens in the hands of threads that spend on their own.
    drawn: Ru,
    lump: Ru,
    /// The part of the lump that may be spent only from `pending_until` on.
    pending: Ru,
    pending_until: Time,
    /// The part of the lump that the ledger counts: the rest at the node's last renewal, and grants since.
    ledger_lump: Ru,
    /// Tokens taken by operations that have not ended: what these do not need comes back.
    running: Ru,
    /// The largest operation admitted since the last renewal, and between that and the one before it.
    largest: [Ru; 2],
    /// `running` as of the newest renewal, less what came back since: the ledger keeps room for no more.
    told: Ru,
    /// Tokens that came back and have no room here: not spendable, returned with the next renewal.
    refunded: Ru,
    debt: Ru,
    /// Tokens above a lowered cap: not spendable, returned with the next renewal.
    set_aside: Ru,
    accrual: Accrual,
    last: Time,
    expires: Time,
    /// When the fallback applies if no answer comes: an idle group is in use again and has asked for a lease.
    answer_by: Option<Time>,
    fallback: Fallback,
    /// The end of this node's part of the group's fallback.
    fallback_until: Time,
    drift_ppm: u32,
}

impl Budget {
    pub(crate) fn new(now: Time, drift_ppm: u32) -> Self {
        Self { last: now, drift_ppm, ..Self::default() }
    }

    /// A budget before the first answer. A node with a fallback for that waits only as long as for an answer.
    pub(crate) fn unheard(now: Time, config: &NodeConfig) -> Self {
        let fallback = config.fallback;
        let answer_by = (fallback != Fallback::Stop).then(|| now.after(config.reply_timeout));
        Self { fallback, answer_by, ..Self::new(now, config.drift_ppm) }
    }

    /// The budget of a group that gave its lease up.
    pub(crate) fn idle(now: Time, drift_ppm: u32, fallback: (Fallback, Time)) -> Self {
        let (fallback, fallback_until) = fallback;
        Self { state: LeaseState::Idle, fallback, fallback_until, ..Self::new(now, drift_ppm) }
    }

    /// Takes in that this node's clock may now run off by `ppm`.
    pub(crate) fn drift_by(&mut self, now: Time, ppm: u32) {
        self.advance(now);
        if self.pending.is_positive() && ppm > self.drift_ppm {
            self.pending_until = now.after(by_a_fast_clock(self.pending_until.since(now), ppm));
        }
        self.drift_ppm = ppm;
    }

    /// Whether there are neither tokens nor debt, and no answer is awaited.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { tokens, drawn, lump, refunded, debt, set_aside, .. } = *self;
        [tokens, drawn, lump, refunded, debt, set_aside] == [Ru::ZERO; 6] && self.answer_by.is_none()
    }

    /// Notes an operation in an idle group: it asks for a lease, and a controller that has not answered by then counts
    /// as away.
    pub(crate) fn want(&mut self, answer_by: Time) {
        self.answer_by.get_or_insert(answer_by);
    }

    /// By when an idle group should have an answer.
    pub(crate) fn answer_by(&self) -> Option<Time> {
        self.answer_by
    }

    /// What applies without a lease, and until when, if it is a part of the group's fallback.
    pub(crate) fn fallback(&self) -> (Fallback, Time) {
        (self.fallback, self.fallback_until)
    }

    /// Sets the fallback of the answer to the renewal sent at `asked`.
    fn fall_back_to(&mut self, asked: Time, fallback: Fallback) {
        self.fallback = fallback;
        if let (LeaseState::Expired, Some(rate)) = (self.state, fallback.rate()) {
            (self.cap, self.ledger_cap) = (rate.over(FALLBACK_CAP), rate.over(FALLBACK_CAP));
            self.tokens = self.tokens.min(self.cap);
        }
        self.fallback_until = match fallback {
            Fallback::Part(_, lasts) => asked.after(lasts),
            _ => Time(0),
        };
    }

    pub(crate) fn state(&self) -> LeaseState {
        self.state
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    pub(crate) fn cap(&self) -> Ru {
        self.cap.min(self.ledger_cap - self.in_flight).or_zero()
    }

    pub(crate) fn debt(&self) -> Ru {
        self.debt
    }

    pub(crate) fn set_aside(&self) -> Ru {
        self.set_aside
    }

    /// Tokens that operations did not need, for others to use.
    pub(crate) fn refunded_elsewhere(&self) -> Ru {
        self.refunded
    }

    /// The largest operation admitted since the renewal before last.
    pub(crate) fn largest(&self) -> Ru {
        let [newest, older] = self.largest;
        newest.max(older)
    }

    /// Half of the bucket, or as much as the largest of the last operations takes.
    pub(crate) fn half(&self) -> Ru {
        self.cap().scale(1, 2).max(self.largest())
    }

    /// Whether the lump left over will not cover the operation that waits or, if none waits, another like those before.
    pub(crate) fn has_left_over(&self, first: Option<Ru>) -> bool {
        let useless = first.map_or(self.largest() > self.cap(), |cost| self.never_covers(cost));
        self.lump.is_positive() && useless
    }

    /// When the lump in hand may be spent; `None` when it already may.
    pub(crate) fn pending_until(&self) -> Option<Time> {
        self.pending.is_positive().then_some(self.pending_until)
    }

    /// Room for tokens in the bucket.
    fn room(&self) -> Ru {
        (self.cap() - self.drawn).or_zero()
    }

    /// Tokens and lump, less debt.
    pub(crate) fn available(&self) -> Ru {
        self.tokens + self.lump - self.pending - self.debt
    }

    /// `available` with what threads have drawn.
    pub(crate) fn remaining(&self) -> Ru {
        (self.available() + self.drawn).or_zero()
    }

    /// The end of the lease, while there is one.
    pub(crate) fn expires(&self) -> Option<Time> {
        matches!(self.state, LeaseState::Leased | LeaseState::Unlimited).then_some(self.expires)
    }

    /// The rate at which tokens really come, on this node's clock.
    pub(crate) fn income(&self) -> Rate {
        match (self.state, self.fallback) {
            // A node with a fast clock must not earn more than the ledger leased.
            (LeaseState::Leased, _) => self.rate.scale(MICRO - i64::from(self.drift_ppm), MICRO),
            (LeaseState::Expired, fallback) => fallback.rate().unwrap_or_default(),
            _ => Rate::ZERO,
        }
    }

    /// Brings tokens up to `now`; ends a lease that is past.
    pub(crate) fn advance(&mut self, now: Time) {
        let now = now.max(self.last);
        while let Some(end) = self.changes_at().filter(|end| now >= *end) {
            self.earn(end);
            if self.state == LeaseState::Expired {
                self.fallback = Fallback::Stop;
            }
            self.fall_back();
        }
        self.earn(now);
    }

    /// When the fallback takes effect, or the node's part of the group's fallback ends, unless an answer comes before.
    pub(crate) fn changes_at(&self) -> Option<Time> {
        match (self.state, self.fallback) {
            (LeaseState::Expired, Fallback::Part(..)) => Some(self.fallback_until),
            _ => self.expires().or(self.answer_by),
        }
    }

    fn fall_back(&mut self) {
        (self.tokens, self.lump, self.set_aside, self.in_flight) = Default::default();
        (self.drawn, self.ledger_lump, self.pending) = Default::default();
        (self.running, self.told, self.refunded) = Default::default();
        (self.rate, self.cap, self.ledger_cap) = (Rate::ZERO, Ru::ZERO, Ru::ZERO);
        (self.state, self.answer_by) = (LeaseState::Expired, None);
        if let Some(rate) = self.fallback.rate() {
            (self.cap, self.ledger_cap) = (rate.over(FALLBACK_CAP), rate.over(FALLBACK_CAP));
        }
    }

    fn earn(&mut self, until: Time) {
        // The elapsed time is often zero: many waiters are admitted at one moment.
        if until > self.last {
            let earned = self.accrual.take(self.income(), until.since(self.last));
            self.last = until;
            if until >= self.pending_until {
                self.pending = Ru::ZERO;
            }
            let _full = self.add(earned);
        }
        debug_assert!(self.tokens <= self.room() && self.tokens >= Ru::ZERO, "I4: {self:?}");
    }

    /// Pays debt, then fills the bucket; returns what does not fit.
    fn add(&mut self, amount: Ru) -> Ru {
        let paid = amount.min(self.debt);
        self.debt -= paid;
        let tokens = self.tokens + amount - paid;
        self.tokens = tokens.min(self.room()).or_zero();
        tokens - self.tokens
    }

    /// Whether an operation may start: nothing owed, and enough in hand.
    pub(crate) fn covers(&self, cost: Ru) -> bool {
        if self.is_free() {
            return true;
        }
        self.spends() && self.debt == Ru::ZERO && self.available() >= self.needed(cost)
    }

    /// The amount in hand with which an operation may start. At the fallback rate nobody grants lumps, so an operation
    /// larger than the bucket starts when the bucket is full, and owes the rest.
    fn needed(&self, cost: Ru) -> Ru {
        if self.state == LeaseState::Expired { cost.min(self.cap().max(Ru(1))) } else { cost }
    }

    /// Whether operations take tokens, and tokens come.
    pub(crate) fn spends(&self) -> bool {
        match self.state {
            LeaseState::Leased => true,
            LeaseState::Expired => self.fallback.rate().is_some(),
            _ => false,
        }
    }

    /// Whether operations take nothing, because the group is unlimited.
    fn is_free(&self) -> bool {
        match self.state {
            LeaseState::Unlimited => true,
            LeaseState::Expired => self.fallback == Fallback::Unlimited,
            _ => false,
        }
    }

    /// Takes tokens, lump first; what is missing becomes debt.
    pub(crate) fn spend(&mut self, cost: Ru) {
        if self.is_free() {
            return;
        }
        let from_lump = cost.min(self.lump - self.pending);
        let from_tokens = (cost - from_lump).min(self.tokens);
        self.lump -= from_lump;
        self.tokens -= from_tokens;
        self.debt += cost - from_lump - from_tokens;
    }

    /// Whether the bucket alone covers an operation, because the lump belongs to another.
    pub(crate) fn bucket_covers(&self, cost: Ru) -> bool {
        self.state == LeaseState::Leased && self.debt == Ru::ZERO && self.tokens >= cost
    }

    /// Whether the lump alone covers it, because the bucket belongs to another.
    pub(crate) fn lump_covers(&self, cost: Ru) -> bool {
        self.debt == Ru::ZERO && self.lump - self.pending >= cost
    }

    /// Whether the lump alone will cover it, once all of the lump may be spent.
    pub(crate) fn awaits_lump(&self, cost: Ru) -> bool {
        self.pending.is_positive() && self.lump >= cost
    }

    /// Admits an operation with tokens of the bucket alone.
    pub(crate) fn admit_from_bucket(&mut self, cost: Ru) {
        let lump = (std::mem::take(&mut self.lump), std::mem::take(&mut self.pending));
        self.admit(cost);
        (self.lump, self.pending) = lump;
    }

    /// Takes tokens for an operation that begins, which may not need all of them.
    pub(crate) fn admit(&mut self, cost: Ru) {
        if self.is_free() {
            return;
        }
        self.spend(cost);
        self.running += cost;
        let [newest, _] = &mut self.largest;
        *newest = (*newest).max(cost);
    }

    /// Draws a batch for a thread to spend on its own, and returns it with the end of the lease: a quarter of what is
    /// above an eighth of the bucket, because other threads come, too. `None` when that is less than `least`.
    pub(crate) fn draw(&mut self, least: Ru) -> Option<(Ru, Time)> {
        match self.state {
            LeaseState::Unlimited => Some((Ru::MAX, self.expires)),
            LeaseState::Leased if self.debt == Ru::ZERO => {
                let batch = (self.tokens - self.cap().scale(1, 8)).or_zero().scale(1, 4);
                if batch < least {
                    return None;
                }
                self.tokens -= batch;
                self.drawn += batch;
                Some((batch, self.expires))
            }
            _ => None,
        }
    }

    /// Takes back a batch of `drawn`, of which `left` is unspent. A batch drawn from a lease that ended is gone.
    pub(crate) fn put_back(&mut self, drawn: Ru, left: Ru) {
        if self.state == LeaseState::Leased {
            let drawn = drawn.min(self.drawn);
            self.drawn -= drawn;
            self.tokens = (self.tokens + left.or_zero().min(drawn)).min(self.room()).or_zero();
        }
    }

    /// Checks that no batch is out when the lease changes: what a thread holds cannot be set aside.
    fn assert_gathered(&self) {
        debug_assert!(self.drawn == Ru::ZERO, "a batch is out: {self:?}");
    }

    /// Takes back `amount`, which an operation admitted for `estimate` did not need. It goes to the lump as far as the
    /// ledger counts one, because no rate fills a lump, then to the bucket, and the rest to the controller.
    pub(crate) fn refund(&mut self, estimate: Ru, amount: Ru) {
        let released = estimate.min(self.running);
        self.running -= released;
        if self.is_free() || !amount.is_positive() {
            return;
        }
        let paid = amount.min(self.debt);
        let to_lump = (amount - paid).min(released).min(self.ledger_lump - self.lump).or_zero();
        self.debt -= paid;
        self.lump += to_lump;
        let over = self.add(amount - paid - to_lump);
        let elsewhere = over.min(released - to_lump).min(self.told);
        self.told -= elsewhere;
        self.refunded += elsewhere;
    }

    /// Lowers the rate and, in proportion, the cap.
    pub(crate) fn lower(&mut self, rate: Rate) {
        if self.state != LeaseState::Leased || rate >= self.rate {
            return;
        }
        let rate = rate.max(Rate::ZERO);
        self.cap = self.cap.scale(rate.0, self.rate.0);
        self.rate = rate;
        self.set_excess_aside();
    }

    fn set_excess_aside(&mut self) {
        self.assert_gathered();
        let excess = (self.tokens - self.cap()).or_zero();
        self.tokens -= excess;
        self.set_aside += excess;
    }

    /// When the bucket will be full if nothing is spent; `None` when it never fills.
    pub(crate) fn full_at(&self) -> Option<Time> {
        let income = self.income();
        (income.0 > 0).then(|| income.time_for(self.cap() - self.tokens).map(|span| self.last.after(span)))?
    }

    /// Whether the bucket and the lump in hand can never cover an operation, so that it takes another lump.
    pub(crate) fn never_covers(&self, cost: Ru) -> bool {
        cost > self.cap() + self.lump
    }

    /// Whether an operation is larger than a usual bucket, so that lumps or a deeper bucket serve it.
    pub(crate) fn takes_lumps(&self, cost: Ru) -> bool {
        cost > self.rate.over(LOCAL_CAP).min(self.cap)
    }

    /// When an operation will be covered without any message; `None` when that needs one.
    pub(crate) fn covered_at(&self, cost: Ru) -> Option<Time> {
        let cost = self.needed(cost);
        if !self.spends() || self.never_covers(cost) {
            return None;
        }
        let missing = cost + self.debt - self.tokens - self.lump;
        let covered = |missing| Some(self.last.after(self.income().time_for(missing)?));
        let mut at = covered(missing)?;
        if self.pending.is_positive() {
            // The bucket alone may cover it before the pending lump may be spent.
            let alone =
                Some(missing + self.pending).filter(|_| cost <= self.cap() + self.lump - self.pending);
            let with = at.max(self.pending_until);
            at = alone.and_then(covered).map_or(with, |alone| alone.min(with));
        }
        self.changes_at().is_none_or(|end| at < end).then_some(at)
    }

    /// When the bucket alone will cover an operation.
    pub(crate) fn bucket_covers_at(&self, cost: Ru) -> Option<Time> {
        if self.state != LeaseState::Leased || cost > self.cap() {
            return None;
        }
        let missing = (cost + self.debt - self.tokens).or_zero();
        let at = self.last.after(self.income().time_for(missing)?);
        self.changes_at().is_none_or(|end| at < end).then_some(at)
    }

    /// When the lump alone will, without another grant.
    pub(crate) fn lump_covers_at(&self, cost: Ru) -> Option<Time> {
        let at = if self.pending.is_positive() { self.pending_until.max(self.last) } else { self.last };
        (self.debt == Ru::ZERO && self.lump >= cost).then_some(at)
    }

    /// Takes out the tokens to return: all that is set aside, the tokens above `keep`, and the lump if `lump_too`.
    /// Tokens of the fallback belong to nobody else and stay.
    pub(crate) fn give_back(&mut self, keep: Ru, lump_too: bool) -> Returned {
        self.assert_gathered();
        let own = self.state == LeaseState::Expired;
        let surplus = if own { Ru::ZERO } else { (self.tokens - keep.or_zero()).or_zero() };
        self.tokens -= surplus;
        // A bucket that is deeper than others shrinks to their depth, so that the pool has room for the returned
        // tokens.
        let deeper = (self.cap - self.rate.over(LOCAL_CAP)).or_zero().min(surplus);
        self.cap -= deeper;
        self.ledger_cap -= deeper;
        let surplus = surplus + std::mem::take(&mut self.set_aside);
        self.in_flight += surplus - deeper;
        let lump = if lump_too { std::mem::take(&mut self.lump) } else { Ru::ZERO };
        self.pending = self.pending.min(self.lump);
        self.tokens = self.tokens.min(self.cap());
        self.ledger_lump = self.lump;
        let largest = self.largest().min(self.running);
        self.told = self.running;
        let [newest, _] = self.largest;
        self.largest = [Ru::ZERO, newest];
        Returned {
            tokens: surplus + lump,
            refunded: std::mem::take(&mut self.refunded),
            running: self.running,
            largest,
            held: Held { rate: self.rate, cap: self.cap, lump: self.lump },
        }
    }

    /// Gives everything up.
    pub(crate) fn abandon(&mut self, state: LeaseState) -> Returned {
        let returned = self.give_back(Ru::ZERO, true);
        (self.rate, self.cap, self.tokens) = (Rate::ZERO, Ru::ZERO, Ru::ZERO);
        (self.running, self.told) = (Ru::ZERO, Ru::ZERO);
        (self.state, self.answer_by) = (state, None);
        returned
    }

    /// Applies a new lease in place of the one before. It runs from `asked`, when the renewal was sent.
    pub(crate) fn lease(&mut self, now: Time, asked: Time, terms: &LeaseTerms) {
        self.advance(now);
        self.assert_gathered();
        if self.state == LeaseState::Expired && asked.after(terms.ttl) <= now {
            // The lease ended before it came. Tokens that the fallback gathered stay.
            return self.fall_back_to(asked, terms.fallback);
        }
        if self.state != LeaseState::Leased {
            (self.tokens, self.lump, self.set_aside, self.cap) = Default::default();
            (self.ledger_lump, self.running, self.told, self.refunded) = Default::default();
            self.pending = Ru::ZERO;
        }
        (self.state, self.answer_by) = (LeaseState::Leased, None);
        self.rate = terms.rate;
        self.ledger_cap = terms.cap.max(self.cap);
        self.in_flight = Ru::ZERO;
        self.cap = terms.cap;
        self.expires = asked.after(terms.ttl);
        self.fall_back_to(asked, terms.fallback);
        // A deeper bucket takes back what was set aside: it would be spent twice otherwise, by what is earned into that
        // room, and by others when it is returned.
        let aside = std::mem::take(&mut self.set_aside);
        self.set_aside = self.add(aside);
        let _full = self.add(terms.fill);
        // A lump that may not be spent yet pays no debt.
        let paid = if terms.lump_after.0 > 0 { Ru::ZERO } else { terms.lump.min(self.debt) };
        self.debt -= paid;
        self.lump += terms.lump - paid;
        if terms.lump_after.0 > 0 {
            self.pending = (self.pending + terms.lump).min(self.lump);
            let wait = by_a_fast_clock(terms.lump_after, self.drift_ppm);
            self.pending_until = self.pending_until.max(now.after(wait));
        }
        self.ledger_lump += terms.lump;
        self.advance(now);
    }

    /// Extends the lease in hand to the end of these terms, within the lower of both; their tokens are not taken.
    /// `asked` is when their renewal was sent. False: the terms add nothing, and nothing changed.
    pub(crate) fn extend(&mut self, now: Time, asked: Time, terms: &LeaseTerms) -> bool {
        self.advance(now);
        let end = asked.after(terms.ttl);
        // Terms without a rate mean that the operation in front waits for a lump; what is held serves others until the
        // answer.
        let worth = self.state == LeaseState::Leased && terms.rate > Rate::ZERO && end > self.expires;
        if worth {
            self.lower(terms.rate);
            self.cap = self.cap.min(terms.cap);
            self.set_excess_aside();
            self.expires = end;
        }
        worth
    }

    /// The same as `extend`, for a lease without a rate.
    pub(crate) fn extend_unlimited(&mut self, now: Time, end: Time) -> bool {
        self.advance(now);
        let worth = self.state == LeaseState::Unlimited && end > self.expires;
        if worth {
            self.expires = end;
        }
        worth
    }

    /// Applies a lease without a rate, under which nothing is owed.
    pub(crate) fn unlimited(&mut self, now: Time, asked: Time, ttl: Span, fallback: Fallback) {
        self.advance(now);
        let (last, drift_ppm) = (self.last, self.drift_ppm);
        *self = Self { last, drift_ppm, expires: asked.after(ttl), ..Self::default() };
        self.fall_back_to(asked, fallback);
        self.state = LeaseState::Unlimited;
        self.advance(now);
    }

    /// The controller recovers and leases nothing: the node spends the lease in hand until it ends, unless the fallback
    /// is worth more.
    pub(crate) fn recover(&mut self, now: Time, asked: Time, fallback: Option<Fallback>) {
        self.advance(now);
        if let Some(fallback) = fallback {
            self.fall_back_to(asked, fallback);
        }
        match (self.state, self.fallback) {
            (LeaseState::Leased, fallback) if !fallback.outweighs(self.rate) => {}
            (LeaseState::Unlimited, _) => {}
            (LeaseState::Expired, fallback) if fallback.rate().is_some() => {}
            (_, Fallback::Stop) => self.stop(now, LeaseState::Recovering),
            _ => self.fall_back(),
        }
    }

    /// Ends all spending for the reason `state`.
    pub(crate) fn stop(&mut self, now: Time, state: LeaseState) {
        self.advance(now);
        let (debt, last, drift_ppm) = (self.debt, self.last, self.drift_ppm);
        *self = Self { debt, last, drift_ppm, state, ..Self::default() };
    }
}

/// The reading on this node's clock after which `span` has surely passed, however fast the clock runs.
fn by_a_fast_clock(span: Span, ppm: u32) -> Span {
    let more = (u128::from(span.0) * u128::from(ppm)).div_ceil(MICRO.unsigned_abs().into()) + 1;
    Span(u64::try_from(u128::from(span.0) + more).unwrap_or(u64::MAX))
}
