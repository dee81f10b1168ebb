//! I4: the most that a node may hold of a group, computed from the messages it sent and took in.
//!
//! Written from the specification, not from the node's budget. A bucket fills at the leased rate on the node's own
//! clock, less what that clock may be fast, up to its depth; lumps lie beside it and are spent first. Tokens given back
//! count against the depth until the renewal that carried them, or a later one, is answered. A lump that was granted ahead
//! of its time lies there unspent until then. A lease runs from the
//! moment its renewal was sent, and past its end there is the fallback and nothing else. At that rate an operation larger
//! than the bucket starts when it is full. A controller that recovers leaves a node what it has, lease or fallback. What
//! the node lowers on its own is seen at its next renewal, so a node may hold less than this. Amounts are in millionths
//! of a micro-RU.

use std::collections::BTreeMap;

use tidegate_core::exchange::{Ask, Grant, LeaseTerms};
use tidegate_core::group::{Fallback, GroupId, GroupSpec};
use tidegate_core::node::Heard;
use tidegate_core::units::{MICRO, Rate, Ru, Span, Time};

use super::world::World;

/// What the right to spend rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Right {
    /// No right: no grant yet, or a refusal.
    #[default]
    None,
    /// A lease on a rate, until then.
    Leased(Time),
    /// A lease without a rate, until then.
    Free(Time),
    /// The fallback of the last lease.
    Past,
}

/// The most that one node holds of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Holding {
    right: Right,
    rate: Rate,
    cap: i128,
    /// The controller's count of the cap, and the part of it that is on its way back.
    counted_cap: i128,
    in_flight: i128,
    tokens: i128,
    /// Above a lowered cap: returned with the next renewal.
    set_aside: i128,
    lump: i128,
    /// The part of it that is ahead of its time, until then.
    ahead: i128,
    ahead_until: Time,
    /// Tokens that operations took of the bucket and that may have been of the lump: an operation that passes one that
    /// waits for a lump leaves the lump alone.
    passed: i128,
    /// The controller's count of the lump: as reported last, plus what came since. What operations did not need goes
    /// back to it.
    counted_lump: i128,
    /// Tokens that went back to the lump since the last renewal. A node that does not know the operation any more puts
    /// it into the bucket instead.
    gone_back: i128,
    debt: i128,
    /// Operations follow each other at the rate, also at that of the fallback: each starts when nothing is owed.
    paced: bool,
    /// What the lease in hand does not cover runs all the same.
    shadow: bool,
    fallback: Fallback,
    /// A part of the group's fallback lasts until then.
    fallback_until: Time,
    last: Time,
    /// The newest renewal, when it was sent, and whether the node gave the lease up in it.
    asked: Option<(u64, Time, bool)>,
    /// When earlier ones were sent that may still be answered.
    earlier: BTreeMap<u64, Time>,
    drift_ppm: u32,
}

/// The node's sums are whole micro-RU, with a remainder that it keeps.
const ROUNDING: i128 = 2 * MICRO as i128;

/// Groups in a world in which all that is in use is added up at every grant.
const MOST_JUDGED: usize = 16;

/// The longest burst at the fallback rate.
const FALLBACK_BURST: Span = Span::secs(1);

/// The same under a paced limit, and of its leases: as late as a node may be to start an operation that was due.
pub(super) const PACED_BURST: Span = Span::millis(5);

fn fine(amount: Ru) -> i128 {
    i128::from(amount.0) * i128::from(MICRO)
}

impl World {
    /// Something happens to what a node holds of a group; I4 is checked by it, when asked to.
    pub(super) fn judge_holding(
        &mut self,
        node: usize,
        group: GroupId,
        change: impl FnOnce(&mut Holding) -> Result<(), String>,
    ) {
        let now = self.clock(node);
        let Some(state) = self.nodes.get_mut(node).filter(|_| self.checked) else { return };
        let fresh = || Holding::new(now, self.config.drift_ppm);
        let holding = state.holdings.entry(group).or_insert_with(fresh);
        let left = state.groups.get(&group).map(|group| group.look().remaining());
        let judged = change(holding).and_then(|()| left.map_or(Ok(()), |left| holding.claims(now, left)));
        if let Err(broken) = judged {
            self.violate(format!("node {node}, group {}: {broken}", group.0));
        }
    }

