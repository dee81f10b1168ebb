//! A transaction of a script that lost a statement: nothing of it is kept, and what is left of it does not run.
//!
//! A statement that fails in SQLite, or is refused, may leave the transaction open: those behind it, and the COMMIT,
//! would make the rest of it true.

use tidegate_cost_model::{SqlDialect, Template};

/// Where a script is.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    lost: bool,
}

/// What a statement does with the transaction around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Begins,
    Ends,
    Neither,
}

impl Transaction {
    /// Whether a statement belongs to a transaction that is lost.
    pub(crate) fn leaves_out(&mut self, sql: &str) -> bool {
        let (was_lost, bound) = (self.lost, bound(sql));
        self.lost &= bound == Bound::Neither;
        was_lost && bound != Bound::Begins
    }

    /// A statement of it was refused or failed, and nothing of it is kept.
    pub(crate) fn lose(&mut self, sql: &str) {
        self.lost = bound(sql) != Bound::Ends;
    }
}

fn bound(sql: &str) -> Bound {
    // Without comments, and in upper case.
    let template = Template::new(SqlDialect::SQLite, sql);
    let mut words =
        template.text().split_whitespace().filter(|word| !word.eq_ignore_ascii_case("TRANSACTION"));
    let is = |word: Option<&str>, wanted: &str| word.is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    match (words.next(), words.next()) {
        (first, _) if is(first, "BEGIN") => Bound::Begins,
        (first, second) if is(first, "ROLLBACK") && !is(second, "TO") => Bound::Ends,
        (first, _) if ["COMMIT", "END", "RELEASE"].iter().any(|end| is(first, end)) => Bound::Ends,
        _ => Bound::Neither,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_lost_transaction_is_left_out_to_its_end() {
        for end in ["commit", "/* x */ COMMIT transaction", "End", "rollback", "-- y\nROLLBACK", "release a"]
        {
            let mut script = Transaction::default();
            assert!(!script.leaves_out("begin immediate") && !script.leaves_out("insert into t values (1)"));
            script.lose("insert into t values (1)");
            for inside in
                ["select 1", "rollback to a", "ROLLBACK TRANSACTION TO a", "savepoint b", "update ended"]
            {
                assert!(script.leaves_out(inside), "{inside}");
            }
            assert!(script.leaves_out(end), "{end}");
            assert!(!script.leaves_out("select 1"), "behind {end}");
        }
    }

    #[test]
    fn the_next_transaction_runs_and_one_that_fails_at_its_end_is_over() {
        let mut script = Transaction::default();
        script.lose("select 1");
        assert!(!script.leaves_out("BEGIN") && !script.leaves_out("select 1"));
        script.lose("commit");
        assert!(!script.leaves_out("select 1"));
    }
}
