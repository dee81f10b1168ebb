//! MySQL's questions for the diagnostics of the last statement: `SHOW WARNINGS` and its kin.
//!
//! Where that statement was tidegate's, the server knows nothing of it, and the gateway that answered it answers these.

use memchr::memmem;
use tidegate_cost_model::SqlDialect;

use crate::recognise::Words;
use crate::tokens::{is_code, statements, tokenise};

/// Longest text that is looked at, in bytes: comments of clients, and a few words.
const MAX_QUESTION: usize = 1_024;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Diagnostics {
    /// `SHOW WARNINGS` and `SHOW ERRORS`: what there is, from an offset on and so much of it.
    Show {
        /// Notes and warnings are left out.
        errors: bool,
        /// How many are left out at the beginning.
        offset: usize,
        /// How many are wanted at most.
        limit: usize,
    },
    /// Counts, as columns called so: `SHOW COUNT(*) WARNINGS`, `SELECT @@warning_count`.
    Counts(Vec<(String, Counted)>),
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Errors, warnings and notes.
    All,
    /// Errors.
    Errors,
}

impl Diagnostics {
    /// Reads a text; `None` when it is none of these alone.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let first = Words::of(text).next()?;
        let shows = first.eq_ignore_ascii_case(b"SHOW");
        let selects = first.eq_ignore_ascii_case(b"SELECT") && memmem::find(text, b"@@").is_some();
        if !(shows || selects) {
            return None;
        }
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_QUESTION)?;
        let tokens = tokenise(text, SqlDialect::MySql).ok()?;
        let parts = statements(&tokens);
        let [only] = parts.as_slice() else { return None };
        let words: Vec<String> =
            only.iter().filter(|token| is_code(token)).map(|token| token.token.to_string()).collect();
        let lower: Vec<String> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
        match lower.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["show", kind @ ("warnings" | "errors"), rest @ ..] => {
                let (offset, limit) = limits(rest)?;
                Some(Self::Show { errors: *kind == "errors", offset, limit })
            }
            ["show", "count", "(", "*", ")", "warnings"] => {
                Some(Self::Counts(vec![("@@session.warning_count".to_owned(), Counted::All)]))
            }
            ["show", "count", "(", "*", ")", "errors"] => {
                Some(Self::Counts(vec![("@@session.error_count".to_owned(), Counted::Errors)]))
            }
            ["select", ..] => {
                let names = words.get(1..)?.concat();
                names.split(',').map(variable).collect::<Option<Vec<_>>>().map(Self::Counts)
            }
            _ => None,
        }
    }
}

/// `LIMIT`, as an offset and a number.
fn limits(words: &[&str]) -> Option<(usize, usize)> {
    let number = |word: &str| word.parse().ok();
    match words {
        [] => Some((0, usize::MAX)),
        ["limit", limit] => Some((0, number(limit)?)),
        ["limit", offset, ",", limit] | ["limit", limit, "offset", offset] => {
            Some((number(offset)?, number(limit)?))
        }
        _ => None,
    }
}

fn variable(name: &str) -> Option<(String, Counted)> {
    let lower = name.to_ascii_lowercase();
    let plain = lower.strip_prefix("@@")?;
    let plain = plain.strip_prefix("session.").or_else(|| plain.strip_prefix("local.")).unwrap_or(plain);
    let counted = match plain {
        "warning_count" => Counted::All,
        "error_count" => Counted::Errors,
        _ => return None,
    };
    Some((name.to_owned(), counted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(errors: bool, offset: usize, limit: usize) -> Option<Diagnostics> {
        Some(Diagnostics::Show { errors, offset, limit })
    }

    #[test]
    fn questions_are_told_from_everything_else() {
        for (text, expected) in [
            ("SHOW WARNINGS", show(false, 0, usize::MAX)),
            ("/* app */ show Warnings limit 5 ;", show(false, 0, 5)),
            ("show errors limit 2, 3", show(true, 2, 3)),
            ("show warnings limit 3 offset 2", show(false, 2, 3)),
            ("SHOW WARNINGS LIKE 'x'", None),
            ("SHOW WARNINGS; SELECT 1", None),
            ("SHOW TABLES", None),
            ("SELECT 1", None),
            ("SELECT @@warning_count + 1", None),
            ("SELECT @@warning_count FROM t", None),
            ("SELECT @@max_error_count", None),
            ("SELECT", None),
            ("SHOW WARNINGS 'open", None),
            ("", None),
        ] {
            assert_eq!(Diagnostics::parse(text.as_bytes()), expected, "{text}");
        }
        for (text, counts) in [
            ("SHOW COUNT(*) WARNINGS", vec![("@@session.warning_count", Counted::All)]),
            ("show count( * ) errors;", vec![("@@session.error_count", Counted::Errors)]),
            (
                "SELECT @@Warning_count, @@session.error_count",
                vec![("@@Warning_count", Counted::All), ("@@session.error_count", Counted::Errors)],
            ),
            ("select @@local.warning_count", vec![("@@local.warning_count", Counted::All)]),
        ] {
            let counts = counts.into_iter().map(|(name, counted)| (name.to_owned(), counted)).collect();
            assert_eq!(Diagnostics::parse(text.as_bytes()), Some(Diagnostics::Counts(counts)), "{text}");
        }
        let long = format!("/* {} */ show warnings", "x".repeat(MAX_QUESTION));
        assert_eq!(Diagnostics::parse(long.as_bytes()), None);
        assert_eq!(Diagnostics::parse(b"show warnings \xff"), None);
    }
}
