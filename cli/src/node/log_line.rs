//! One line of an admission log.
//!
//! Times are microseconds of the machine's monotonic clock, amounts micro-RU. `A time group estimate waited_us`
//! admits, `S time group charge-estimate charge template:ru,..` settles, `R time group waited_us` refuses. A line that
//! does not end in a newline was torn by the death of its writer.

use std::fmt;

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogLine {
    /// An operation was let in for its estimate.
    Admitted { at_us: u64, group: String, estimate: i64, waited_us: u64 },
    /// It ran: `correction` is its charge less its estimate; `templates` are fingerprints and their part.
    Settled { at_us: u64, group: String, correction: i64, charge: i64, templates: Vec<(u64, i64)> },
    /// It was not let in.
    Refused { at_us: u64, group: String, waited_us: u64 },
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admitted { at_us, group, estimate, waited_us } => {
                writeln!(f, "A {at_us} {group} {estimate} {waited_us}")
            }
            Self::Settled { at_us, group, correction, charge, templates } => {
                write!(f, "S {at_us} {group} {correction} {charge} ")?;
                for (index, (fingerprint, ru)) in templates.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{fingerprint:016x}:{ru}")?;
                }
                writeln!(f)
            }
            Self::Refused { at_us, group, waited_us } => writeln!(f, "R {at_us} {group} {waited_us}"),
        }
    }
}

impl LogLine {
    /// Reads a line without its newline; `None` when it is no line of a log.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let kind = fields.next()?;
        let at_us = fields.next()?.parse().ok()?;
        let group = fields.next()?.to_owned();
        let read = match kind {
            "A" => Self::Admitted {
                at_us,
                group,
                estimate: fields.next()?.parse().ok()?,
                waited_us: fields.next()?.parse().ok()?,
            },
            "S" => Self::Settled {
                at_us,
                group,
                correction: fields.next()?.parse().ok()?,
                charge: fields.next()?.parse().ok()?,
                templates: templates(fields.next()?)?,
            },
            "R" => Self::Refused { at_us, group, waited_us: fields.next()?.parse().ok()? },
            _ => return None,
        };
        fields.next().is_none().then_some(read)
    }
}

fn templates(text: &str) -> Option<Vec<(u64, i64)>> {
    let pair = |pair: &str| {
        let (fingerprint, ru) = pair.split_once(':')?;
        Some((u64::from_str_radix(fingerprint, 16).ok()?, ru.parse().ok()?))
    };
    text.split(',').filter(|part| !part.is_empty()).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip_and_cut_ones_are_no_lines() {
        let lines = [
            LogLine::Admitted { at_us: 5, group: "shop".into(), estimate: 70, waited_us: 0 },
            LogLine::Settled {
                at_us: 6,
                group: "shop".into(),
                correction: -3,
                charge: 67,
                templates: vec![(u64::MAX, 60), (1, 7)],
            },
            LogLine::Settled { at_us: 6, group: "a.b".into(), correction: 0, charge: 0, templates: vec![] },
            LogLine::Refused { at_us: 7, group: "shop".into(), waited_us: 9 },
        ];
        for line in lines {
            let text = line.to_string();
            assert_eq!(LogLine::parse(text.strip_suffix('\n').unwrap()), Some(line));
        }
        for text in ["", "A", "A 5 shop 70", "A 5 shop 70 0 1", "X 5 shop 1 1", "S 6 shop -3 67 zz:1"] {
            assert_eq!(LogLine::parse(text), None, "{text}");
        }
    }
}
