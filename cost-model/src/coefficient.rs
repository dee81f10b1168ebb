//! An exact price: request units per unit of one resource, as a fraction in lowest terms.
//!
//! In: text, either a decimal ("0.125") or a fraction of whole numbers ("1/65536"). Out: RU per nanosecond, per
//! byte or per request. No float is involved, so that what an operator writes is what is charged and what is
//! printed again. The limits are chosen so that a price fits `i128` (see `price.rs`).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// RU per unit of a resource, in lowest terms. Never negative; zero is free of charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Coefficient {
    numerator: u64,
    denominator: u64,
}

/// Why a text or a pair of numbers is no coefficient.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CoefficientError {
    /// There is nothing in it.
    #[error("is empty; write a decimal such as 0.125, a fraction such as 1/65536, or 0 for free of charge")]
    Empty,
    /// Longer than [`Coefficient::MAX_TEXT`].
    #[error(
        "has {length} bytes of text, at most {} are read; write it as a fraction such as 1/65536",
        Coefficient::MAX_TEXT
    )]
    TooLong {
        /// Bytes of text.
        length: usize,
    },
    /// Below zero.
    #[error("`{text}` is negative; a resource can be free of charge (0) but not earn request units")]
    Negative {
        /// What was written.
        text: String,
    },
    /// NaN or infinite.
    #[error("`{text}` is not finite; write a decimal such as 0.125 or a fraction such as 1/65536")]
    NotFinite {
        /// What was written.
        text: String,
    },
    /// Anything else that is no number.
    #[error(
        "`{text}` is no number; write digits with at most one point, or two whole numbers around a slash"
    )]
    NotANumber {
        /// What was written.
        text: String,
    },
    /// A fraction over zero.
    #[error("`{numerator}/0` divides by zero; write 0 for free of charge")]
    ZeroDenominator {
        /// The upper number.
        numerator: u128,
    },
    /// Above [`Coefficient::MAX_NUMERATOR`] in lowest terms.
    #[error(
        "has the numerator {numerator} in lowest terms, at most {} is allowed; round it",
        Coefficient::MAX_NUMERATOR
    )]
    NumeratorTooLarge {
        /// The upper number, in lowest terms.
        numerator: u128,
    },
    /// Above [`Coefficient::MAX_DENOMINATOR`] in lowest terms.
    #[error(
        "has the denominator {denominator} in lowest terms, at most {} is allowed; round it",
        Coefficient::MAX_DENOMINATOR
    )]
    DenominatorTooLarge {
        /// The lower number, in lowest terms.
        denominator: u128,
    },
}

impl Coefficient {
    /// Free of charge.
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };
    /// One RU per unit.
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };
    /// Largest numerator, in lowest terms. Above it `u64::MAX` units times replicas would pass `i128`.
    pub const MAX_NUMERATOR: u64 = 1_000_000_000;
    /// Largest denominator, in lowest terms. Above it the sum of a part's three fractions would pass `i128`.
    pub const MAX_DENOMINATOR: u64 = 1_000_000_000_000;
    /// Longest text read, in bytes: room for both limits, a point and leading zeros.
    pub const MAX_TEXT: usize = 32;
    /// Digits after the point up to which a coefficient is printed as a decimal; a fraction is clearer beyond.
    const PRINTED_DECIMALS: u32 = 6;

    /// `numerator / denominator`, brought to lowest terms before the limits are applied.
    pub fn ratio(numerator: u64, denominator: u64) -> Result<Self, CoefficientError> {
        Self::lowest(u128::from(numerator), u128::from(denominator))
    }

    /// `1 / units`: one RU buys that many units. Zero units is read as one.
    pub(crate) const fn one_per(units: u32) -> Self {
        // Widening; `u64::from` is not const.
        Self { numerator: 1, denominator: if units == 0 { 1 } else { units as u64 } }
    }

    /// The upper number, at most [`Self::MAX_NUMERATOR`].
    pub const fn numerator(self) -> u64 {
        self.numerator
    }

    /// The lower number, 1 to [`Self::MAX_DENOMINATOR`].
    pub const fn denominator(self) -> u64 {
        self.denominator
    }

    /// Whether the resource is free of charge.
    pub const fn is_zero(self) -> bool {
        self.numerator == 0
    }

    fn lowest(numerator: u128, denominator: u128) -> Result<Self, CoefficientError> {
        let divisor = gcd(numerator, denominator);
        let (Some(upper), Some(lower)) = (numerator.checked_div(divisor), denominator.checked_div(divisor))
        else {
            return Err(CoefficientError::ZeroDenominator { numerator });
        };
        if lower == 0 {
            return Err(CoefficientError::ZeroDenominator { numerator });
        }
        let numerator = u64::try_from(upper)
            .ok()
            .filter(|value| *value <= Self::MAX_NUMERATOR)
            .ok_or(CoefficientError::NumeratorTooLarge { numerator: upper })?;
        let denominator = u64::try_from(lower)
            .ok()
            .filter(|value| *value <= Self::MAX_DENOMINATOR)
            .ok_or(CoefficientError::DenominatorTooLarge { denominator: lower })?;
        Ok(Self { numerator, denominator })
    }
}