    /// What nodes may use together of a group and of each above it, by the messages they took in, is within the limits
    /// of the moment: judged while no lease from before the last change is out, and no node lies. That a limit was
    /// lowered within the lease is seen here even where the burst would hide it.
    pub(super) fn judge_in_use(&mut self, id: GroupId) {
        let lied = (0..self.nodes.len()).any(|node| self.lies(node));
        if !self.checked || lied || self.now <= self.changing_until || self.specs.len() > MOST_JUDGED {
            return;
        }
        for above in self.chain(id) {
            let Some(limit) = self.specs.get(&above).and_then(GroupSpec::limit) else { continue };
            let below = self.specs.keys().filter(|other| self.chain(**other).contains(&above));
            let below: Vec<GroupId> = below.copied().collect();
            let nodes = self.nodes.iter().enumerate().filter(|(_, state)| state.up);
            let rates = nodes.flat_map(|(node, state)| {
                let now = self.clock(node);
                let held = below.iter().filter_map(|id| state.holdings.get(id));
                held.map(move |holding| holding.rate_at(now).0)
            });
            let in_use = Rate(rates.sum());
            if in_use > limit {
                let group = above.0;
                return self
                    .violate(format!("I1: {in_use} of group {group} are in use, the limit is {limit}"));
            }
        }
    }
}

impl Holding {
    /// The holding of a group that was never granted anything.
    pub(super) fn new(now: Time, drift_ppm: u32) -> Self {
        Self { last: now, fallback_until: Time(u64::MAX), drift_ppm, ..Self::default() }
    }

    /// An operation was admitted with this estimate, while others of the group waited or not.
    ///
    /// # Errors
    /// The node had no right to.
    pub(super) fn admit(&mut self, now: Time, cost: Ru, passes: bool) -> Result<(), String> {
        self.advance(now);
        if self.is_free() {
            return Ok(());
        }
        let spends = match self.right {
            Right::Leased(_) => true,
            Right::Past => self.fallback.rate().is_some(),
            Right::None | Right::Free(_) => false,
        };
        let needed = match self.right {
            _ if self.paced => 0,
            Right::Past => fine(cost).min(self.cap),
            _ => fine(cost),
        };
        if !spends || self.debt > ROUNDING || self.available() + ROUNDING < needed {
            return Err(format!("I4: {cost} was admitted out of {self:?}"));
        }
        if passes {
            // Out of the bucket: what it may have left of the lump is found at the next renewal.
            let from_tokens = fine(cost).min(self.tokens);
            self.passed += from_tokens.min(self.lump - self.ahead);
            self.tokens -= from_tokens;
            self.spend(fine(cost) - from_tokens);
        } else {
            self.spend(fine(cost));
        }
        Ok(())
    }

    /// Whether there is a lease, and it is in shadow.
    pub(super) fn is_in_shadow(&mut self, now: Time) -> bool {
        self.advance(now);
        self.shadow && matches!(self.right, Right::Leased(_))
    }

    /// Whether there is no lease, and nothing has to be paid for.
    pub(super) fn is_past_and_free(&mut self, now: Time) -> bool {
        self.advance(now);
        self.right == Right::Past && self.is_free()
    }

    /// Rate and lump of a lease in hand, and its end.
    pub(super) fn in_hand(&mut self, now: Time) -> Option<(Rate, Ru, Time)> {
        self.advance(now);
        let Right::Leased(end) = self.right else { return None };
        let lump = i64::try_from(self.lump / i128::from(MICRO)).unwrap_or(i64::MAX);
        Some((self.rate, Ru(lump), end))
    }

