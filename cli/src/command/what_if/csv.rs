//! Consumption in a CSV file: a line of names, then a line for each sample, in the order of time.

use tidegate_controller::quantity::parse_amount;
use tidegate_core::replay::Counted;
use tidegate_core::units::{Span, Time};

use super::date;

/// Moments beyond are milliseconds: in seconds they are after the year 5100.
const FARTHEST_S: u64 = 100_000_000_000;

/// Which column has what.
#[derive(Debug, Default)]
struct Columns {
    time: Option<usize>,
    ru: Option<usize>,
    operations: Option<usize>,
    refused: Option<usize>,
    length: Option<usize>,
}

impl Columns {
    /// And the names of those that are ignored.
    fn of(header: &[String]) -> Result<(Self, Vec<String>), String> {
        let (mut columns, mut ignored) = (Self::default(), Vec::new());
        for (at, name) in header.iter().enumerate() {
            let column = match name.trim().to_ascii_lowercase().as_str() {
                "time" | "timestamp" | "start_unix_s" => &mut columns.time,
                "ru" | "value" => &mut columns.ru,
                "operations" => &mut columns.operations,
                "refused" | "throttled" => &mut columns.refused,
                "length_s" => &mut columns.length,
                _ => {
                    ignored.push(format!("{name:?}"));
                    continue;
                }
            };
            if column.replace(at).is_some() {
                return Err(format!("line 1: two columns are {name:?}; leave one out"));
            }
        }
        if columns.time.is_none() || columns.ru.is_none() {
            let remedy = "name a column time (seconds since 1970, or 2026-01-31T23:59:58Z) and one ru; operations, refused \
                          and length_s may follow";
            return Err(format!("line 1 has no column \"time\" and \"ru\": {remedy}"));
        }
        Ok((columns, ignored))
    }
}

/// Samples, and the names of columns that are ignored.
///
/// # Errors
/// Names the line and the remedy.
pub(super) fn read(lines: &[String], every: Option<Span>) -> Result<(Vec<Counted>, Vec<String>), String> {
    let Some((header, lines)) = lines.split_first() else {
        return Err("the file is empty; its first line names the columns, such as time,ru".to_owned());
    };
    let (columns, ignored) = Columns::of(&cells(header))?;
    let (mut counted, mut numbers): (Vec<Counted>, Vec<usize>) = (Vec::new(), Vec::new());
    for (number, line) in (2..).zip(lines).filter(|(_, line)| !line.trim().is_empty()) {
        let sample = sample(line, &columns).map_err(|reason| format!("line {number}: {reason}"))?;
        if let Some(before) = counted.last().filter(|before| before.start >= sample.start) {
            let (at, before) = (sample.start.0 / 1_000_000, before.start.0 / 1_000_000);
            return Err(format!(
                "line {number}: its time {at} is not after {before}, of the line before; sort by time"
            ));
        }
        counted.push(sample);
        numbers.push(number);
    }
    let distances = counted.windows(2).filter_map(|pair| match pair {
        [one, next] => Some(next.start.since(one.start)),
        _ => None,
    });
    let usual = every.or(distances.min());
    for sample in counted.iter_mut().filter(|sample| sample.length == Span(0)) {
        sample.length =
            usual.ok_or("one line does not say how long it is; give --every, such as --every 1m")?;
    }
    let overlaps = |pair: &[Counted]| matches!(pair, [one, next] if one.start.after(one.length) > next.start);
    if let Some((at, number)) =
        counted.windows(2).position(overlaps).and_then(|at| Some((at, numbers.get(at)?)))
    {
        let length = counted.get(at).map_or(Span(0), |sample| sample.length);
        return Err(format!(
            "line {number}: its length {length} is more than the time to the next line; give a shorter length_s, or \
             --every"
        ));
    }
    Ok((counted, ignored))
}

