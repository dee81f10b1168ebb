//! Warm-up: a rate that is low when cold and rises to its full height within a time of full use.
//!
//! Source: Guava's `SmoothWarmingUp`, whose formulas Sentinel's warm-up has, too. `stable = 1 / rate`,
//! `cold = stable * factor`, `threshold = warm_up / stable / 2`, `most = threshold + 2 * warm_up / (stable + cold)`,
//! `slope = (cold - stable) / (most - threshold)`. Idle time stores tokens, from none to `most` in a warm-up; use
//! spends them. With `x > threshold` stored, operations are `stable + slope * (x - threshold)` apart, else `stable`. As
//! Guava does, an operation starts when those before are paid for, whatever it costs itself, and pays by the integral
//! over the tokens that it takes: it is the next that waits.
//!
//! Different from both: integers. Tokens are counted in fractions by which refilling is a whole number, so nothing is
//! lost in many small steps; the part above `stable` of what an operation pays is rounded up, by less than 10^-11 of
//! what it would be at the coldest and a millionth of a micro-RU. A key begins cold.
//!
//! State: the stored tokens, and when the next operation may start, 32 bytes. Use: caches and pools that must not get
//! the full rate at once.

use super::{Policy, Verdict, fine, micro, setting};
use crate::units::{MICRO, Rate, Ru, Span, Time};
use setting::{COLDEST, MOST_STORED, SettingError};

/// The policy. Tokens are counted in shares, of which `WarmUp::shares` make a micro-RU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarmUp {
    rate: u128,
    factor: u128,
    /// With more in store, it is cold.
    threshold: u128,
    most: u128,
    /// By so many bits tokens are coarser where they are multiplied with each other.
    coarse: u32,
    /// By this the product is divided.
    divisor: Divisor,
}

/// What many numbers are divided by: a product takes a fifth of a division of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Divisor {
    by: u128,
    /// `2^POINT / by`, rounded down; 0 where that does not fit.
    reciprocal: u64,
}

/// Bits of what is divided by a product, at most.
const POINT: u32 = 104;
/// Bits of it that do not matter for the quotient but for the last step.
const LOW: u32 = POINT - u64::BITS;

impl Divisor {
    fn new(by: u128) -> Self {
        Self { by, reciprocal: u64::try_from((1 << POINT) / by).unwrap_or(0) }
    }

    /// The quotient, rounded up.
    fn divide_up(self, of: u128) -> u128 {
        let Some(high) = u64::try_from(of >> LOW).ok().filter(|_| self.reciprocal > 0) else {
            return of.div_ceil(self.by);
        };
        // Too small by two at most: each of both factors is rounded down.
        let mut quotient = (u128::from(high) * u128::from(self.reciprocal)) >> u64::BITS;
        let mut rest = of - quotient * self.by;
        while rest > 0 {
            rest = rest.saturating_sub(self.by);
            quotient += 1;
        }
        quotient
    }
}

/// One key's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarmUpState {
    stored: u128,
    /// When the next operation may start, times the rate.
    free: u128,
}

/// Bits of the store above the threshold in a product with what is taken, which has up to 80: together they fit.
const BITS: u32 = 40;

impl WarmUp {
    /// Reaches `rate` after `warm_up` at full use, from a `factor` of it.
    ///
    /// # Errors
    /// [`SettingError`] names the setting, its value and what to give instead.
    pub fn new(rate: Rate, warm_up: Span, factor: u32) -> Result<Self, SettingError> {
        let per_second = setting::rate(rate)?;
        let length = setting::window(warm_up).map_err(|_| SettingError::WarmUp(warm_up))?;
        if !(2..=COLDEST).contains(&factor) {
            return Err(SettingError::ColdFactor(factor));
        }
        let (rate, factor) = (u128::from(per_second.0.unsigned_abs()), u128::from(factor));
        // Half a warm-up at the full rate is half of this, in millionths of a micro-RU: `1 + factor` times it in shares.
        let product = rate * u128::from(length.0);
        let (threshold, most) = (product * (1 + factor), product * (5 + factor));
        if most > fine(MOST_STORED) * 2 * (1 + factor) {
            return Err(SettingError::Stored { rate: per_second, warm_up });
        }
        let bits = u128::BITS - (most - threshold).leading_zeros();
        let coarse = bits.saturating_sub(BITS);
        let divisor = 2 * ((most - threshold) >> coarse) * 2 * (1 + factor);
        Ok(Self { rate, factor, threshold, most, coarse, divisor: Divisor::new(divisor) })
    }

    /// Shares of a micro-RU: by them, the threshold, the most and what is refilled are whole numbers.
    const fn shares(&self) -> u128 {
        2 * (1 + self.factor) * MICRO.unsigned_abs() as u128
    }

    /// With this much in store, a key is warm: half a warm-up at the full rate, in micro-RU, rounded down.
    pub fn threshold(&self) -> Ru {
        self.whole(self.threshold)
    }

    /// The most that is stored, in micro-RU, rounded down.
    pub fn most(&self) -> Ru {
        self.whole(self.most)
    }

    /// What a key has in store at a moment, in micro-RU, rounded down.
    pub fn stored(&self, state: &WarmUpState, now: Time) -> Ru {
        self.whole(self.refilled(state, u128::from(now.0) * self.rate))
    }

    /// The rate of the curve with what a key has in store: between a `factor` of the full rate and that, rounded down, and
    /// never zero.
    pub fn rate(&self, state: &WarmUpState) -> Rate {
        if state.stored <= self.threshold {
            return Rate(i64::try_from(self.rate).unwrap_or(Rate::MAX.0));
        }
        let span = (self.most - self.threshold) >> self.coarse;
        let above = state.stored.saturating_sub(self.threshold).div_ceil(1 << self.coarse).min(span);
        let rate = self.rate * span / (span + (self.factor - 1) * above);
        Rate(i64::try_from(rate.max(1)).unwrap_or(Rate::MAX.0))
    }