    /// The rate that is leased.
    fn rate_at(&self, now: Time) -> Rate {
        match self.right {
            Right::Leased(end) if end > now => self.rate,
            _ => Rate::ZERO,
        }
    }

    /// The rate and the bucket of the fallback, where there is nothing else.
    pub(super) fn falls_back(&mut self, now: Time) -> Option<(Rate, Ru)> {
        self.advance(now);
        let rate = self.fallback.rate().filter(|rate| self.right == Right::Past && *rate > Rate::ZERO)?;
        Some((rate, rate.over(self.fallback_burst())))
    }

    /// The operation cost so much in the end.
    pub(super) fn settle(&mut self, now: Time, estimate: Ru, actual: Ru) {
        self.advance(now);
        let more = fine(actual) - fine(estimate);
        match self.is_free() {
            // A node that gave its lease up is not free, and is paid back what it owes.
            true => self.debt -= (-more).clamp(0, self.debt),
            false if more > 0 => self.spend(more),
            false => self.refund(-more),
        }
    }

    /// The node says it has so much left.
    ///
    /// # Errors
    /// That is more than it can have.
    fn claims(&mut self, now: Time, left: Option<Ru>) -> Result<(), String> {
        self.advance(now);
        let most = if self.is_free() { i128::MAX } else { self.available().max(0) + ROUNDING };
        match left {
            Some(left) if fine(left) > most => {
                Err(format!("I4: {left} in hand, at most there can be {self:?}"))
            }
            None if !matches!(self.right, Right::Free(_)) => {
                Err(format!("I4: no limit in hand, but {self:?}"))
            }
            _ => Ok(()),
        }
    }

    /// The node sent a renewal, and gave the lease up with it or not.
    pub(super) fn ask(&mut self, now: Time, seq: u64, ask: &Ask, gave_up: bool) {
        self.advance(now);
        if let Some((seq, sent, _)) = self.asked.replace((seq, now, gave_up)) {
            self.earlier.insert(seq, sent);
        }
        if let Right::Leased(_) = self.right {
            let lump = self.lump.min(fine(ask.held.lump));
            let surplus = (fine(ask.returned) - (self.lump - lump)).max(0);
            let elsewhere = (self.lump - lump).clamp(0, self.gone_back + self.passed);
            (self.lump, self.counted_lump, self.gone_back, self.passed) = (lump, lump, 0, 0);
            self.ahead = self.ahead.min(lump);
            self.tokens = (self.tokens + elsewhere).min(self.room());
            self.tokens = self.tokens.min(self.tokens + self.set_aside - surplus).max(0);
            self.set_aside = 0;
            self.in_flight += surplus;
            self.rate = self.rate.min(ask.held.rate);
            self.cap = self.cap.min(fine(ask.held.cap));
            self.tokens = self.tokens.min(self.room());
        }
        if gave_up {
            self.fall_back();
        }
    }

    /// The node took in the answer to renewal `seq`, and this is what it made of it.
    ///
    /// # Errors
    /// It was none that it waited for.
    pub(super) fn granted(&mut self, now: Time, seq: u64, grant: &Grant, heard: Heard) -> Result<(), String> {
        self.advance(now);
        if heard == Heard::Extended {
            return self.extended(now, seq, grant);
        }
        let Some((_, sent, gave_up)) = self.asked.take().filter(|(asked, ..)| *asked == seq) else {
            return Err(format!("I4: a late or repeated answer to renewal {seq} was taken in"));
        };
        self.earlier.clear();
        match grant {
            _ if gave_up => {}
            Grant::Leased(terms) => self.leased(sent, terms)?,
            Grant::Unlimited { ttl, fallback, .. } => {
                self.clear(Right::Free(sent.after(*ttl)), *fallback);
                self.fall_back_to(sent, *fallback);
                (self.debt, self.paced) = (0, false);
            }
            Grant::UnknownGroup => self.clear(Right::None, Fallback::Stop),
            Grant::Recovering { fallback, .. } => {
                if let Some(fallback) = fallback {
                    self.fall_back_to(sent, *fallback);
                }
                self.recover();
            }
        }
        self.advance(now);
        Ok(())
    }