impl Default for Coefficient {
    fn default() -> Self {
        Self::ZERO
    }
}

/// Greatest common divisor; of nought and nought it is nought.
fn gcd(mut a: u128, mut b: u128) -> u128 {
    while let Some(rest) = a.checked_rem(b) {
        (a, b) = (b, rest);
    }
    a
}

impl FromStr for Coefficient {
    type Err = CoefficientError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.is_empty() {
            return Err(CoefficientError::Empty);
        }
        if text.len() > Self::MAX_TEXT {
            return Err(CoefficientError::TooLong { length: text.len() });
        }
        let wrong = || refusal(text);
        if let Some((upper, lower)) = text.split_once('/') {
            return Self::lowest(digits(upper).ok_or_else(wrong)?, digits(lower).ok_or_else(wrong)?);
        }
        let Some((whole, decimals)) = text.split_once('.') else {
            return Self::lowest(digits(text).ok_or_else(wrong)?, 1);
        };
        let whole_value = digits(whole).ok_or_else(wrong)?;
        let decimal_value = digits(decimals).ok_or_else(wrong)?;
        // At most MAX_TEXT digits in all, so neither the power nor the sum passes u128.
        let scale = u32::try_from(decimals.len()).ok().and_then(|places| 10_u128.checked_pow(places));
        let scale = scale.ok_or_else(wrong)?;
        let value = whole_value.checked_mul(scale).and_then(|value| value.checked_add(decimal_value));
        Self::lowest(value.ok_or_else(wrong)?, scale)
    }
}

/// A number written in digits only: no sign, no exponent, no separator.
fn digits(text: &str) -> Option<u128> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// The most telling error for a text that is not made of digits.
fn refusal(text: &str) -> CoefficientError {
    let lower = text.to_ascii_lowercase();
    let magnitude = lower.trim_start_matches(['+', '-']);
    let text = text.to_owned();
    if ["nan", "inf", "infinity"].contains(&magnitude) {
        CoefficientError::NotFinite { text }
    } else if lower.starts_with('-')
        && magnitude.starts_with(|first: char| first.is_ascii_digit() || first == '.')
    {
        CoefficientError::Negative { text }
    } else {
        CoefficientError::NotANumber { text }
    }
}

