//! Moments as text, in UTC.

/// Milliseconds since 1970 as `2026-01-31 23:59:58.250`, the form both protocols show.
pub(crate) fn timestamp_text(unix_ms: u64) -> String {
    format!("{}.{:03}", date_text(unix_ms / 1_000), unix_ms % 1_000)
}

/// Whether a text has that form.
pub(crate) fn is_timestamp(text: &str) -> bool {
    const BEHIND_THE_YEAR: &[u8] = b"-00-00 00:00:00.000";
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let fits = |(byte, form): (u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form };
    text.len() - rest.len() >= 4
        && rest.len() == BEHIND_THE_YEAR.len()
        && rest.bytes().zip(BEHIND_THE_YEAR).all(fits)
}

/// Seconds since 1970 as `2026-01-31 23:59:58`.
pub fn date_text(unix_s: u64) -> String {
    let (days, of_day) = (unix_s / 86_400, unix_s % 86_400);
    // Days to a civil date by eras of 400 years, counted from 1 March of year 0.
    let shifted = days.saturating_add(719_468);
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era.saturating_mul(400) + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_827_696_007, "2000-02-29 12:34:56.007"),
            (1_767_225_599_999, "2025-12-31 23:59:59.999"),
        ] {
            assert_eq!(timestamp_text(ms), text);
        }
    }

    /// Beside a calendar that is walked day by day, past a year of 400 that leaps and years of 100 that do not.
    #[test]
    fn every_day_of_five_centuries_is_that_of_the_calendar() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..190_000 {
            let date = format!("{year}-{month:02}-{day:02} 23:59:59");
            assert_eq!(date_text(days * 86_400 + 86_399), date);
            let leaps = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 => 28 + i32::from(leaps),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, day) if day == last => (year, month + 1, 1),
                (_, day) => (year, month, day + 1),
            };
        }
        assert!(year > 2480, "{year}");
    }
}
