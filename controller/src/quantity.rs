//! Quantities as people write them: rates, amounts and durations with their unit in the text.
//!
//! Rates and amounts are decimals exact to a millionth ("0.5", "2000", "2000 RU/s", "10 RU"); durations are a decimal
//! and a unit ("5s", "100ms", "1.5s", "250us", "2m", "1h"). Parsing works on digits, never through a float, so that the
//! written value is enforced exactly. Signs, exponents, "NaN" and "inf" are refused.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_core::units::{MICRO, Rate, Ru, RuTotal, Span};
use utoipa::ToSchema;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is not a decimal with the expected unit.
    #[error("{text:?} is not {expected}")]
    Malformed {
        /// The text, cut to a readable length.
        text: String,
        /// The expected form, with an example.
        expected: &'static str,
    },
    /// The text has more digits than can be kept exactly.
    #[error("{text:?} is finer than a millionth; write at most 6 digits after the point")]
    TooFine {
        /// The text.
        text: String,
    },
    /// The value is out of range.
    #[error("{text:?} is out of range: {min} to {max}")]
    OutOfRange {
        /// The text.
        text: String,
        /// Smallest value allowed.
        min: String,
        /// Largest value allowed.
        max: String,
    },
}

const RATE: &str = "a rate such as \"2000\", \"0.5\" or \"2000 RU/s\"";
const LIMIT: &str = "a rate such as \"2000\", \"0.5\" or \"2000 RU/s\", or \"unlimited\"";
const AMOUNT: &str = "an amount such as \"10\", \"0.5\" or \"10 RU\"";
const SPAN: &str = "a duration such as \"5s\", \"100ms\" or \"1.5s\"";

/// A counter in JSON: a number, and from 2^53 on, where readers who take numbers for doubles would round it, its digits
/// as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = u64)]
pub struct Count(pub u128);

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(self.0) {
            Ok(number) if number < 1 << f64::MANTISSA_DIGITS => serializer.serialize_u64(number),
            _ => serializer.collect_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Self(number.into())),
            Written::Text(text) => text.parse().map(Self).map_err(D::Error::custom),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A positive rate, up to [`Rate::MAX`].
pub fn parse_rate(text: &str) -> Result<Rate, QuantityError> {
    positive_rate(text, RATE)
}

/// A positive rate, or "unlimited" for `None`. An empty text is an error: an unset variable must not lift a limit.
pub fn parse_limit(text: &str) -> Result<Option<Rate>, QuantityError> {
    match text.trim() {
        word if word.eq_ignore_ascii_case("unlimited") => Ok(None),
        _ => positive_rate(text, LIMIT).map(Some),
    }
}

/// An amount from zero to [`Ru::MAX`].
pub fn parse_amount(text: &str) -> Result<Ru, QuantityError> {
    let micro = micros(text, without_unit(text, "RU"), AMOUNT)?;
    let amount = whole(micro).map(Ru).filter(|amount| *amount <= Ru::MAX);
    amount.ok_or_else(|| out_of_range(text, "0 RU".to_owned(), Ru::MAX.to_string()))
}

/// A duration; the caller checks its range.
pub fn parse_span(text: &str) -> Result<Span, QuantityError> {
    let trimmed = text.trim();
    let unit_at = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at_checked(unit_at).unwrap_or((trimmed, ""));
    let unit_us: u128 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return Err(malformed(text, SPAN)),
    };
    let beyond = || out_of_range(text, "0us".to_owned(), format!("{}us", u64::MAX));
    let micro = micros(text, number.trim_end(), SPAN)?.ok_or_else(beyond)?;
    let (us, rest) = (micro * unit_us / 1_000_000, micro * unit_us % 1_000_000);
    if rest != 0 {
        return Err(QuantityError::TooFine { text: cut(text) });
    }
    u64::try_from(us).map(Span).map_err(|_| beyond())
}

/// A rate without its unit, as the API shows it.
pub fn rate_text(rate: Rate) -> String {
    rate.number().to_string()
}

/// An optional limit, as the API shows it.
pub fn limit_text(rate: Option<Rate>) -> String {
    rate.map_or_else(|| "unlimited".to_owned(), rate_text)
}

/// An amount without its unit, as the API shows it.
pub fn amount_text(amount: Ru) -> String {
    amount.number().to_string()
}

/// A total without its unit, as the API shows it.
pub fn total_text(total: RuTotal) -> String {
    total.number().to_string()
}

fn positive_rate(text: &str, expected: &'static str) -> Result<Rate, QuantityError> {
    let micro = micros(text, without_unit(text, "RU/s"), expected)?;
    let rate = whole(micro).map(Rate).filter(|rate| Rate(1) <= *rate && *rate <= Rate::MAX);
    rate.ok_or_else(|| out_of_range(text, Rate(1).to_string(), Rate::MAX.to_string()))
}

fn without_unit<'t>(text: &'t str, unit: &str) -> &'t str {
    let trimmed = text.trim();
    let start = trimmed.len().saturating_sub(unit.len());
    match trimmed.split_at_checked(start) {
        Some((number, tail)) if tail.eq_ignore_ascii_case(unit) => number.trim_end(),
        _ => trimmed,
    }
}

fn whole(micro: Option<u128>) -> Option<i64> {
    i64::try_from(micro?).ok()
}

