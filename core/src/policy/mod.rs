//! Limiter policies: whether one operation of a known cost may start now, for one key.
//!
//! * [`fixed_window`]: a counter by window of the clock.
//! * [`sliding_log`]: every admission of the last window; exact.
//! * [`sub_windows`]: a counter by cell of the window (LeapArray), the leaving cell whole or by its part.
//! * [`two_windows`]: the window before counts by the part of it that is still inside.
//! * [`token_bucket`]: a rate and a capacity. [`gcra`]: the same decisions from one number.
//! * [`paced`]: a queue drained at a rate, as nginx's `limit_req`.
//! * [`warm_up`]: a rate that rises from cold to full, as Guava's and Sentinel's.
//! * [`demotion`]: a second bucket, at low priority, for what the first does not cover.
//!
//! A policy is what a key may do: its settings, checked once. A state is what one key has done; many keys share a policy.
//! Decisions are exact integers: amounts in micro-RU, time in microseconds, products of both in 128 bits. No decision
//! allocates. An operation that costs nothing is admitted and changes nothing.
//!
//! Whatever the policy: after a refusal every earlier moment is refused, too, and the promised one admits, if nothing
//! was admitted between; and a clock that steps back admits nothing that it would not have admitted without the step.

pub mod demotion;
pub mod fixed_window;
pub mod gcra;
pub mod paced;
pub mod setting;
pub mod sliding_log;
pub mod sub_windows;
pub mod token_bucket;
pub mod two_windows;
pub mod warm_up;

use crate::units::{MICRO, Ru, Span, Time};

/// What a policy answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Admitted, and starts at once.
    Admit,
    /// Admitted, and starts at this later moment.
    AdmitAt(Time),
    /// Admitted, and starts at once, at low priority.
    AdmitLow,
    /// Refused; the same operation is admitted at this moment, and not before.
    RetryAt(Time),
    /// Refused at any time: it costs more than the policy ever admits at once, or time ends before.
    Never,
}

impl Verdict {
    /// Whether the operation was admitted and is counted.
    pub const fn is_admitted(self) -> bool {
        matches!(self, Self::Admit | Self::AdmitAt(_) | Self::AdmitLow)
    }

    /// Refused until a moment; for ever when no clock shows it.
    pub(crate) fn retry_at(micros: u128) -> Self {
        u64::try_from(micros).map_or(Self::Never, |at| Self::RetryAt(Time(at)))
    }
}

/// A rule by which operations are admitted.
pub trait Policy {
    /// What one key has done.
    type State;

    /// The state of a key that has done nothing.
    fn fresh(&self) -> Self::State;

    /// Decides about one operation that costs something, and counts it if it is admitted.
    fn decide(&self, state: &mut Self::State, now: Time, cost: Ru) -> Verdict;

    /// Decides about one operation, and counts it if it is admitted.
    fn try_acquire(&self, state: &mut Self::State, now: Time, cost: Ru) -> Verdict {
        if cost.is_positive() { self.decide(state, now, cost) } else { Verdict::Admit }
    }
}

/// A policy with the state of a single key.
#[derive(Clone, Debug)]
pub struct Limiter<P: Policy> {
    policy: P,
    state: P::State,
}

impl<P: Policy> Limiter<P> {
    /// Of a key that has done nothing.
    pub fn new(policy: P) -> Self {
        let state = policy.fresh();
        Self { policy, state }
    }

    /// Decides about one operation, and counts it if it is admitted.
    pub fn try_acquire(&mut self, now: Time, cost: Ru) -> Verdict {
        self.policy.try_acquire(&mut self.state, now, cost)
    }
}

/// Micro-RU, as a factor; a debt is none.
fn micro(amount: Ru) -> u128 {
    u128::from(amount.0.max(0).unsigned_abs())
}

/// Millionths of a micro-RU, which a rate of one micro-RU per second yields in a microsecond.
pub(crate) fn fine(amount: Ru) -> u128 {
    micro(amount) * u128::from(MICRO.unsigned_abs())
}

/// A division that mostly has room in 64 bits: one of 128 costs more than the rest of a decision.
pub(crate) fn quotient(of: u128, by: u128) -> u128 {
    match (u64::try_from(of), u64::try_from(by)) {
        (Ok(of), Ok(by)) if by > 0 => u128::from(of / by),
        _ => of / by,
    }
}

/// Where a window or cell stands in the time before it ends: how much of it is left.
fn left(now: Time, number: u64, length: Span) -> u128 {
    let begin = u128::from(number) * u128::from(length.0);
    u128::from(length.0).saturating_sub(u128::from(now.0).saturating_sub(begin))
}
