//! A moment in a binary row.
//!
//! *Source*: MySQL "Binary Protocol Value", `MYSQL_TYPE_DATETIME`: its length, the year in two bytes, month, day, hour,
//! minute and second, and microseconds in four bytes.

/// The value for a text such as `2026-01-31 23:59:58.250`; `None` for any other.
pub(super) fn binary(text: &str) -> Option<[u8; 12]> {
    let (date, time) = text.split_once(' ')?;
    let (time, millis) = time.split_once('.').filter(|(_, millis)| millis.len() == 3)?;
    let [year, month, day] = numbers(date.split('-'))?;
    let [hour, minute, second] = numbers(time.split(':'))?;
    let micros = millis.parse::<u32>().ok()? * 1_000;
    let [low, high] = year.to_le_bytes();
    let [a, b, c, d] = micros.to_le_bytes();
    let small = |number: u16| u8::try_from(number).ok();
    Some([
        11,
        low,
        high,
        small(month)?,
        small(day)?,
        small(hour)?,
        small(minute)?,
        small(second)?,
        a,
        b,
        c,
        d,
    ])
}

/// Three numbers, and no more.
fn numbers<'t>(mut parts: impl Iterator<Item = &'t str>) -> Option<[u16; 3]> {
    let mut next = || parts.next()?.parse().ok();
    let numbers = [next()?, next()?, next()?];
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_servers_write_it() {
        let year = 2026_u16.to_le_bytes();
        let micros = 250_000_u32.to_le_bytes();
        let expected = [&[11][..], &year, &[1, 31, 23, 59, 58], &micros].concat();
        assert_eq!(binary("2026-01-31 23:59:58.250").map(Vec::from), Some(expected));
        for text in [
            "",
            "2026-01-31",
            "2026-01-31 23:59:58",
            "2026-01-31 23:59:58.25",
            "2026-01-31 23:59:58.x50",
            "2026-01 23:59:58.250",
            "2026-01-31-1 23:59:58.250",
            "2026-300-31 23:59:58.250",
            "70000-01-31 23:59:58.250",
            "UNLIMITED",
        ] {
            assert_eq!(binary(text), None, "{text}");
        }
    }
}
