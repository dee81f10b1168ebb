//! A transaction of a script that lost a statement: nothing of it is kept, and what is left of it does not run.
//!
//! A statement that fails in SQLite, or is refused, may leave the transaction open: those behind it, and the COMMIT,
//! would make the rest of it true.

use tidegate_cost_model::{SqlDialect, Template};

/// Where a script is.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    lost: bool,
    /// The savepoint that began it, whose release ends it; none where a BEGIN did.
    savepoint: Option<String>,
}

/// What a statement does with the transaction around it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Bound {
    Begins,
    /// A savepoint, which begins a transaction where there is none.
    Opens(String),
    Releases(String),
    Ends,
    Neither,
}

impl Transaction {
    /// Whether a statement belongs to a transaction that is lost; `is_inside` one of the database, which may go on.
    pub(crate) fn leaves_out(&mut self, sql: &str, is_inside: bool) -> bool {
        let (was_lost, bound) = (self.lost, bound(sql));
        self.lost &= bound != Bound::Begins && !self.is_ended_by(&bound);
        if bound == Bound::Begins || !was_lost && !is_inside {
            self.savepoint = match &bound {
                Bound::Opens(name) => Some(name.clone()),
                _ => None,
            };
        }
        was_lost && bound != Bound::Begins
    }

    /// A statement was refused or failed: nothing is kept of the transaction that it was inside of, or was to begin.
    pub(crate) fn lose(&mut self, sql: &str, is_inside: bool) {
        let bound = bound(sql);
        let begins = matches!(bound, Bound::Begins | Bound::Opens(_));
        self.lost = (is_inside || begins) && !self.is_ended_by(&bound);
    }

    fn is_ended_by(&self, bound: &Bound) -> bool {
        match bound {
            Bound::Ends => true,
            Bound::Releases(name) => self.savepoint.as_ref() == Some(name),
            Bound::Begins | Bound::Opens(_) | Bound::Neither => false,
        }
    }
}

fn bound(sql: &str) -> Bound {
    // Without comments.
    let template = Template::new(SqlDialect::SQLite, sql);
    let words = template.text().split_whitespace().map(str::to_ascii_uppercase);
    let words: Vec<String> = words.filter(|word| word != "TRANSACTION").collect();
    let name = |word: &String| word.trim_matches(['"', '\'', '`', '[', ']']).to_owned();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["BEGIN", ..] => Bound::Begins,
        ["ROLLBACK", "TO", ..] => Bound::Neither,
        ["ROLLBACK" | "COMMIT" | "END", ..] => Bound::Ends,
        ["RELEASE", ..] => Bound::Releases(words.last().map(name).unwrap_or_default()),
        ["SAVEPOINT", ..] => Bound::Opens(words.last().map(name).unwrap_or_default()),
        _ => Bound::Neither,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_lost_transaction_is_left_out_to_its_end() {
        let insert = "insert into t values (1)";
        for (begin, inside, ends) in [
            (
                "begin immediate",
                &["release a", "RELEASE SAVEPOINT b"][..],
                &["commit", "/* x */ COMMIT transaction", "End", "rollback", "-- y\nROLLBACK"][..],
            ),
            (
                "savepoint a",
                &["release b", "savepoint a2"],
                &["release a", "RELEASE SAVEPOINT \"A\"", "commit", "end transaction", "rollback"],
            ),
        ] {
            for end in ends {
                let mut script = Transaction::default();
                assert!(!script.leaves_out(begin, false) && !script.leaves_out("savepoint b", true));
                assert!(!script.leaves_out(insert, true));
                script.lose(insert, true);
                let always =
                    ["select 1", "rollback to a", "ROLLBACK TRANSACTION TO a", "savepoint b", "update ended"];
                for inside in always.iter().chain(inside) {
                    assert!(script.leaves_out(inside, false), "{begin}: {inside}");
                }
                assert!(script.leaves_out(end, false), "{begin}: {end}");
                assert!(!script.leaves_out("select 1", false), "behind {end}");
            }
        }
    }

    /// Without it those behind it would each be kept by itself.
    #[test]
    fn a_transaction_whose_begin_failed_is_lost_and_a_statement_outside_of_one_loses_nothing() {
        for (begin, end) in [("begin", "commit"), ("savepoint a", "release a")] {
            let mut script = Transaction::default();
            assert!(!script.leaves_out(begin, false));
            script.lose(begin, false);
            assert!(script.leaves_out("select 1", false) && script.leaves_out(end, false), "{begin}");
            assert!(!script.leaves_out("select 1", false), "{begin}");
        }
        for single in ["select 1", "commit", "rollback", "release a"] {
            let mut script = Transaction::default();
            assert!(!script.leaves_out(single, false));
            script.lose(single, false);
            assert!(!script.leaves_out("select 2", false), "{single}");
        }
    }

    #[test]
    fn the_next_transaction_runs_and_one_that_fails_at_its_end_is_over() {
        let mut script = Transaction::default();
        script.lose("select 1", true);
        assert!(!script.leaves_out("BEGIN", false) && !script.leaves_out("select 1", true));
        script.lose("release none", true);
        assert!(script.leaves_out("select 1", false), "that did not end it");
        assert!(!script.leaves_out("BEGIN", false));
        script.lose("commit", true);
        assert!(!script.leaves_out("select 1", false));
    }
}
