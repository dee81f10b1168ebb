//! Durations as TiDB writes them: Go's, such as `60s`, `1h30m`, `1.5s` or `250ms`, and days.
//!
//! In: a number and a unit, repeated. Out: microseconds, exact; a remainder below a microsecond is refused. Units are
//! `ns`, `us`, `µs`, `ms`, `s`, `m`, `h` and, beyond Go, `d`.
//!
//! *Source*: the documentation of Go's `time.ParseDuration` and `Duration.String`. Signs are refused, since nothing
//! here lasts less than nothing.

use crate::error::cut;

/// Units with their length in nanoseconds; a unit stands before those that are its beginning.
const UNITS: [(&str, u128); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text is not numbers with units.
    #[error("{0:?} is not a duration; write it like '60s', '1h30m', '250ms' or '7d'")]
    Malformed(String),
    /// Finer than can be kept.
    #[error("{0:?} is finer than a microsecond; leave out the rest")]
    TooFine(String),
    /// Longer than can be kept.
    #[error("{0:?} is longer than can be kept; write at most 30d")]
    TooLong(String),
}

/// Reads a duration, in microseconds.
pub fn parse_duration(text: &str) -> Result<u64, DurationError> {
    let malformed = || DurationError::Malformed(cut(text));
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(malformed());
    }
    if rest == "0" {
        return Ok(0);
    }
    let mut total_us: u64 = 0;
    while !rest.is_empty() {
        let ends = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(malformed)?;
        let (number, tail) = rest.split_at_checked(ends).ok_or_else(malformed)?;
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(unit).ok_or_else(malformed)?;
        let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
        let part_us = micros(number, *unit_ns, text)?;
        total_us = total_us.checked_add(part_us).ok_or_else(|| DurationError::TooLong(cut(text)))?;
        rest = tail;
    }
    Ok(total_us)
}

/// `number`, of digits and points, units of `unit_ns`, in microseconds.
fn micros(number: &str, unit_ns: u128, text: &str) -> Result<u64, DurationError> {
    let malformed = || DurationError::Malformed(cut(text));
    let too_long = || DurationError::TooLong(cut(text));
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if part.contains('.') || (whole.is_empty() && part.is_empty()) {
        return Err(malformed());
    }
    let part = part.trim_end_matches('0');
    // A unit of a day has 86,400 * 10^9 nanoseconds: more digits than this cannot come to whole microseconds.
    if part.len() > 17 {
        return Err(DurationError::TooFine(cut(text)));
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() > 20 {
        return Err(too_long());
    }
    let number = |digits: &str| if digits.is_empty() { Ok(0) } else { digits.parse::<u128>() };
    let whole = number(whole).map_err(|_| malformed())?;
    let digits = u32::try_from(part.len()).map_err(|_| malformed())?;
    let part = number(part).map_err(|_| malformed())?;
    let scale = 10_u128.pow(digits);
    // Below 10^20 * 10^14 and 10^17 * 10^14: far from the end of 128 bits.
    let (part_ns, rest) = (part * unit_ns / scale, part * unit_ns % scale);
    let total_ns = whole * unit_ns + part_ns;
    if rest != 0 || !total_ns.is_multiple_of(1_000) {
        return Err(DurationError::TooFine(cut(text)));
    }
    u64::try_from(total_ns / 1_000).map_err(|_| too_long())
}

/// Microseconds as Go prints them: `1h0m0s`, `10m0s`, `1.5s`, `250ms`, `7us`, `0s`.
pub fn duration_text(us: u64) -> String {
    let decimal = |value: u64, per: u64, digits: usize| {
        let (whole, part) = (value / per, value % per);
        if part == 0 {
            return whole.to_string();
        }
        let part = format!("{part:0digits$}");
        format!("{whole}.{}", part.trim_end_matches('0'))
    };
    match us {
        0 => "0s".to_owned(),
        1..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{}ms", decimal(us, 1_000, 3)),
        _ => {
            let (minutes, rest) = (us / 60_000_000, us % 60_000_000);
            let seconds = decimal(rest, 1_000_000, 6);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_exact() {
        for (text, us) in [
            ("60s", 60_000_000),
            ("10m", 600_000_000),
            ("1h30m", 5_400_000_000),
            ("250ms", 250_000),
            ("1.5s", 1_500_000),
            (".5s", 500_000),
            ("1.s", 1_000_000),
            ("7us", 7),
            ("7µs", 7),
            ("3000ns", 3),
            ("7d", 604_800_000_000),
            ("1h0m0.5s", 3_600_500_000),
            ("1h.5s", 3_600_500_000),
            ("0.00000000625d", 540),
            (" 1s ", 1_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(us), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "", " ", "5", "s", "-5s", "+5s", "5 s", "5S", "1e3s", "1.2.3s", ".s", "5sec", "1h30", "٣s", "1hm",
        ] {
            assert!(matches!(parse_duration(text), Err(DurationError::Malformed(_))), "{text}");
        }
        for text in [
            "1ns",
            "0.5us",
            "0.0000001s",
            "0.0000000001s",
            "1.0000000001s",
            "0.000000000001d",
            "0.0000000000000000001h",
        ] {
            assert!(matches!(parse_duration(text), Err(DurationError::TooFine(_))), "{text}");
        }
        let (long, longer) = (format!("{}d", "9".repeat(30)), format!("{}ns", "9".repeat(60)));
        for text in [
            "99999999999999999999999h",
            "99999999999999999999d",
            "1000000000000d",
            "18446744073709551615us1us",
            &long,
            &longer,
        ] {
            assert!(matches!(parse_duration(text), Err(DurationError::TooLong(_))), "{text}");
        }
    }

    #[test]
    fn durations_print_as_go_does() {
        for (us, text) in [
            (0, "0s"),
            (7, "7us"),
            (1_500, "1.5ms"),
            (250_000, "250ms"),
            (20_000_000, "20s"),
            (1_500_000, "1.5s"),
            (600_000_000, "10m0s"),
            (3_600_000_000, "1h0m0s"),
            (86_400_000_000, "24h0m0s"),
        ] {
            assert_eq!(duration_text(us), text);
        }
    }

    proptest! {
        #[test]
        fn printed_durations_are_read_back(us in any::<u64>()) {
            prop_assert_eq!(parse_duration(&duration_text(us)), Ok(us));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = parse_duration(&text);
        }
    }
}
