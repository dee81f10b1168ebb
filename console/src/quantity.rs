//! Amounts, rates and times as people read them: cut to what matters, with their unit.

use maud::{Markup, html};
use tidegate_core::units::MICRO;

/// A decimal text of the API in millionths: "0.5" is 500,000. What is no number, such as "unlimited", is `None`.
pub fn micro(decimal: &str) -> Option<i128> {
    let (sign, digits) = decimal.strip_prefix('-').map_or((1, decimal), |rest| (-1, rest));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 30 || part.len() > 6 || !all_digits(whole) || !all_digits(part) {
        return None;
    }
    let whole: i128 = whole.parse().ok()?;
    let part: i128 = format!("{part:0<6}").parse().ok()?;
    Some(sign * (whole * i128::from(MICRO) + part))
}

/// Millionths with three digits that count, or all whole digits when there are more: 1,234; 12.3; 0.05.
pub fn short(micro: i128) -> String {
    let million = i128::from(MICRO);
    let (sign, size) = if micro < 0 { ("-", micro.saturating_neg()) } else { ("", micro) };
    let places = match size {
        size if size >= 100 * million => 0,
        size if size >= 10 * million => 1,
        size if size >= million / 10 => 2,
        _ => 4,
    };
    // Rounded to the last place that is shown.
    let unit = 10_i128.pow(6 - places);
    let size = size.saturating_add(unit / 2) / unit * unit;
    let (whole, part) = (size / million, size % million);
    let text = format!("{sign}{}", grouped(whole.unsigned_abs()));
    let part: String = format!("{part:06}").chars().take(places.try_into().unwrap_or(6)).collect();
    let part = part.trim_end_matches('0');
    if part.is_empty() { text } else { format!("{text}.{part}") }
}

/// A count with its thousands apart.
pub fn grouped(count: u128) -> String {
    let digits = count.to_string();
    let first = digits.len() % 3;
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate of the API as it is shown: "unlimited", or RU/s.
pub fn rate(text: &str) -> String {
    match micro(text) {
        Some(value) => format!("{} RU/s", short(value)),
        None if text.is_empty() => "–".to_owned(),
        None => text.to_owned(),
    }
}

/// An amount of the API as it is shown.
pub fn amount(text: &str) -> String {
    match micro(text) {
        Some(value) => format!("{} RU", short(value)),
        None if text.is_empty() => "–".to_owned(),
        None => text.to_owned(),
    }
}

/// A decimal of the API as it is shown, in a unit that stands behind it.
pub fn number(text: &str) -> String {
    micro(text).map_or_else(|| text.to_owned(), short)
}

/// A share in millionths, as hundredths.
pub fn percent(ppm: u64) -> String {
    format!("{} %", short(i128::from(ppm) * 100))
}

/// A length of time, in its two largest units.
pub fn span(us: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    if us < 1_000 {
        return format!("{us} µs");
    }
    if us < 10_000_000 {
        let ms = us / 1_000;
        return if ms < 1_000 {
            format!("{ms} ms")
        } else {
            format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
        };
    }
    let seconds = us / 1_000_000;
    let at = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(3);
    let shown = UNITS.iter().skip(at).take(2).scan(seconds, |left, (unit, name)| {
        let count = *left / unit;
        *left %= unit;
        Some((count, name))
    });
    shown
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Bytes in the largest unit of which there is one.
pub fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(size, _)| count >= *size) {
        Some((size, name)) => {
            format!("{} {name}", short(i128::from(count) * i128::from(MICRO) / i128::from(*size)))
        }
        None => format!("{count} B"),
    }
}

/// A moment, in UTC; the script writes it in the viewer's zone.
pub fn moment(unix_ms: u64) -> Markup {
    let text = utc(unix_ms);
    html! { time datetime=(text) { (text.replace('T', " ").replace('Z', " UTC")) } }
}

/// A moment as ISO 8601 in UTC, to the second.
pub fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

/// The day of the calendar, this many days after 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years that begin in March, so that a leap day is the last one of its year; in spans of 400 years, which are equal.
    const CYCLE: u64 = 146_097;
    let day = days + 719_468;
    let (cycle, day) = (day / CYCLE, day % CYCLE);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let (calendar_month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + later, calendar_month, day - first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_exactly_or_not_at_all() {
        for (text, value) in [
            ("0", Some(0)),
            ("12", Some(12_000_000)),
            ("0.000001", Some(1)),
            ("-3.5", Some(-3_500_000)),
            ("1000000000000.123456", Some(1_000_000_000_000_123_456)),
            ("unlimited", None),
            ("", None),
            ("-", None),
            (".5", None),
            ("1e3", None),
            ("1.2345678", None),
            ("١", None),
        ] {
            assert_eq!(micro(text), value, "{text}");
        }
    }

    #[test]
    fn numbers_keep_three_digits_that_count() {
        for (text, shown) in [
            ("0", "0"),
            ("0.00004", "0"),
            ("0.00005", "0.0001"),
            ("0.0512", "0.0512"),
            ("0.125", "0.13"),
            ("1.005", "1.01"),
            ("9.999", "10"),
            ("12.34", "12.3"),
            ("99.96", "100"),
            ("1234.5", "1,235"),
            ("1000000", "1,000,000"),
            ("-12.5", "-12.5"),
        ] {
            assert_eq!(short(micro(text).unwrap()), shown, "{text}");
        }
    }

    #[test]
    fn times_have_two_units() {
        for (us, shown) in [
            (7, "7 µs"),
            (1_500, "1 ms"),
            (1_500_000, "1.5 s"),
            (59_000_000, "59 s"),
            (60_000_000, "1 min"),
            (3_661_000_000, "1 h 1 min"),
            (90_061_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(us), shown);
        }
        let shares = [0, 1, 4_250, 125_000, 999_999, 1_000_000].map(percent);
        assert_eq!(shares, ["0 %", "0.0001 %", "0.43 %", "12.5 %", "100 %", "100 %"]);
        assert_eq!((bytes(1_023), bytes(1 << 20)), ("1023 B".to_owned(), "1 MiB".to_owned()));
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds * 1_000), text);
        }
    }
}