    /// Takes in that a key was used at this rate from `since` until `now`, by operations too many to tell apart: what they
    /// take by the curve is time in use, and the rest of the time refills the store, unless the key `waited` for all of
    /// it. Nothing is owed afterwards.
    pub fn pass(&self, state: &mut WarmUpState, (since, now): (Time, Time), used: Rate, waited: bool) {
        let span = now.since(since);
        let taken = micro(Ru(used.0)) * u128::from(span.0);
        let busy = taken + self.extra(state.stored, taken * 2 * (1 + self.factor));
        let idle = (u128::from(span.0) * self.rate).saturating_sub(busy);
        let left = state.stored.saturating_sub(taken * 2 * (1 + self.factor));
        let stored = if waited { left } else { (left + idle * (5 + self.factor)).min(self.most) };
        *state = WarmUpState { stored, free: u128::from(now.0) * self.rate };
    }

    /// The same for a span in which use and idle time take turns so often that the rate of its begin holds throughout. Where
    /// they balance each other, they do so in a span of any length.
    pub(crate) fn flow(&self, state: &mut WarmUpState, (since, now): (Time, Time), used: Rate) {
        let (span, rate) = (u128::from(now.since(since).0), self.rate(state).0.unsigned_abs());
        let used = micro(Ru(used.0));
        let idle = u128::from(rate).saturating_sub(used);
        let filled = span * self.rate * (5 + self.factor) / u128::from(rate.max(1)) * idle;
        let left = (state.stored + filled).saturating_sub(used * span * 2 * (1 + self.factor));
        *state = WarmUpState { stored: left.min(self.most), free: u128::from(now.0) * self.rate };
    }

    /// A key of this policy that is as warm as another is of its own: as far on the way from cold to warm or, once warm, to
    /// an empty store; rounded up.
    pub fn as_warm_as(&self, other: &Self, state: &WarmUpState) -> WarmUpState {
        let above = state.stored.saturating_sub(other.threshold);
        let stored = if above > 0 {
            self.threshold + part(above, other.most - other.threshold, self.most - self.threshold)
        } else {
            part(state.stored, other.threshold, self.threshold)
        };
        WarmUpState { stored: stored.min(self.most), free: 0 }
    }

    /// A key with this much in store.
    pub fn with_stored(&self, stored: Ru) -> WarmUpState {
        WarmUpState { stored: (micro(stored) * self.shares()).min(self.most), free: 0 }
    }

    /// How much of the way from cold to warm a key has gone, in thousandths.
    pub fn warmth(&self, state: &WarmUpState) -> u32 {
        let left = state.stored.saturating_sub(self.threshold) * 1_000;
        1_000 - u32::try_from(left.div_ceil(self.most - self.threshold)).unwrap_or(1_000).min(1_000)
    }

    /// What a state has in store, in micro-RU, rounded up.
    pub(crate) fn stored_at_most(&self, state: &WarmUpState) -> Ru {
        Ru(i64::try_from(state.stored.div_ceil(self.shares())).unwrap_or(i64::MAX))
    }

    fn whole(&self, shares: u128) -> Ru {
        Ru(i64::try_from(shares / self.shares()).unwrap_or(i64::MAX))
    }

    /// What is in store at a moment, times the rate.
    fn refilled(&self, state: &WarmUpState, now: u128) -> u128 {
        let idle = now.saturating_sub(state.free);
        (state.stored + idle * (5 + self.factor)).min(self.most)
    }

    /// What taking `taken` costs beyond the full rate, with `stored` there: the integral of the slope, in millionths of
    /// a micro-RU, rounded up.
    fn extra(&self, stored: u128, taken: u128) -> u128 {
        let from = stored.saturating_sub(self.threshold);
        let cold = taken.min(from);
        if cold == 0 {
            return 0;
        }
        let heights = (from + (from - cold) + (1 << self.coarse) - 1) >> self.coarse;
        self.divisor.divide_up((self.factor - 1) * cold * heights)
    }
}

/// The same part of `whole` as `part` is of `of`, rounded up.
fn part(part: u128, of: u128, whole: u128) -> u128 {
    // Coarse by so much, the products below fit.
    let by = (u128::BITS - of.leading_zeros()).saturating_sub(BITS);
    let (part, of) = (part.div_ceil(1 << by), (of >> by).max(1));
    whole / of * part + (whole % of * part).div_ceil(of)
}

impl Policy for WarmUp {
    type State = WarmUpState;

    fn fresh(&self) -> Self::State {
        WarmUpState { stored: self.most, free: 0 }
    }

    fn decide(&self, state: &mut Self::State, now: Time, cost: Ru) -> Verdict {
        if cost > Ru::MAX {
            return Verdict::Never;
        }
        let now = u128::from(now.0) * self.rate;
        if now < state.free {
            return Verdict::retry_at(state.free.div_ceil(self.rate));
        }
        let (stored, taken) = (self.refilled(state, now), fine(cost) * 2 * (1 + self.factor));
        let free = now + fine(cost) + self.extra(stored, taken);
        *state = WarmUpState { stored: stored.saturating_sub(taken), free };
        Verdict::Admit
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_product_divides_as_a_division_does(of: u128, low in 0..128_u32, by in 1..=u128::MAX, small in 0..128_u32) {
            let (of, by) = (of >> low, (by >> small).max(1));
            prop_assert_eq!(Divisor::new(by).divide_up(of), of.div_ceil(by));
        }
    }
}