    /// A late answer lengthens what is held, within what it grants; it brings nothing.
    fn extended(&mut self, now: Time, seq: u64, grant: &Grant) -> Result<(), String> {
        let gave_up = self.asked.is_some_and(|(.., gave_up)| gave_up);
        let sent = self.earlier.remove(&seq).filter(|_| !gave_up);
        match (self.right, grant, sent) {
            (Right::Leased(end), Grant::Leased(terms), Some(sent)) => {
                self.rate = self.rate.min(terms.rate);
                self.cap = self.cap.min(fine(terms.cap));
                let excess = (self.tokens - self.room()).max(0);
                self.tokens -= excess;
                self.set_aside += excess;
                self.right = Right::Leased(end.max(sent.after(terms.ttl)));
            }
            (Right::Free(end), Grant::Unlimited { ttl, .. }, Some(sent)) => {
                self.right = Right::Free(end.max(sent.after(*ttl)));
            }
            _ => return Err(format!("I4: a late answer to renewal {seq} lengthened {self:?}")),
        }
        self.advance(now);
        Ok(())
    }

    /// Sets what applies without a lease, from the answer to a renewal that was sent at `sent`.
    fn fall_back_to(&mut self, sent: Time, fallback: Fallback) {
        self.fallback = fallback;
        self.fallback_until = match fallback {
            Fallback::Part(_, lasts) => sent.after(lasts),
            _ => Time(u64::MAX),
        };
        if let (Right::Past, Some(rate)) = (self.right, fallback.rate()) {
            self.cap = fine(rate.over(self.fallback_burst()));
            self.counted_cap = self.cap;
            self.tokens = self.tokens.min(self.cap);
        }
    }

    fn recover(&mut self) {
        match (self.right, self.fallback, self.fallback.rate()) {
            (Right::Leased(_), Fallback::Stop, _) | (Right::Free(_), ..) => {}
            (Right::Leased(_), _, Some(rate)) if rate <= self.rate => {}
            (Right::Past, _, Some(_)) => {}
            (_, Fallback::Stop, _) => self.clear(Right::None, Fallback::Stop),
            _ => self.fall_back(),
        }
    }

    fn leased(&mut self, sent: Time, terms: &LeaseTerms) -> Result<(), String> {
        let at_once = [terms.fill, terms.lump, terms.cap - terms.rate.over(PACED_BURST).max(Ru(1))];
        if terms.enforcement.paced && at_once.into_iter().any(Ru::is_positive) {
            return Err(format!("paced, and more than a trifle may start at once: {terms:?}"));
        }
        self.paced = terms.enforcement.paced;
        if self.right == Right::Past && sent.after(terms.ttl) <= self.last {
            // Over before it came.
            self.fall_back_to(sent, terms.fallback);
            return Ok(());
        }
        if !matches!(self.right, Right::Leased(_)) {
            self.clear(Right::None, terms.fallback);
        }
        self.right = Right::Leased(sent.after(terms.ttl));
        self.shadow = terms.enforcement.shadow;
        self.fall_back_to(sent, terms.fallback);
        self.counted_cap = fine(terms.cap).max(self.cap);
        (self.rate, self.cap, self.in_flight) = (terms.rate, fine(terms.cap), 0);
        // A deeper bucket has room again for what was set aside.
        let aside = std::mem::take(&mut self.set_aside);
        self.set_aside = self.add(aside);
        self.add(fine(terms.fill));
        let early = terms.lump_after > Span(0);
        let paid = if early { 0 } else { fine(terms.lump).min(self.debt) };
        self.debt -= paid;
        self.lump += fine(terms.lump) - paid;
        self.counted_lump += fine(terms.lump);
        if early {
            // A clock that is as fast as it may be.
            let fast = u64::try_from(MICRO).unwrap_or_default() + u64::from(self.drift_ppm);
            let wait = u128::from(terms.lump_after.0) * u128::from(fast) / MICRO.unsigned_abs() as u128;
            self.ahead += fine(terms.lump);
            self.ahead_until =
                self.ahead_until.max(self.last.after(Span(u64::try_from(wait).unwrap_or(u64::MAX))));
        }
        Ok(())
    }

