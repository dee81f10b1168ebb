//! GCRA, the generic cell rate algorithm: a token bucket as one moment, the theoretical arrival time (ITU-T I.371).
//!
//! Admitted iff `arrival + cost / rate - now <= burst / rate`, then `arrival = max(now, arrival) + cost / rate`. Here
//! all is multiplied by the rate, so that nothing is rounded: it decides exactly as [`super::token_bucket`] does, with
//! `burst` for its capacity.
//!
//! State: one number of 128 bits, 16 bytes. Error: none. Use: as the token bucket, where keys are many; it knows no debt.

use super::{Policy, Verdict, fine, setting};
use crate::units::{Rate, Ru, Time};
use setting::SettingError;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Gcra {
    rate: u128,
    /// In millionths of a micro-RU.
    burst: u128,
}

/// One key's theoretical arrival time, times the rate.
#[derive(Clone, Copy, Debug)]
pub struct GcraState {
    arrival: u128,
}

impl Gcra {
    /// At `rate`, and up to `burst` ahead of it.
    ///
    /// # Errors
    /// [`SettingError`] names the setting, its value and what to give instead.
    pub fn new(rate: Rate, burst: Ru) -> Result<Self, SettingError> {
        let rate = setting::rate(rate)?.0.unsigned_abs().into();
        Ok(Self { rate, burst: fine(setting::capacity(burst)?) })
    }
}

impl Policy for Gcra {
    type State = GcraState;

    fn fresh(&self) -> Self::State {
        GcraState { arrival: 0 }
    }

    fn decide(&self, state: &mut Self::State, now: Time, cost: Ru) -> Verdict {
        let cost = fine(cost);
        if cost > self.burst {
            return Verdict::Never;
        }
        let now = u128::from(now.0) * self.rate;
        let arrival = state.arrival.max(now) + cost;
        if arrival > now + self.burst {
            return Verdict::retry_at((arrival - self.burst).div_ceil(self.rate));
        }
        state.arrival = arrival;
        Verdict::Admit
    }
}
