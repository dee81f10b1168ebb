//! Exact integer units of the core: request units, rates and time.
//!
//! `Ru` is micro-RU in 64 bits, `RuTotal` in 128, `Rate` is micro-RU per second, `Time` and `Span` are microseconds.
//! Time is always an argument. `Accrual` turns a rate and a span into RU and keeps the division remainder, so that
//! refilling in many small steps gives exactly what one large step gives.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Micro-RU in one RU, and microseconds in one second.
pub const MICRO: i64 = 1_000_000;

/// Request units, in micro-RU. Negative values are debt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ru(pub i64);

/// RU charged over any time, in micro-RU: 10^9 RU/s over 100 years are 3.2 * 10^24, and 2^128 is 3.4 * 10^38.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuTotal(pub u128);

/// Request units per second, in micro-RU per second. Never negative in a definition or a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub i64);

/// A moment on one process's monotonic clock, in microseconds. Moments of different clocks do not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Ru {
    /// No RU.
    pub const ZERO: Self = Self(0);
    /// The largest amount any field may hold: 10^12 RU.
    pub const MAX: Self = Self(1_000_000_000_000 * MICRO);

    /// Whole RU, saturating at [`Ru::MAX`].
    pub const fn whole(ru: i64) -> Self {
        Self(ru.saturating_mul(MICRO))
    }

    /// The larger of this and zero.
    #[must_use]
    #[inline]
    pub fn or_zero(self) -> Self {
        self.max(Self::ZERO)
    }

    /// Whether this is more than zero.
    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }
}

impl RuTotal {
    /// The nearest amount of 64 bits, for rates and bounds, which never need more.
    pub fn clamped(self) -> Ru {
        Ru(i64::try_from(self.0).unwrap_or(i64::MAX))
    }
}

impl From<Ru> for RuTotal {
    /// A debt becomes zero.
    #[inline]
    fn from(ru: Ru) -> Self {
        Self(u128::from(ru.or_zero().0.unsigned_abs()))
    }
}

impl Rate {
    /// No RU per second.
    pub const ZERO: Self = Self(0);
    /// The largest rate a definition may hold: 10^9 RU/s.
    pub const MAX: Self = Self(1_000_000_000 * MICRO);

    /// Whole RU per second.
    pub const fn whole(ru_per_sec: i64) -> Self {
        Self(ru_per_sec.saturating_mul(MICRO))
    }

    /// What this rate yields in `span`, rounded down.
    pub fn over(self, span: Span) -> Ru {
        if let Some(grains) = small_product(self.0, span) {
            return Ru(grains / MICRO);
        }
        Ru(clamp_i64(i128::from(self.0) * i128::from(span.0) / i128::from(MICRO)))
    }

    /// `self * numerator / denominator`, rounded down.
    #[must_use]
    #[inline]
    pub fn scale(self, numerator: i64, denominator: i64) -> Self {
        Self(scale(self.0, numerator, denominator))
    }

    /// The time in which this rate yields `amount`, rounded up; `None` when it never does.
    pub fn time_for(self, amount: Ru) -> Option<Span> {
        if amount.0 <= 0 {
            return Some(Span(0));
        }
        if self.0 <= 0 {
            return None;
        }
        // The common case of the division below.
        if let Some(grains) = amount.0.checked_mul(MICRO).and_then(|grains| grains.checked_add(self.0 - 1)) {
            return u64::try_from(grains / self.0).ok().map(Span);
        }
        let micros = (i128::from(amount.0) * i128::from(MICRO)).div_ceil_i128(i128::from(self.0));
        u64::try_from(micros).ok().map(Span)
    }
}

impl Ru {
    /// `self * numerator / denominator`, rounded down.
    #[must_use]
    #[inline]
    pub fn scale(self, numerator: i64, denominator: i64) -> Self {
        Self(scale(self.0, numerator, denominator))
    }
}

impl Time {
    /// `self + span`, saturating.
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The time from `earlier` to this; zero when the clock stepped back.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Milliseconds.
    pub const fn millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// Seconds.
    pub const fn secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000))
    }
}

