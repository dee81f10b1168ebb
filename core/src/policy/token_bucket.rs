//! Token bucket: filled at a rate up to a capacity; an operation takes what it costs. The default of resource groups.
//!
//! State: what is in the bucket at the last admission and when that was, 32 bytes. Error: none; no window admits more than
//! `capacity + rate * window`. What an operation cost beyond its estimate may be taken afterwards, as debt. Use: a rate
//! with bursts.
//!
//! The bucket at an earlier moment than its last is reckoned backwards, so that it decides as [`super::gcra`] does, at
//! any moments.

use super::{Policy, Verdict, fine, setting};
use crate::units::{Rate, Ru, Time};
use setting::SettingError;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// In millionths of a micro-RU, as the level.
    capacity: i128,
}

/// One key's bucket.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucketState {
    /// Negative values are debt.
    level: i128,
    at: Time,
}

impl TokenBucket {
    /// Filled at `rate` up to `capacity`.
    ///
    /// # Errors
    /// [`SettingError`] names the setting, its value and what to give instead.
    pub fn new(rate: Rate, capacity: Ru) -> Result<Self, SettingError> {
        let capacity = fine(setting::capacity(capacity)?).cast_signed();
        Ok(Self { rate: setting::rate(rate)?, capacity })
    }

    /// Takes what was used without asking, whatever is there.
    pub fn charge(&self, state: &mut TokenBucketState, now: Time, amount: Ru) {
        let level = self.level(state, now).saturating_sub(fine(amount).cast_signed());
        *state = TokenBucketState { level, at: now };
    }

    /// What is in the bucket.
    fn level(&self, state: &TokenBucketState, now: Time) -> i128 {
        let passed = i128::from(now.0) - i128::from(state.at.0);
        state.level.saturating_add(i128::from(self.rate.0) * passed).min(self.capacity)
    }
}

impl Policy for TokenBucket {
    type State = TokenBucketState;

    fn fresh(&self) -> Self::State {
        TokenBucketState { level: self.capacity, at: Time(0) }
    }

    fn decide(&self, state: &mut Self::State, now: Time, cost: Ru) -> Verdict {
        let cost = fine(cost).cast_signed();
        if cost > self.capacity {
            return Verdict::Never;
        }
        let level = self.level(state, now);
        if cost <= level {
            *state = TokenBucketState { level: level - cost, at: now };
            return Verdict::Admit;
        }
        let missing = cost.saturating_sub(level).unsigned_abs();
        Verdict::retry_at(u128::from(now.0) + missing.div_ceil(u128::from(self.rate.0.unsigned_abs())))
    }
}
