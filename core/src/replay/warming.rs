//! A rate that warms up with use, as all nodes together have it.
//!
//! The curve and its store are those of [`crate::warmth`]: what nodes use of the rate of the moment drains the store, and
//! idle time fills it. What waits is drained at that rate, in the order of arrival, and nothing is saved up. The record
//! begins cold. Not in it: that leases follow the curve by some round trips, and that nodes renew once a second.

use super::held::{Moments, Steady, divided, fine, is_enough};
use super::pressed::{Ran, Run, Started};
use super::queued::Queue;
use super::{Budget, Rate, ReplayError, Ru, Span, Time};
use crate::policy::Policy as _;
use crate::policy::setting::SettingError;
use crate::policy::warm_up::{WarmUp, WarmUpState};
use crate::warmth::ALL_BUT;

/// Steps of a warm-up while operations wait, within each of which the rate stays: a twentieth of the way is within 5 % of
/// it. With half, waits of a short warm-up are off by a tenth; twice as many take twice as long.
const STEPS: u64 = 20;
/// But none is shorter than nodes' renewals follow.
const SHORTEST: Span = Span::millis(50);
/// While nobody waits, steps are as long as the rate changes by one part in this many, which is how exact it is; of a
/// large factor it changes by half in a fiftieth of the way. Twice as many take twice as long.
const CHANGES: u64 = 16;
/// A rate that turns, and changes by less than one part in this many, has come to where even use keeps it.
const STEADY: u64 = 200;
/// Steps that are never halved: a minute of them takes a hundredth of a second.
const LEAST_STEP: Span = Span::millis(1);

/// The policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warming {
    curve: WarmUp,
    full: Rate,
    /// The rate when it is cold.
    cold: Rate,
    step: Span,
}

/// How warm it is, and what waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WarmingState {
    warmth: WarmUpState,
    at: Time,
    /// By the curve.
    rate: Rate,
    /// In millionths of a micro-RU.
    queued: i128,
}

impl Warming {
    /// Of a limit that is reached within a period of full use.
    ///
    /// # Errors
    /// [`SettingError`] names the setting, its value and what to give instead.
    pub(super) fn new(full: Rate, period: Span, factor: u32) -> Result<Self, SettingError> {
        let curve = WarmUp::new(full, period, factor)?;
        let step = Span(period.0 / STEPS).max(SHORTEST);
        Ok(Self { cold: curve.rate(&curve.fresh()), curve, full, step })
    }

    /// A span of use at a rate. The rate of the moment holds for it, which is exact while it is warm.
    fn used(&self, state: &mut WarmingState, span: Span, used: Rate, waited: bool) {
        let to = state.at.after(span);
        self.curve.pass(&mut state.warmth, (state.at, to), used, waited);
        (state.at, state.rate) = (to, self.curve.rate(&state.warmth));
    }

    /// The same of even use, between which it is idle unless all of the time is waited for.
    fn flow(&self, state: &mut WarmingState, span: Span, used: Rate, waited: bool) {
        if waited {
            return self.used(state, span, used, true);
        }
        let to = state.at.after(span);
        self.curve.flow(&mut state.warmth, (state.at, to), used);
        (state.at, state.rate) = (to, self.curve.rate(&state.warmth));
    }

    /// Drains what waits for so long at most, in a step. Returns whether nothing waits any more.
    fn drain(&self, state: &mut WarmingState, most: Span, budget: &mut Budget) -> Result<bool, ReplayError> {
        budget.spend()?;
        // Use at the full rate keeps it warm, however long.
        let step = if state.rate == self.full { most } else { most.min(self.step) };
        let rate = i128::from(state.rate.0);
        let within = divided(state.queued, rate);
        let is_last = within < i128::from(step.0);
        let span = if is_last { Span(u64::try_from(within).unwrap_or(0)) } else { step };
        state.queued -= rate * i128::from(span.0);
        let used = state.rate;
        self.used(state, span, used, true);
        // Less than the rate yields in a microsecond is nothing to wait for.
        Ok(is_last || state.queued == 0)
    }

    /// Until a moment: what waits is drained, and then it is idle.
    fn advance(&self, state: &mut WarmingState, to: Time, budget: &mut Budget) -> Result<(), ReplayError> {
        while state.at < to {
            let left = to.since(state.at);
            if state.queued == 0 {
                self.used(state, left, Rate::ZERO, false);
            } else if self.drain(state, left, budget)? {
                state.queued = 0;
            }
        }
        Ok(())
    }
}

