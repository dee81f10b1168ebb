//! Dates as files write them, in seconds since 1970.

use jiff::civil::{Date, date};

const EPOCH: Date = date(1970, 1, 1);

/// Names of months in access logs.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `2026-01-31T23:59:58Z`, with a space in place of the T, and without the Z; UTC.
pub(super) fn iso(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' '])?;
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    if date.next().is_some() {
        return None;
    }
    u64::try_from(seconds(year, month, day, time)?).ok()
}

/// `31/Jan/2026:23:59:58 +0100`.
pub(super) fn of_log(text: &str) -> Option<u64> {
    let (moment, zone) = text.split_once(' ')?;
    let (date, time) = moment.split_once(':')?;
    let mut date = date.split('/');
    let day = number(date.next()?, 2)?;
    let month = date.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let year = number(date.next()?, 4)?;
    let (sign, zone) = zone.split_at_checked(1)?;
    let (hours, minutes) = zone.split_at_checked(2)?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    if date.next().is_some() || hours > 23 || minutes > 59 {
        return None;
    }
    let east = (hours * 60 + minutes) * 60;
    let local = seconds(year, i64::try_from(month).ok()?, day, time)?;
    u64::try_from(match sign {
        "+" => local - east,
        "-" => local + east,
        _ => return None,
    })
    .ok()
}

/// So many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn seconds(year: i64, month: i64, day: i64, time: &str) -> Option<i64> {
    let date = Date::new(year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?).ok()?;
    let days = date.duration_since(EPOCH).as_hours() / 24;
    let mut parts = time.split(':');
    let (hour, minute, second) =
        (number(parts.next()?, 2)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    // A leap second is the one after it.
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::utc_text;

    #[test]
    fn dates_are_what_the_clock_writes() {
        for unix_s in (0..4_000_000_000_u64).step_by(86_399 * 7) {
            let text = utc_text(unix_s * 1_000);
            assert_eq!(iso(&text), Some(unix_s), "{text}");
            assert_eq!(iso(&text.replace(' ', "T")), Some(unix_s));
        }
        assert_eq!(of_log("29/Feb/2000:13:34:56 +0100"), Some(951_827_696));
        assert_eq!(of_log("29/Feb/2000:07:04:56 -0530"), Some(951_827_696));
        for (number, month) in (1..).zip(MONTHS) {
            let of = iso(&format!("2026-{number:02}-01T23:59:58Z"));
            assert!(of.is_some() && of_log(&format!("01/{month}/2026:23:59:58 +0000")) == of, "{month}");
        }
        // A leap second is the one behind it, and a zone may be the whole day but a minute away.
        assert_eq!(iso("2016-12-31T23:59:60"), Some(1_483_228_800));
        assert_eq!(of_log("31/Dec/2016:23:59:60 +2359"), Some(1_483_228_800 - 86_340));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "2001-02-29T00:00:00Z",
            "2001-13-01T00:00:00Z",
            "2001-1-01T00:00:00Z",
            "2001-01-01T24:00:00Z",
            "2001-01-01T00:60:00Z",
            "2001-01-01T00:00:61Z",
            "2001-01-01T00:00:00:00Z",
            "2001-01-01-01T00:00:00Z",
            "2001-00-01T00:00:00Z",
            "2001-01-01",
            "1969-12-31T23:59:59Z",
            "",
        ] {
            assert_eq!(iso(text), None, "{text}");
        }
        for text in [
            "29/Feb/2001:00:00:00 +0000",
            "01/Foo/2001:00:00:00 +0000",
            "01/Jan/2001:00:00:00",
            "01/Jan/2001:00:00:00 0000",
            "01/Jan/2001:00:00:00 +2400",
            "01/Jan/2001:00:00:00 -0060",
            "01/Jan/1970:00:00:00 +0001",
        ] {
            assert_eq!(of_log(text), None, "{text}");
        }
    }
}