/// `value * numerator / denominator` without overflow, rounded down and clamped to `i64`.
// Inlined because most denominators are constants, for which the compiler avoids the division.
#[inline]
fn scale(value: i64, numerator: i64, denominator: i64) -> i64 {
    debug_assert!(denominator > 0, "scale by a positive denominator");
    match value.checked_mul(numerator) {
        Some(product) => product.checked_div(denominator).unwrap_or_default(),
        None => scale_wide(value, numerator, denominator),
    }
}

#[cold]
fn scale_wide(value: i64, numerator: i64, denominator: i64) -> i64 {
    clamp_i64(
        (i128::from(value) * i128::from(numerator)).checked_div(i128::from(denominator)).unwrap_or_default(),
    )
}

/// `rate * span` if it fits: divisions of `i128` take several times as long and are seldom needed.
fn small_product(rate: i64, span: Span) -> Option<i64> {
    rate.checked_mul(i64::try_from(span.0).ok()?)
}

/// The nearest `i64`.
pub(crate) fn clamp_i64(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

trait DivCeil {
    fn div_ceil_i128(self, by: Self) -> Self;
}

impl DivCeil for i128 {
    fn div_ceil_i128(self, by: Self) -> Self {
        (self + by - 1) / by
    }
}

/// Exact accrual: carries the sub-micro-RU remainder of `rate * span` from one step to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Accrual {
    /// Micro-RU * microseconds / second not yet paid out, below [`MICRO`].
    remainder: i64,
}

impl Accrual {
    /// RU accrued at `rate` over `span`; carries the remainder.
    pub fn take(&mut self, rate: Rate, span: Span) -> Ru {
        if let Some(grains) =
            small_product(rate.0, span).and_then(|grains| grains.checked_add(self.remainder))
        {
            self.remainder = grains.rem_euclid(MICRO);
            return Ru(grains.div_euclid(MICRO));
        }
        let grains = i128::from(rate.0) * i128::from(span.0) + i128::from(self.remainder);
        self.remainder = clamp_i64(grains.rem_euclid(i128::from(MICRO)));
        Ru(clamp_i64(grains.div_euclid(i128::from(MICRO))))
    }

    /// The carried remainder, in millionths of a micro-RU.
    pub const fn remainder(&self) -> i64 {
        self.remainder
    }
}

macro_rules! arithmetic {
    ($($unit:ident),*) => {$(
        impl Add for $unit {
            type Output = Self;
            #[inline]
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl Sub for $unit {
            type Output = Self;
            #[inline]
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl AddAssign for $unit {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl SubAssign for $unit {
            #[inline]
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }
        impl std::iter::Sum for $unit {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::default(), Add::add)
            }
        }
    )*};
}
arithmetic!(Ru, RuTotal, Rate, Span);

/// Writes a micro quantity as a decimal without trailing zeros.
fn write_micro(f: &mut fmt::Formatter<'_>, micro: i64, unit: &str) -> fmt::Result {
    let sign = if micro < 0 { "-" } else { "" };
    write_magnitude(f, sign, u128::from(micro.unsigned_abs()), unit)
}

fn write_magnitude(f: &mut fmt::Formatter<'_>, sign: &str, micro: u128, unit: &str) -> fmt::Result {
    let million = u128::from(MICRO.unsigned_abs());
    let (whole, mut part) = (micro / million, micro % million);
    if part == 0 {
        return write!(f, "{sign}{whole}{unit}");
    }
    let mut digits = 6;
    while part % 10 == 0 {
        (part, digits) = (part / 10, digits - 1);
    }
    write!(f, "{sign}{whole}.{part:0digits$}{unit}")
}

macro_rules! number {
    ($($unit:ident)*) => {$(
        impl $unit {
            /// The number alone, for a place that shows the unit already.
            pub fn number(self) -> impl fmt::Display {
                fmt::from_fn(move |f| write_micro(f, self.0, ""))
            }
        }
    )*};
}
number!(Ru Rate);

impl RuTotal {
    /// The number alone, for a place that shows the unit already.
    pub fn number(self) -> impl fmt::Display {
        fmt::from_fn(move |f| write_magnitude(f, "", self.0, ""))
    }
}

impl fmt::Display for RuTotal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_magnitude(f, "", self.0, " RU")
    }
}