    fn advance(&mut self, now: Time) {
        let now = now.max(self.last);
        if let Right::Leased(end) | Right::Free(end) = self.right
            && end <= now
        {
            self.earn(end);
            self.fall_back();
        }
        if self.right == Right::Past && self.fallback_until <= now {
            self.earn(self.fallback_until);
            self.clear(Right::Past, Fallback::Stop);
        }
        self.earn(now);
    }

    fn earn(&mut self, until: Time) {
        let (rate, share) = match (self.right, self.fallback) {
            (Right::Leased(_), _) => (self.rate, MICRO - i64::from(self.drift_ppm)),
            (Right::Past, fallback) => (fallback.rate().unwrap_or_default(), MICRO),
            _ => (Rate::ZERO, MICRO),
        };
        let income = i128::from(rate.0) * i128::from(share) * i128::from(until.since(self.last).0);
        self.last = self.last.max(until);
        if self.last >= self.ahead_until {
            self.ahead = 0;
        }
        self.add(income / i128::from(MICRO) + i128::from(income > 0));
    }

    fn fall_back(&mut self) {
        self.clear(Right::Past, self.fallback);
        if let Some(rate) = self.fallback.rate() {
            self.cap = fine(rate.over(self.fallback_burst()));
            self.counted_cap = self.cap;
        }
    }

    fn fallback_burst(&self) -> Span {
        if self.paced { PACED_BURST } else { FALLBACK_BURST }
    }

    /// Nothing is left but debt.
    fn clear(&mut self, right: Right, fallback: Fallback) {
        let Self { fallback_until, debt, paced, last, asked, drift_ppm, .. } = *self;
        let earlier = std::mem::take(&mut self.earlier);
        *self = Self {
            right,
            fallback,
            fallback_until,
            debt,
            paced,
            last,
            asked,
            earlier,
            drift_ppm,
            ..Self::default()
        };
    }

    fn is_free(&self) -> bool {
        match self.right {
            Right::Free(_) => true,
            Right::Past => self.fallback == Fallback::Unlimited,
            Right::None | Right::Leased(_) => false,
        }
    }

    /// Room in the bucket.
    fn room(&self) -> i128 {
        self.cap.min(self.counted_cap - self.in_flight).max(0)
    }

    fn available(&self) -> i128 {
        self.tokens + self.lump - self.ahead - self.debt
    }

    /// Pays debt, then fills the bucket; returns what does not fit.
    fn add(&mut self, amount: i128) -> i128 {
        let paid = amount.min(self.debt);
        self.debt -= paid;
        let tokens = self.tokens + amount - paid;
        self.tokens = tokens.min(self.room());
        tokens - self.tokens
    }

    fn refund(&mut self, amount: i128) {
        let paid = amount.min(self.debt);
        let to_lump = (amount - paid).min(self.counted_lump - self.lump).max(0);
        self.debt -= paid;
        self.lump += to_lump;
        self.gone_back += to_lump;
        self.add(amount - paid - to_lump);
    }

    fn spend(&mut self, cost: i128) {
        let from_lump = cost.min(self.lump - self.ahead);
        let from_tokens = (cost - from_lump).min(self.tokens);
        self.lump -= from_lump;
        self.tokens -= from_tokens;
        self.debt += cost - from_lump - from_tokens;
    }
}