impl Steady for Warming {
    type State = WarmingState;
    const ALL_OR_NONE: bool = true;

    fn fresh(&self) -> Self::State {
        WarmingState { warmth: self.curve.fresh(), at: Time(0), rate: self.cold, queued: 0 }
    }

    fn rush(
        &mut self,
        state: &mut Self::State,
        free: Time,
        run: &Run,
        budget: &mut Budget,
        started: Started<'_>,
    ) -> Result<Ran, ReplayError> {
        if state.rate != self.full || is_enough(self.full, Span(run.gaps.least()), run.most) {
            return Ok(Ran::default());
        }
        // Use at the full rate keeps it warm, and idle time may not.
        let mut queue = Queue { at: state.at, queued: state.queued, rate: self.full.0.into() };
        let mut idle = |from: Time, until: Time| {
            self.used(state, from.since(state.at), self.full, true);
            self.used(state, until.since(from), Rate::ZERO, false);
            state.rate == self.full
        };
        let ran = queue.run(free, run, &mut idle, budget, started)?;
        self.used(state, queue.at.since(state.at), self.full, true);
        state.queued = queue.queued;
        Ok(ran)
    }

    fn start(
        &self,
        state: &mut Self::State,
        (turn, until): (Time, Time),
        cost: Ru,
        budget: &mut Budget,
    ) -> Result<Option<Time>, ReplayError> {
        self.advance(state, turn, budget)?;
        let mut after = *state;
        while after.queued > 0 {
            let left = until.since(after.at);
            // At its full rate it would still be waited for, or it is.
            if i128::from(self.full.0) * i128::from(left.0) < after.queued - i128::from(self.full.0)
                || left == Span(0) && after.queued > i128::from(after.rate.0)
            {
                return Ok(None);
            }
            let most = left.max(Span(1));
            if self.drain(&mut after, most, budget)? {
                break;
            }
        }
        if after.at > until {
            return Ok(None);
        }
        let start = after.at.max(turn);
        after.queued += fine(cost);
        *state = after;
        Ok(Some(start))
    }

    fn is_at_ease(&self, state: &Self::State, moments: &Moments) -> bool {
        let passed = i128::from(moments.first.since(state.at).0);
        // What waits is gone by then: while it is drained, the rate does not fall.
        state.queued <= i128::from(state.rate.0) * passed && is_enough(state.rate, moments.gap, moments.most)
    }

    /// The rate goes one way as long as it is used evenly, so that it is enough throughout if it is in each step.
    fn pass(
        &self,
        state: &mut Self::State,
        moments: &Moments,
        budget: &mut Budget,
    ) -> Result<bool, ReplayError> {
        let mut after = *state;
        self.advance(&mut after, moments.first, budget)?;
        after.queued = 0;
        let span = moments.last.since(moments.first);
        let used = divided(fine(moments.before), span.0.max(1).into());
        let used = Rate(i64::try_from(used).unwrap_or(i64::MAX));
        let (mut step, mut way) = (self.step, 0);
        while after.at < moments.last {
            budget.spend()?;
            if !is_enough(after.rate, moments.gap, moments.most) {
                return Ok(false);
            }
            let left = moments.last.since(after.at);
            let waited = used >= after.rate - after.rate.scale(1, ALL_BUT);
            // As long as it stays warm, or as cold as it can be, the rate is the same throughout.
            if after.rate == self.full || after.rate == self.cold {
                let mut all = after;
                self.flow(&mut all, left, used, waited);
                if all.rate == after.rate {
                    after = all;
                    continue;
                }
            }
            let mut next = after;
            self.flow(&mut next, step.min(left), used, waited);
            let (changed, whole) = ((next.rate - after.rate).0, after.rate.0.unsigned_abs());
            let turns = changed.signum() * way < 0;
            if changed.unsigned_abs() > whole / if turns { STEADY } else { CHANGES } && step > LEAST_STEP {
                step = Span(step.0 / 2).max(LEAST_STEP);
                continue;
            }
            if turns {
                // Use and idle time balance each other.
                next.at = moments.last;
            } else if changed.unsigned_abs() < whole / (CHANGES * 4) {
                step = Span(step.0.saturating_mul(2));
            }
            way = if changed == 0 { way } else { changed.signum() };
            after = next;
        }
        if !is_enough(after.rate, moments.gap, moments.most) {
            return Ok(false);
        }
        *state = WarmingState { queued: fine(moments.cost), ..after };
        Ok(true)
    }
}