impl fmt::Display for Ru {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_micro(f, self.0, " RU")
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_micro(f, self.0, " RU/s")
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us if us >= 1_000_000 => write_micro(f, i64::try_from(us).unwrap_or(i64::MAX), "s"),
            us if us % 1_000 == 0 => write!(f, "{}ms", us / 1_000),
            us => write!(f, "{us}us"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accrual_in_small_steps_equals_one_large_step() {
        for rate in [1, 7, 999_999, 333_333_333, Rate::MAX.0] {
            let mut accrual = Accrual::default();
            let stepped: Ru = (0..1_000_u64).map(|i| accrual.take(Rate(rate), Span(i * 37))).sum();
            let whole: u64 = (0..1_000_u64).map(|i| i * 37).sum();
            let mut once = Accrual::default();
            assert_eq!(stepped, once.take(Rate(rate), Span(whole)));
            assert_eq!(accrual, once);
        }
    }

    #[test]
    fn time_for_rounds_up_so_that_the_amount_is_there() {
        for (rate, amount) in [(1, 1), (3, 10), (999_999, 5_000_001), (Rate::MAX.0, 1)] {
            let span = Rate(rate).time_for(Ru(amount)).unwrap();
            assert!(Rate(rate).over(span) >= Ru(amount), "{rate} {amount} {span:?}");
        }
        assert_eq!(Rate::ZERO.time_for(Ru(1)), None);
        assert_eq!(Rate::ZERO.time_for(Ru(0)), Some(Span(0)));
    }

    #[test]
    fn small_and_large_products_are_divided_alike() {
        let wide =
            |value: i64, by: i64, of: i64| clamp_i64(i128::from(value) * i128::from(by) / i128::from(of));
        let values =
            [0, 1, 7, 999_999, 3_037_000_499, 3_037_000_500, i64::MAX / 3, i64::MAX, -1, -7, i64::MIN];
        for value in values {
            for by in [1, 2, 999_999, 3_037_000_500, i64::MAX] {
                for of in [1, 3, 1_000_000, i64::MAX] {
                    assert_eq!(Ru(value).scale(by, of), Ru(wide(value, by, of)), "{value} * {by} / {of}");
                }
                let span = Span(by.unsigned_abs());
                assert_eq!(Rate(value).over(span), Ru(wide(value, by, MICRO)), "{value} over {span}");
                if value > 0 {
                    let exact = (i128::from(by) * i128::from(MICRO)).div_ceil_i128(i128::from(value));
                    assert_eq!(Rate(value).time_for(Ru(by)), u64::try_from(exact).ok().map(Span));
                }
            }
        }
    }

    #[test]
    fn what_leaves_64_bits_stops_at_their_end() {
        assert_eq!([Ru(i64::MAX).scale(2, 1), Ru(i64::MIN).scale(2, 1)], [Ru(i64::MAX), Ru(i64::MIN)]);
        assert_eq!(
            [Rate(i64::MAX), Rate(i64::MIN)].map(|rate| rate.over(Span(u64::MAX))),
            [Ru(i64::MAX), Ru(i64::MIN)]
        );
    }

    #[test]
    fn units_print_as_decimals() {
        for (text, shown) in [
            (Ru(0).to_string(), "0 RU"),
            (Ru(1_500_000).to_string(), "1.5 RU"),
            (Ru(-1).to_string(), "-0.000001 RU"),
            (Rate::whole(20).to_string(), "20 RU/s"),
            (Ru(-1_020_000).number().to_string(), "-1.02"),
            (Rate::whole(20).number().to_string(), "20"),
            (RuTotal(u128::from(u64::MAX) * 1_000_000 + 10).to_string(), "18446744073709551615.00001 RU"),
            (RuTotal(3_500_000).number().to_string(), "3.5"),
            (Span::millis(100).to_string(), "100ms"),
            (Span(1_500_000).to_string(), "1.5s"),
            (Span(17).to_string(), "17us"),
        ] {
            assert_eq!(text, shown);
        }
    }
}
