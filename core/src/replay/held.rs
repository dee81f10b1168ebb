//! A bucket as leases share it out: nodes hold a part of it, and the pool the rest.
//!
//! While nobody waits, nodes are leased what is offered and half of the limit (`want.rs`, `decide.rs`: twice the load, and
//! half of what is left). A node's bucket holds half a second of its rate; what it yields above that is lost. The pool
//! gains what is not leased. So after a gust a group's burst comes back by what the limit has beyond half of it and the
//! load, and not by what it has beyond the load. Both are the same for any number of nodes, whose rates add up to the
//! limit. While operations wait, the limit is leased, what nodes do not use comes back to the pool, and all of it counts.
//!
//! Where a burst is one second of the limit, this is close to one bucket; where it is five, gusts of some seconds find
//! much less.

use super::classes::Classes;
use super::pressed::{Ran, Run, Started};
use super::queued::Queue;
use super::{Budget, Rate, ReplayError, Ru, Span, Time};
use crate::decide::LOCAL_CAP;
use crate::policy::paced::{Paced, PacedState};
use crate::policy::token_bucket::TokenBucket;
use crate::policy::{self, Policy, Verdict, quotient, setting::SettingError};
use crate::units::MICRO;

/// A policy that those in line wait for, and before which even demand may pass without a look at each operation.
pub(super) trait Steady {
    /// What was done.
    type State: Copy;
    /// Whether an operation starts in time does not depend on what it costs.
    const ALL_OR_NONE: bool;

    /// The state before anything was done.
    fn fresh(&self) -> Self::State;

    /// What operations come from a moment on.
    fn offer(&self, _: &mut Self::State, _: Time, _: Offer) {}

    /// What may start at a moment, and until a later one; `None` if that is no matter of an amount.
    fn room(&self, _: &Self::State, _: Time, _: Time) -> Option<[Ru; 2]> {
        None
    }

    /// Decides the first moments of a run together; none if the first one has to be decided by itself.
    fn rush(
        &mut self,
        _: &mut Self::State,
        _free: Time,
        _: &Run,
        _: &mut Budget,
        _: Started<'_>,
    ) -> Result<Ran, ReplayError> {
        Ok(Ran::default())
    }

    /// When an operation starts whose turn is at a moment, and counts it; `None` if that is not until a later one.
    fn start(
        &self,
        state: &mut Self::State,
        turns: (Time, Time),
        cost: Ru,
        budget: &mut Budget,
    ) -> Result<Option<Time>, ReplayError>;

    /// Whether what is there at the first of some moments covers it, and what is gained between two of them the next.
    fn is_at_ease(&self, state: &Self::State, moments: &Moments) -> bool;

    /// The state after the last of these moments, at each of which all starts; returns whether it does.
    fn pass(
        &self,
        state: &mut Self::State,
        moments: &Moments,
        budget: &mut Budget,
    ) -> Result<bool, ReplayError>;
}

/// What is offered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Offer {
    /// A rate, and what an operation costs.
    Some(Rate, Ru),
    /// Nothing, and nodes have leases.
    Nothing,
    /// Nothing, for so long that they gave them up.
    Idle,
}

/// Moments of an even stretch, at each of which operations come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    pub(super) first: Time,
    pub(super) last: Time,
    /// The least time between two.
    pub(super) gap: Span,
    /// The largest cost of one.
    pub(super) most: Ru,
    /// The cost of all but the last one.
    pub(super) before: Ru,
    /// The cost of the last one.
    pub(super) cost: Ru,
}

/// The policy. Amounts are millionths of a micro-RU, which a micro-RU per second yields in a microsecond.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) rate: i128,
    pub(super) burst: i128,
    /// Of the last run whose waits were counted.
    pub(super) classes: Option<Classes>,
}

/// What is where.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldState {
    pub(super) at: Time,
    /// The rate that nodes have.
    pub(super) leased: i128,
    /// The most that their buckets hold.
    pub(super) cap: i128,
    /// What they hold.
    pub(super) near: i128,
    pub(super) pool: i128,
}