/// Millionths of a plain decimal; `None` for one that is beyond every range: below zero, or too long to count with.
fn micros(text: &str, number: &str, expected: &'static str) -> Result<Option<u128>, QuantityError> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        let signed =
            number.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if signed && number.parse::<f64>().is_ok_and(f64::is_finite) {
            return Ok(None);
        }
        return Err(malformed(text, expected));
    }
    let part = part.trim_end_matches('0');
    if part.len() > 6 {
        return Err(QuantityError::TooFine { text: cut(text) });
    }
    let whole = whole.trim_start_matches('0');
    // Longer numbers are far above every limit, and would overflow the arithmetic below.
    if whole.len() > 20 {
        return Ok(None);
    }
    let whole: u128 =
        if whole.is_empty() { 0 } else { whole.parse().map_err(|_| malformed(text, expected))? };
    let part: u128 = format!("{part:0<6}").parse().map_err(|_| malformed(text, expected))?;
    Ok(Some(whole * u128::from(MICRO.unsigned_abs()) + part))
}

fn malformed(text: &str, expected: &'static str) -> QuantityError {
    QuantityError::Malformed { text: cut(text), expected }
}

fn out_of_range(text: &str, min: String, max: String) -> QuantityError {
    QuantityError::OutOfRange { text: cut(text), min, max }
}

/// The start of a text, so that an error never repeats megabytes.
pub fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact_to_a_millionth() {
        for (text, micro) in [
            ("0.5", 500_000),
            ("2000", 2_000_000_000),
            (" 2000 RU/s ", 2_000_000_000),
            ("2000ru/s", 2_000_000_000),
            ("0.000001", 1),
            ("1000000000", Rate::MAX.0),
            ("007.10", 7_100_000),
            ("1.0000000", 1_000_000),
        ] {
            assert_eq!(parse_rate(text), Ok(Rate(micro)), "{text}");
        }
    }

    #[test]
    fn bad_rates_are_refused() {
        for text in [
            "",
            " ",
            "0",
            "0.0",
            "-1",
            "-0.5",
            "NaN",
            "inf",
            "1e3",
            "+5",
            "0x10",
            "1,000",
            ".5",
            "5.",
            "5 RU",
            "RU/s",
            "1 000",
            "1000000000.000001",
            "99999999999999999999999999999999",
            "0.0000001",
            "٣",
            "2000 RU/s RU/s",
            "\0",
        ] {
            let error = parse_rate(text).unwrap_err().to_string();
            assert!(error.contains("is "), "{text}: {error}");
        }
    }

    #[test]
    fn limits_amounts_and_spans() {
        assert_eq!(parse_limit("Unlimited"), Ok(None));
        assert!(parse_limit("").is_err() && parse_limit(" ").is_err());
        assert_eq!(parse_limit("3"), Ok(Some(Rate::whole(3))));
        assert_eq!(parse_amount("0"), Ok(Ru::ZERO));
        assert_eq!(parse_amount("1.5 RU"), Ok(Ru(1_500_000)));
        assert!(parse_amount("1000000000001").is_err());
        for (text, us) in
            [("5s", 5_000_000), ("100ms", 100_000), ("1.5s", 1_500_000), ("2 m", 120_000_000), ("7us", 7)]
        {
            assert_eq!(parse_span(text), Ok(Span(us)), "{text}");
        }
        for text in ["5", "s", "", "-5s", "5 sec", "0.5us", "1e3s", "5S"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_told_the_range_of_its_own_kind() {
        let long = "9".repeat(30);
        for (said, range) in [
            (parse_rate("-1").unwrap_err(), "0.000001 RU/s to 1000000000 RU/s"),
            (parse_rate(&long).unwrap_err(), "0.000001 RU/s to 1000000000 RU/s"),
            (parse_limit("-1 RU/s").unwrap_err(), "0.000001 RU/s to 1000000000 RU/s"),
            (parse_amount("-0.5 RU").unwrap_err(), "0 RU to 1000000000000 RU"),
            (parse_amount(&long).unwrap_err(), "0 RU to 1000000000000 RU"),
            (parse_span("-5s").unwrap_err(), "0us to 18446744073709551615us"),
            (parse_span(&format!("{long}h")).unwrap_err(), "0us to 18446744073709551615us"),
            (parse_span("18446744073709551616us").unwrap_err(), "0us to 18446744073709551615us"),
        ] {
            let said = said.to_string();
            assert!(said.ends_with(&format!("is out of range: {range}")), "{said}");
        }
        assert_eq!(parse_span("18446744073709551615us"), Ok(Span(u64::MAX)));
    }

    #[test]
    fn texts_round_trip() {
        for micro in [1, 500_000, 1_000_000, 123_456_789, Rate::MAX.0] {
            assert_eq!(parse_rate(&rate_text(Rate(micro))), Ok(Rate(micro)));
            assert_eq!(parse_amount(&amount_text(Ru(micro))), Ok(Ru(micro)));
        }
        assert_eq!(limit_text(None), "unlimited");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,40}") {
            let _ = (parse_rate(&text), parse_amount(&text), parse_span(&text), parse_limit(&text));
        }
    }

    #[test]
    fn counters_are_numbers_while_a_double_has_them_exactly() {
        for (count, json) in [
            (0, "0"),
            ((1 << 53) - 1, "9007199254740991"),
            (1 << 53, "\"9007199254740992\""),
            (u128::from(u64::MAX) + 1, "\"18446744073709551616\""),
        ] {
            assert_eq!(serde_json::to_string(&Count(count)).unwrap(), json);
            assert_eq!(serde_json::from_str::<Count>(json).unwrap(), Count(count));
        }
        assert!(serde_json::from_str::<Count>("-1").is_err());
    }
}
