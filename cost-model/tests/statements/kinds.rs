//! Kinds by example, where what a statement does is not what its first word says.

use tidegate_cost_model::{Fingerprinter, StatementKind, Template};

use super::dialects;

fn kinds(letters: &str, cases: &[(&str, StatementKind)]) {
    for dialect in dialects(letters) {
        for (text, kind) in cases {
            let template = Template::new(dialect, text);
            assert_eq!(template.kind(), *kind, "{dialect:?} {text}: {}", template.text());
            assert_eq!(*Fingerprinter::new(dialect).fingerprint(text), template);
        }
    }
}

/// An explained statement that runs costs what the statement costs.
#[test]
fn an_explain_that_runs_its_statement_is_of_that_kind() {
    use StatementKind::{Delete, Insert, Select, Show, Update};
    kinds(
        "gp",
        &[
            ("EXPLAIN (ANALYZE) DELETE FROM t", Delete),
            ("EXPLAIN (analyze, BUFFERS) UPDATE t SET a = 1", Update),
            ("EXPLAIN (COSTS off, ANALYZE on) SELECT 1", Select),
            ("EXPLAIN (ANALYZE true) INSERT INTO t VALUES (1)", Insert),
            ("EXPLAIN (ANALYZE 1) DELETE FROM t", Delete),
            ("EXPLAIN (ANALYZE off, ANALYZE) DELETE FROM t", Delete),
            ("EXPLAIN (ANALYZE, ANALYZE off) DELETE FROM t", Show),
            ("EXPLAIN (ANALYZE OFF) DELETE FROM t", Show),
            ("EXPLAIN (ANALYZE FALSE, BUFFERS) DELETE FROM t", Show),
            ("EXPLAIN (VERBOSE, BUFFERS true) DELETE FROM t", Show),
        ],
    );
    kinds(
        "gmp",
        &[
            ("EXPLAIN ANALYZE VERBOSE DELETE FROM t", Delete),
            ("EXPLAIN VERBOSE DELETE FROM t", Show),
            ("EXPLAIN DELETE FROM t", Show),
        ],
    );
}