impl fmt::Display for Coefficient {
    /// A decimal when at most six digits after the point hold it, else a fraction. Parsing gives the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = 10_u64.pow(Self::PRINTED_DECIMALS);
        let per_unit = scale.checked_div(self.denominator).unwrap_or_default();
        if per_unit * self.denominator != scale {
            return write!(f, "{}/{}", self.numerator, self.denominator);
        }
        let scaled = u128::from(self.numerator) * u128::from(per_unit);
        let (whole, part) = (scaled / u128::from(scale), scaled % u128::from(scale));
        if part == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{part:06}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_read_exactly_and_printed_in_one_form() {
        for (text, numerator, denominator, printed) in [
            ("0", 0, 1, "0"),
            ("0.000", 0, 1, "0"),
            ("0/7", 0, 1, "0"),
            ("1", 1, 1, "1"),
            ("0.125", 1, 8, "0.125"),
            (" 0.5 ", 1, 2, "0.5"),
            ("2/16", 1, 8, "0.125"),
            ("1/65536", 1, 65_536, "1/65536"),
            ("1/3000000", 1, 3_000_000, "1/3000000"),
            ("12.000001", 12_000_001, 1_000_000, "12.000001"),
            ("0.0000152587890625", 1, 65_536, "1/65536"),
            ("1000000000", 1_000_000_000, 1, "1000000000"),
            ("1/1000000000000", 1, 1_000_000_000_000, "1/1000000000000"),
            ("000000000000000000000000.5", 1, 2, "0.5"),
            ("000000000000000000000000000001.5", 3, 2, "1.5"),
        ] {
            let read: Coefficient = text.parse().unwrap();
            assert_eq!((read.numerator(), read.denominator()), (numerator, denominator), "{text}");
            assert_eq!(read.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn what_is_no_price_is_refused_with_a_remedy() {
        for (text, says) in [
            ("", "is empty; write a decimal"),
            ("  ", "is empty"),
            ("-1", "`-1` is negative; a resource can be free of charge"),
            ("-1/3", "is negative"),
            ("-.5", "is negative"),
            ("NaN", "`NaN` is not finite"),
            ("inf", "is not finite"),
            ("-Infinity", "is not finite"),
            ("1/0", "`1/0` divides by zero; write 0"),
            ("7/0", "`7/0` divides by zero"),
            ("0/0", "divides by zero"),
            ("1e-3", "is no number; write digits"),
            ("+1", "is no number"),
            ("1.", "is no number"),
            (".5", "is no number"),
            ("1.2.3", "is no number"),
            ("0.5/3", "is no number"),
            ("1/2/3", "is no number"),
            ("1_000", "is no number"),
            ("one", "`one` is no number"),
            ("-one", "`-one` is no number"),
            ("-", "`-` is no number"),
            ("1000000001", "numerator 1000000001 in lowest terms, at most 1000000000"),
            ("1/1000000000001", "denominator 1000000000001 in lowest terms, at most 1000000000000"),
            ("0.00000000000000000000000000000001", "has 34 bytes of text, at most 32"),
        ] {
            let error = text.parse::<Coefficient>().unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    /// White space around a text is none of its length.
    #[test]
    fn the_longest_text_may_stand_between_spaces() {
        let longest = format!("0.{}", "0".repeat(Coefficient::MAX_TEXT - 2));
        for text in [longest.clone(), format!("  {longest}\n"), format!("{:40}", "0")] {
            assert_eq!(text.parse(), Ok(Coefficient::ZERO), "{text:?}");
        }
        let error = format!(" {longest}0 ").parse::<Coefficient>().unwrap_err();
        assert_eq!(error, CoefficientError::TooLong { length: Coefficient::MAX_TEXT + 1 });
    }

    proptest! {
        #[test]
        fn printing_and_reading_give_the_same_value(
            upper in 0..=Coefficient::MAX_NUMERATOR, lower in 1..=Coefficient::MAX_DENOMINATOR,
        ) {
            let value = Coefficient::ratio(upper, lower).unwrap();
            prop_assert_eq!(value.to_string().parse::<Coefficient>().unwrap(), value);
            let same = u128::from(value.numerator()) * u128::from(lower)
                == u128::from(upper) * u128::from(value.denominator());
            prop_assert!(same);
        }

        #[test]
        fn decimals_are_read_exactly(whole in 0_u64..1_000, part in 0_u64..1_000_000) {
            let read: Coefficient = format!("{whole}.{part:06}").parse().unwrap();
            prop_assert_eq!(read, Coefficient::ratio(whole * 1_000_000 + part, 1_000_000).unwrap());
        }

        #[test]
        fn any_text_gives_a_value_or_an_error(text in ".{0,40}") {
            if let Ok(value) = text.parse::<Coefficient>() {
                prop_assert_eq!(value.to_string().parse::<Coefficient>().unwrap(), value);
            }
        }
    }
}
