//! The diagnostics of the gateway's own answers, for `SHOW WARNINGS` behind them: the server knows nothing of these.

use tidegate_sql::{Answer as Own, Column, Counted, Diagnostics, Kind, Table, Value};

use super::answer::Refusal;

/// Code of a note that has none of its own (`ER_YES`, which servers give to what is no error).
const NOTE: u16 = 1003;
/// And of a warning (`ER_UNKNOWN_ERROR`).
const WARNING: u16 = 1105;

/// The warnings of the gateway's last own answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Warnings(Vec<Warning>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Warning {
    level: &'static str,
    code: u16,
    message: String,
}

const ERROR: &str = "Error";

impl Warnings {
    /// What an error leaves.
    pub(super) fn of_error(refusal: &Refusal) -> Self {
        Self(vec![Warning { level: ERROR, code: refusal.code, message: refusal.message.clone() }])
    }

    /// The diagnostics of an answer: its notes, of which each says what it is.
    pub(super) fn of(own: &Own) -> Self {
        let notes = match own {
            Own::Done { notes, .. } | Own::Table(Table { notes, .. }) => notes.as_slice(),
            Own::Session(_) => &[],
        };
        Self(notes.iter().map(|line| Warning::read(line)).collect())
    }

    /// The answer to a question about them.
    pub(super) fn answer(&self, question: &Diagnostics) -> Table {
        let column = |name: &str, kind| Column { name: name.to_owned(), kind };
        match question {
            Diagnostics::Show { errors, offset, limit } => {
                let shown = self.0.iter().filter(|warning| !errors || warning.level == ERROR);
                let rows = shown.skip(*offset).take(*limit).map(Warning::row);
                Table {
                    columns: vec![
                        column("Level", Kind::Text),
                        // A client that has cached the columns of a prepared question takes them for the server's.
                        column("Code", Kind::Int32),
                        column("Message", Kind::Text),
                    ],
                    rows: rows.collect(),
                    notes: Vec::new(),
                }
            }
            Diagnostics::Counts(counts) => Table {
                columns: counts.iter().map(|(name, _)| column(name, Kind::Int)).collect(),
                rows: vec![counts.iter().map(|(_, counted)| Value::Int(self.count(*counted))).collect()],
                notes: Vec::new(),
            },
        }
    }

    fn count(&self, counted: Counted) -> i64 {
        let count = match counted {
            Counted::All => self.0.len(),
            Counted::Errors => self.0.iter().filter(|warning| warning.level == ERROR).count(),
        };
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

impl Warning {
    /// `note 8248: text`, `note: text`, `warning: text`.
    fn read(line: &str) -> Self {
        let (kind, message) = line.split_once(": ").unwrap_or(("warning", line));
        let (kind, code) = kind.split_once(' ').unwrap_or((kind, ""));
        let (level, code) = match (kind, code.parse()) {
            ("note", code) => ("Note", code.unwrap_or(NOTE)),
            ("warning", code) => ("Warning", code.unwrap_or(WARNING)),
            _ => return Self { level: "Warning", code: WARNING, message: line.to_owned() },
        };
        Self { level, code, message: message.to_owned() }
    }

    fn row(&self) -> Vec<Value> {
        vec![
            Value::Text(self.level.to_owned()),
            Value::Int(i64::from(self.code)),
            Value::Text(self.message.clone()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_say_what_they_are() {
        for (line, level, code, message) in [
            ("note 8248: a group: exists", "Note", 8_248, "a group: exists"),
            ("note: watched", "Note", NOTE, "watched"),
            ("warning: twice", "Warning", WARNING, "twice"),
            ("rows were left out", "Warning", WARNING, "rows were left out"),
            ("50 rows: too many", "Warning", WARNING, "50 rows: too many"),
        ] {
            assert_eq!(Warning::read(line), Warning { level, code, message: message.to_owned() }, "{line}");
        }
    }

    #[test]
    fn they_are_shown_counted_and_cut() {
        let notes = vec!["note: a".to_owned(), "warning: b".to_owned(), "note: c".to_owned()];
        let warnings = Warnings::of(&Own::Done { affected: 0, notes });
        let show = |errors, offset, limit| {
            let table = warnings.answer(&Diagnostics::Show { errors, offset, limit });
            table.rows.into_iter().map(|row| row[2].clone()).collect::<Vec<_>>()
        };
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(show(false, 0, usize::MAX), [text("a"), text("b"), text("c")]);
        assert_eq!(show(false, 1, 1), [text("b")]);
        assert!(show(true, 0, 9).is_empty());
        let error = Refusal { code: 8_252, state: *b"HY000", message: "no".to_owned() };
        let both = vec![("w".to_owned(), Counted::All), ("e".to_owned(), Counted::Errors)];
        let count = |warnings: &Warnings| warnings.answer(&Diagnostics::Counts(both.clone())).rows;
        assert_eq!(count(&warnings), [[Value::Int(3), Value::Int(0)]]);
        assert_eq!(count(&Warnings::of_error(&error)), [[Value::Int(1), Value::Int(1)]]);
    }
}