fn sample(line: &str, columns: &Columns) -> Result<Counted, String> {
    let cells = cells(line);
    let cell = |column: Option<usize>, name: &str| match column {
        None => Ok(""),
        Some(at) => cells.get(at).map(|cell| cell.trim()).ok_or_else(|| {
            format!("it has {} cells and none for {name:?}; fill in what is missing", cells.len())
        }),
    };
    let count = |column: Option<usize>, name: &str| match cell(column, name)? {
        "" => Ok(0),
        text => text.parse::<u64>().map_err(|_| {
            format!("{name}: {text:?} is no count; write 0 to {} without a sign or point", u64::MAX)
        }),
    };
    let ru = cell(columns.ru, "ru")?;
    let charged = parse_amount(ru).map_err(|error| format!("ru: {error}"))?;
    let length = count(columns.length, "length_s")?;
    if columns.length.is_some() && !(1..=86_400).contains(&length) {
        return Err(format!("length_s: {length} is out of range: 1 to 86400 seconds"));
    }
    Ok(Counted {
        start: moment(cell(columns.time, "time")?)?,
        length: Span::secs(length),
        charged: u128::from(charged.0.unsigned_abs()),
        operations: count(columns.operations, "operations")?.into(),
        refused: count(columns.refused, "refused")?.into(),
    })
}

