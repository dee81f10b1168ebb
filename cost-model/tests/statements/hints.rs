//! Hints by example: what stands in one is no part of the statement, and hides nothing of it.

use tidegate_cost_model::{Fingerprinter, StatementKind, Template};

use super::{DIALECTS, dialects};

/// Servers read a hint in another place, and one that they do not know, as the comment that it is. A quote or a comment
/// that begins in it ends with it: otherwise a statement behind it would be another one's twin.
#[test]
fn a_hint_ends_where_a_comment_ends() {
    for hint in ["it's", "\"", "`", "a -- b", "a # b", "$$", "[", "(", "e'", "VALUES (", "IN (1, ("] {
        for (letter, dialect) in DIALECTS {
            let text = format!("SELECT /*+ {hint} */ a FROM t WHERE b IN (1, 2)");
            let template = Template::new(dialect, &text);
            assert_eq!(
                (template.text(), template.kind()),
                ("SELECT a FROM t WHERE b IN (?)", StatementKind::Select),
                "{letter} {text}"
            );
            assert_eq!(*Fingerprinter::new(dialect).fingerprint(&text), template);
        }
    }
}

/// Comments nest in PostgreSQL, and in MySQL they do not, so that what follows the first end is executed.
#[test]
fn a_comment_in_a_hint_ends_the_hint_where_comments_do_not_nest() {
    for (letters, columns) in [("gp", "a"), ("ms", "b, a")] {
        for dialect in dialects(letters) {
            let template = Template::new(dialect, "SELECT /*+ /* */ b, /* */ a FROM t");
            let nested = Template::new(dialect, "SELECT /*+ /* */ b, /* */ */ a FROM t");
            let shown = if letters == "gp" { nested } else { template };
            assert_eq!(shown.text(), format!("SELECT {columns} FROM t"), "{dialect:?}");
        }
    }
    for dialect in dialects("m") {
        let template = Template::new(dialect, "SELECT /*+ /*!50000 x */ a FROM t WHERE b = 2 */ 3");
        assert_eq!(
            template.kind(),
            StatementKind::Unknown,
            "the hint has ended, so the last `*/` ends nothing"
        );
    }
}

/// A hint between two parts of a list, of rows or of statements takes neither the separator nor the list away.
#[test]
fn what_a_hint_stands_in_goes_on_behind_it() {
    let (insert, select) = ("INSERT INTO t VALUES (?)", "SELECT a FROM t WHERE b IN (?)");
    for (text, template, kind) in [
        ("SELECT 1; /*+ A(b) */ SELECT a", "SELECT ?; SELECT a", StatementKind::Select),
        ("/*+ A(b) */; SELECT 1", "SELECT ?", StatementKind::Select),
        ("SELECT a FROM t WHERE b IN (1, /*+ A(b) */ 2, -3)", select, StatementKind::Select),
        ("SELECT a FROM t WHERE b IN (1 /*+ A(b, 5) */, 2)", select, StatementKind::Select),
        ("SELECT a FROM t WHERE b IN /*+ A(b) */ (1, 2)", select, StatementKind::Select),
        ("INSERT INTO t VALUES (1), /*+ A(b) */ (2)", insert, StatementKind::Insert),
        ("INSERT INTO t VALUES (1) /*+ A(b) */, (2)", insert, StatementKind::Insert),
        ("INSERT INTO t VALUES (1), (2 /*+ ) */), (3)", insert, StatementKind::Insert),
        ("INSERT INTO t VALUES /*+ A(b) */ (1), (2)", insert, StatementKind::Insert),
        ("SELECT f(a) /*+ A(b) */ -1", "SELECT f(a) - ?", StatementKind::Select),
    ] {
        for dialect in dialects("gmps") {
            let fingerprinter = Fingerprinter::new(dialect);
            let made = fingerprinter.fingerprint(text);
            assert_eq!((made.text(), made.kind()), (template, kind), "{dialect:?} {text}");
            assert_eq!(*made, Template::new(dialect, text), "the cache changes nothing: {text}");
        }
    }
}

/// A group whose name is longer than what is read of it pays, or none does.
#[test]
fn a_group_is_named_as_a_whole_or_not_at_all() {
    for (letters, hint, group) in [
        ("gmps", "RESOURCE_GROUP(batch-jobs)", None),
        ("gmps", "RESOURCE_GROUP(batch.jobs)", None),
        ("gmps", "RESOURCE_GROUP(batch, jobs)", None),
        ("gmps", "RESOURCE_GROUP(batch", None),
        ("gmps", "RESOURCE_GROUP(batch-jobs) RESOURCE_GROUP(jobs)", Some("jobs")),
        ("gmps", "RESOURCE_GROUP( batch_jobs )", Some("batch_jobs")),
        ("gms", "RESOURCE_GROUP(`batch-jobs`)", Some("batch-jobs")),
        ("gps", "RESOURCE_GROUP(\"batch-jobs\")", Some("batch-jobs")),
    ] {
        for dialect in dialects(letters) {
            let template = Template::new(dialect, format!("SELECT /*+ {hint} */ a FROM t"));
            assert_eq!(template.resource_group(), group, "{dialect:?} {hint}");
        }
    }
}

#[test]
fn a_name_of_a_group_is_not_put_together_from_two_hints() {
    for (_, dialect) in DIALECTS {
        let template = Template::new(dialect, "SELECT /*+ RESOURCE_GROUP */ a /*+ (rg1) */ FROM t");
        assert_eq!((template.text(), template.resource_group()), ("SELECT a FROM t", None));
    }
}