impl HeldState {
    /// All that is there.
    pub(super) fn sum(&self) -> i128 {
        self.near + self.pool
    }
}

impl Held {
    /// Of a limit and a burst.
    ///
    /// # Errors
    /// [`SettingError`] names the setting, its value and what to give instead.
    pub(super) fn new(rate: Rate, burst: Ru) -> Result<Self, SettingError> {
        TokenBucket::new(rate, burst)?;
        Ok(Self { rate: rate.0.into(), burst: fine(burst), classes: None })
    }

    pub(super) fn at(&self, state: &HeldState, now: Time) -> HeldState {
        let passed = i128::from(now.0.saturating_sub(state.at.0));
        let mut state = HeldState { at: now.max(state.at), ..*state };
        state.near = (state.near + state.leased * passed).min(state.cap);
        state.pool = (state.pool + (self.rate - state.leased) * passed).min(self.burst - state.cap);
        state
    }

    /// What the pool has no room for is with nodes.
    pub(super) fn settled(&self, state: HeldState) -> HeldState {
        let sum = state.sum();
        let pool = (sum - state.near.min(state.cap)).min(self.burst - state.cap);
        HeldState { near: sum - pool, pool, ..state }
    }
}

/// What is paced, at a rate: nodes hold nothing of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drained {
    pub(super) queue: Paced,
    pub(super) rate: Rate,
}

impl Steady for Drained {
    type State = <Paced as Policy>::State;
    const ALL_OR_NONE: bool = true;

    fn fresh(&self) -> Self::State {
        self.queue.fresh()
    }

    fn rush(
        &mut self,
        state: &mut Self::State,
        free: Time,
        run: &Run,
        budget: &mut Budget,
        started: Started<'_>,
    ) -> Result<Ran, ReplayError> {
        if is_enough(self.rate, Span(run.gaps.least()), run.most) {
            // The rest may pass as a whole.
            return Ok(Ran::default());
        }
        let (queued, at) = state.queue();
        let mut queue = Queue { at, queued: queued.cast_signed(), rate: self.rate.0.into() };
        let ran = queue.run(free, run, &mut |_, _| true, budget, started)?;
        *state = PacedState::of(queue.queued.unsigned_abs(), queue.at);
        Ok(ran)
    }

    fn start(
        &self,
        state: &mut Self::State,
        (turn, until): (Time, Time),
        cost: Ru,
        _: &mut Budget,
    ) -> Result<Option<Time>, ReplayError> {
        let mut after = *state;
        let start = match self.queue.try_acquire(&mut after, turn, cost) {
            Verdict::AdmitAt(at) => at,
            verdict if verdict.is_admitted() => turn,
            _ => return Ok(None),
        };
        if start > until {
            return Ok(None);
        }
        *state = after;
        Ok(Some(start))
    }

    fn is_at_ease(&self, state: &Self::State, moments: &Moments) -> bool {
        // What owes anything makes it wait.
        let owes = self.queue.try_acquire(&mut { *state }, moments.first, Ru(1)) != Verdict::Admit;
        !owes && is_enough(self.rate, moments.gap, moments.most)
    }

    fn pass(&self, state: &mut Self::State, moments: &Moments, _: &mut Budget) -> Result<bool, ReplayError> {
        *state = self.queue.fresh();
        self.queue.try_acquire(state, moments.last, moments.cost);
        Ok(true)
    }
}

/// Whether a rate yields what comes at one moment until the next, which is at least so much later.
pub(super) fn is_enough(rate: Rate, gap: Span, most: Ru) -> bool {
    i128::from(rate.0) * i128::from(gap.0) >= fine(most)
}

/// In millionths of a micro-RU; a debt is none.
pub(super) fn fine(amount: Ru) -> i128 {
    policy::fine(amount).cast_signed()
}

/// A quotient, rounded down; 0 by nothing.
pub(super) fn divided(amount: i128, by: i128) -> i128 {
    match (u128::try_from(amount), u128::try_from(by)) {
        (Ok(amount), Ok(by)) if by > 0 => quotient(amount, by).cast_signed(),
        _ => amount.checked_div(by).unwrap_or(0),
    }
}

