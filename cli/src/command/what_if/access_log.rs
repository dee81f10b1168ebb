//! Access logs in the common and the combined format, as nginx and Apache write them: requests of a second are one
//! sample.

use std::collections::BTreeMap;

use tidegate_core::replay::{Counted, MOST_SAMPLES};
use tidegate_core::units::{Ru, Span, Time};

use super::date;

/// Statuses of requests that were refused: too many requests, and what `limit_req` answers by default.
const REFUSED: [&str; 2] = ["429", "503"];

/// Whether a line is one of an access log.
pub(super) fn is_one(line: &str) -> bool {
    parts(line).is_some()
}

/// The second of a request and its status: `ADDRESS - USER [31/Jan/2026:23:59:58 +0000] "REQUEST" STATUS BYTES ...`.
fn parts(line: &str) -> Option<(u64, &str)> {
    let (_, rest) = line.split_once('[')?;
    let (moment, rest) = rest.split_once(']')?;
    let request = rest.trim_start().strip_prefix('"')?;
    // Quotes within it are escaped.
    let mut escaped = false;
    let end = request.find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    let status = request.get(end + 1..)?.split_ascii_whitespace().next()?;
    let is_status = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
    Some((date::of_log(moment)?, status)).filter(|_| is_status)
}

/// What was asked for, a sample a second, each request at the same cost. Lines need not be in order: a server writes
/// them when requests end.
///
/// # Errors
/// Names the line and the remedy.
pub(super) fn read(lines: &[String], cost: Ru) -> Result<Vec<Counted>, String> {
    let mut seconds: BTreeMap<u64, (u128, u128)> = BTreeMap::new();
    for (number, line) in (1..).zip(lines).filter(|(_, line)| !line.trim().is_empty()) {
        let (second, status) = parts(line).ok_or_else(|| {
            format!(
                "line {number} is not of the common or combined format: ADDRESS - USER [31/Jan/2026:23:59:58 +0000] \
                 \"REQUEST\" STATUS BYTES; convert the log, or count it by the second into a CSV file"
            )
        })?;
        let (started, refused) = seconds.entry(second).or_default();
        *(if REFUSED.contains(&status) { refused } else { started }) += 1;
        if seconds.len() > MOST_SAMPLES {
            return Err(format!(
                "line {number}: more than {MOST_SAMPLES} seconds have requests; give a part of it"
            ));
        }
    }
    let cost = u128::from(cost.0.unsigned_abs());
    let counted = |(second, (operations, refused)): (u64, (u128, u128))| Counted {
        start: Time(second.saturating_mul(1_000_000)),
        length: Span::secs(1),
        charged: operations * cost,
        operations,
        refused,
    };
    Ok(seconds.into_iter().map(counted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn requests_are_counted_by_their_second() {
        let log = "10.0.0.1 - - [10/Oct/2000:13:55:37 -0700] \"GET /a?b=\\\"c HTTP/1.1\" 200 2326 \"-\" \"curl/8\"\n\
                   ::1 - frank [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 503 0\n\n\
                   10.0.0.1 - - [10/Oct/2000:13:55:37 -0700] \"-\" 429 0 \"-\" \"-\"\n\
                   10.0.0.1 - - [10/Oct/2000:13:55:37 -0700] \"POST / HTTP/1.1\" 404 0 \"-\" \"-\"\n";
        assert!(is_one(&lines(log)[0]));
        let counted = read(&lines(log), Ru::whole(2)).unwrap();
        let second = |second: u64, charged, operations, refused| Counted {
            start: Time(second * 1_000_000),
            length: Span::secs(1),
            charged,
            operations,
            refused,
        };
        assert_eq!(counted, [second(971_211_336, 0, 0, 1), second(971_211_337, 4_000_000, 2, 1)]);
    }

    /// A line that is taken for none of a log makes the whole file one of CSV, or a mistake.
    #[test]
    fn a_request_ends_at_the_quote_that_no_backslash_escapes() {
        for (request, status) in [
            ("", Some("200")),
            (r"GET /\\", Some("200")),
            (r#"GET /\""#, Some("200")),
            (r#"GET /\\\""#, Some("200")),
            (r"GET /\\\\ ", Some("200")),
            (r"\x16\x03\\", Some("200")),
            (r#"a\\" 404 "b"#, Some("404")),
            (r"GET /\\\", None),
        ] {
            let line = format!("::1 - - [10/Oct/2000:13:55:37 -0700] \"{request}\" 200 1");
            assert_eq!(parts(&line).map(|(_, status)| status), status, "{line}");
        }
    }

    #[test]
    fn other_lines_are_named() {
        let log = "10.0.0.1 - - [10/Oct/2000:13:55:37 -0700] \"GET / HTTP/1.1\" 200 1\n{\"status\": 200}";
        assert!(read(&lines(log), Ru::whole(1)).unwrap_err().starts_with("line 2 is not of the common"));
        for line in ["", "time,ru", "[10/Oct/2000:13:55:37 -0700] \"GET /\" ok", "a [x] \"GET /\" 200"] {
            assert!(!is_one(line), "{line}");
        }
    }
}