/// Seconds since 1970, whole or with a point, or a date.
fn moment(text: &str) -> Result<Time, String> {
    let wrong = || {
        format!("time: {text:?} is no time; write seconds since 1970, or a date such as 2026-01-31T23:59:58Z")
    };
    if let Some(seconds) = date::iso(text) {
        return Ok(Time(seconds.saturating_mul(1_000_000)));
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 9 {
        return Err(wrong());
    }
    let seconds: u64 = whole.parse().map_err(|_| wrong())?;
    if seconds > FARTHEST_S {
        return Err(format!(
            "time: {text} is too late to be seconds since 1970; divide milliseconds by 1000"
        ));
    }
    let micros = format!("{part:0<6}").get(..6).and_then(|micros| micros.parse().ok()).unwrap_or(0_u64);
    Ok(Time(seconds * 1_000_000 + micros))
}

/// Cells between commas; those in quotes may have commas, and doubled quotes.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            other => cell.push(other),
        }
    }
    cells.push(cell);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, every: Option<Span>) -> Result<(Vec<Counted>, Vec<String>), String> {
        read(&text.lines().map(ToOwned::to_owned).collect::<Vec<_>>(), every)
    }

    #[test]
    fn samples_are_as_long_as_the_shortest_distance_and_holes_are_idle() {
        let text =
            "\"Time\",host,ru,refused\n1970-01-01T00:02:00Z,\"a,b\",1.5,\n180,x,\"2\",3\n\n600.5,x,0,0\n";
        let (counted, ignored) = of(text, None).unwrap();
        let seen: Vec<_> = counted.iter().map(|c| (c.start.0, c.length.0, c.charged, c.refused)).collect();
        let minute = 60_000_000;
        assert_eq!(
            seen,
            [
                (2 * minute, minute, 1_500_000, 0),
                (3 * minute, minute, 2_000_000, 3),
                (600_500_000, minute, 0, 0)
            ]
        );
        assert_eq!(ignored, ["\"host\""]);
        // The shortest distance counts wherever it stands.
        for times in [[0, 100, 130, 190], [0, 30, 100, 190], [0, 100, 160, 190]] {
            let lines: String = times.map(|time| format!("{time},1\n")).concat();
            let (counted, _) = of(&format!("time,ru\n{lines}"), None).unwrap();
            let lengths: Vec<_> = counted.iter().map(|sample| sample.length).collect();
            assert_eq!(lengths, [Span::secs(30); 4], "{times:?}");
        }
        let text = "start_unix_s,VALUE,Throttled,operations,length_s\n0.5,1,2,3,4\n5,0.25,0,,9\n";
        let (counted, ignored) = of(text, Some(Span::secs(1))).unwrap();
        let first = Counted {
            start: Time(500_000),
            length: Span::secs(4),
            charged: 1_000_000,
            operations: 3,
            refused: 2,
        };
        let second = Counted {
            start: Time(5_000_000),
            length: Span::secs(9),
            charged: 250_000,
            operations: 0,
            refused: 0,
        };
        assert_eq!((counted, ignored), (vec![first, second], Vec::new()));
        let (counted, _) = of("time,ru,length_s,operations\n5,1,30,7\n", None).unwrap();
        assert_eq!((counted[0].length, counted[0].operations), (Span::secs(30), 7));
        assert_eq!(of("time,ru\n5,1\n", Some(Span::secs(9))).unwrap().0[0].length, Span::secs(9));
        // Each at its bound; a quote in quotes is doubled, and what is finer than a microsecond is cut.
        let text = "\"a \"\"b\"\", c\",length_s,time,ru\n,86400,0.123456789,0\n\"x\"\"\",1,100000000000,1000000000000\n";
        let (counted, ignored) = of(text, None).unwrap();
        let seen: Vec<_> = counted.iter().map(|c| (c.start.0, c.length, c.charged)).collect();
        let bounds = (100_000_000_000_000_000, Span::secs(1), 1_000_000_000_000_000_000);
        assert_eq!(seen, [(123_456, Span::secs(86_400), 0), bounds]);
        assert_eq!(ignored, [r#""a \"b\", c""#]);
    }

    #[test]
    fn a_bad_line_is_named_with_a_remedy() {
        for (text, told) in [
            ("", "the file is empty"),
            ("a,b\n1,2\n", "line 1 has no column"),
            ("time,ru,RU\n1,2,3\n", "line 1: two columns are \"RU\""),
            ("time,ru\n1\n", "line 2: it has 1 cells and none for \"ru\""),
            ("time,ru\n1,\n", "line 2: ru: \"\" is not an amount"),
            ("time,ru\n1,-5\n", "line 2: ru: \"-5\" is out of range"),
            ("time,ru\n1,1e9\n", "line 2: ru: \"1e9\" is not an amount"),
            ("time,ru\n1,NaN\n", "line 2: ru: \"NaN\" is not an amount"),
            ("time,ru\n1,1000000000001\n", "line 2: ru: \"1000000000001\" is out of range"),
            ("time,ru\n-1,1\n", "line 2: time: \"-1\" is no time"),
            ("time,ru\nsoon,1\n", "line 2: time: \"soon\" is no time"),
            ("time,ru\n1700000000000,1\n", "line 2: time: 1700000000000 is too late to be seconds"),
            ("time,ru\n99999999999999999999,1\n", "line 2: time: \"99999999999999999999\" is no time"),
            ("time,ru\n60,1\n\n60,1\n", "line 4: its time 60 is not after 60"),
            ("time,ru\n120,1\n60,1\n", "line 3: its time 60 is not after 120"),
            ("time,ru\n120,1\n", "one line does not say how long"),
            ("time,ru\n100000000001,1\n", "line 2: time: 100000000001 is too late to be seconds"),
            ("time,ru\n1.1234567891,1\n", "line 2: time: \"1.1234567891\" is no time"),
            ("time,ru\n.5,1\n", "line 2: time: \".5\" is no time"),
            ("time,ru,length_s\n120,1,0\n", "line 2: length_s: 0 is out of range"),
            ("time,ru,length_s\n120,1,86401\n", "line 2: length_s: 86401 is out of range"),
            ("time,ru,length_s\n120,1,\n", "line 2: length_s: 0 is out of range"),
            ("ru,time,time\n1,2,3\n", "line 1: two columns are \"time\""),
            ("time,ru,throttled\n120,1,1.5\n", "line 2: refused: \"1.5\" is no count"),
            ("time,ru,operations\n120,1,-2\n", "line 2: operations: \"-2\" is no count"),
            (
                "time,ru,length_s\n60,1,61\n120,1,1\n",
                "line 2: its length 61s is more than the time to the next line",
            ),
        ] {
            let error = of(text, None).unwrap_err();
            assert!(error.starts_with(told), "{text:?}: {error}");
        }
    }
}