/// The same, rounded up.
pub(super) fn divided_up(amount: i128, by: i128) -> i128 {
    divided(amount + by - 1, by)
}

impl Steady for Held {
    type State = HeldState;
    const ALL_OR_NONE: bool = false;

    fn fresh(&self) -> Self::State {
        HeldState { at: Time(0), leased: 0, cap: 0, near: 0, pool: self.burst }
    }

    fn offer(&self, state: &mut Self::State, from: Time, offer: Offer) {
        let (offered, cost) = match offer {
            Offer::Some(rate, cost) => (rate.0.into(), fine(cost)),
            Offer::Nothing | Offer::Idle => (0, 0),
        };
        let is_idle = matches!(offer, Offer::Idle);
        let leased = if is_idle { 0 } else { (self.rate / 2 + offered).min(self.rate) };
        // As nodes' buckets are: half a second of their rate within their part of half of the burst, or twice the
        // operation within that of the whole burst.
        let part = |amount: i128| {
            let whole = divided(amount, self.rate);
            whole * leased + divided((amount - whole * self.rate) * leased, self.rate)
        };
        let usual = part(self.burst / 2).min(leased * i128::from(LOCAL_CAP.0));
        let cap = usual.max(part(self.burst).min(cost + cost));
        *state = self.settled(HeldState { leased, cap, ..self.at(state, from) });
    }

    fn room(&self, state: &Self::State, from: Time, until: Time) -> Option<[Ru; 2]> {
        if from > until {
            return Some([Ru::ZERO; 2]);
        }
        let state = self.at(state, from);
        let there = state.sum();
        let gained = self.rate * i128::from(until.since(from).0);
        let amount = |of: i128| Ru(i64::try_from(divided(of, MICRO.into())).unwrap_or(i64::MAX));
        Some([amount(there), amount(there + gained)])
    }

    fn rush(
        &mut self,
        state: &mut Self::State,
        free: Time,
        run: &Run,
        budget: &mut Budget,
        started: Started<'_>,
    ) -> Result<Ran, ReplayError> {
        self.decide(state, free, run, budget, started)
    }

    fn start(
        &self,
        state: &mut Self::State,
        (turn, until): (Time, Time),
        cost: Ru,
        _: &mut Budget,
    ) -> Result<Option<Time>, ReplayError> {
        let cost = fine(cost);
        if cost == 0 {
            return Ok(Some(turn));
        }
        let now = self.at(state, turn);
        let there = now.sum();
        if cost <= there {
            let near = cost.min(now.near);
            *state = self.settled(HeldState { near: now.near - near, pool: now.pool - (cost - near), ..now });
            return Ok(Some(turn));
        }
        // Until then all that the limit yields comes together for those who wait. Operations that cost more than the
        // burst together start one after another, the last one then.
        let wait = divided_up(cost - there, self.rate);
        let Some(start) = u64::try_from(wait).ok().and_then(|wait| now.at.0.checked_add(wait)).map(Time)
        else {
            return Ok(None);
        };
        if start > until {
            return Ok(None);
        }
        let pool = there + self.rate * wait - cost;
        *state = self.settled(HeldState { at: start, near: 0, pool, ..now });
        Ok(Some(start))
    }

    fn is_at_ease(&self, state: &Self::State, moments: &Moments) -> bool {
        let most = fine(moments.most);
        most <= self.at(state, moments.first).near && state.leased * i128::from(moments.gap.0) >= most
    }

    fn pass(&self, state: &mut Self::State, moments: &Moments, _: &mut Budget) -> Result<bool, ReplayError> {
        let first = self.at(state, moments.first);
        // More is gained between two moments than one costs: what is there grows up to the cap, and stays there.
        let gained = first.leased * i128::from(moments.last.since(moments.first).0);
        let near = (first.near + gained - fine(moments.before)).min(first.cap);
        *state = HeldState { near: near - fine(moments.cost), ..self.at(&first, moments.last) };
        Ok(true)
    }
}
