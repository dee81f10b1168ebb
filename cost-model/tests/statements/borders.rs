//! Where strings, comments and lists end, in texts in which an end is easily taken for another one.

use tidegate_cost_model::{Fingerprinter, Template};

use super::dialects;

/// Each text, which parses, and its template.
fn templates(letters: &str, cases: &[(&str, &str)]) {
    for dialect in dialects(letters) {
        for (text, template) in cases {
            let made = Template::new(dialect, text);
            assert_eq!(made.text(), *template, "{dialect:?} {text}");
            assert_eq!(
                *Fingerprinter::new(dialect).fingerprint(text),
                made,
                "the cache changes nothing: {text}"
            );
        }
    }
}

/// A list is over with its bracket: values behind it count one by one.
#[test]
fn values_behind_a_list_of_tuples_are_no_list() {
    templates(
        "gmps",
        &[
            (
                "SELECT a FROM t WHERE (a, b) IN ((1, 2), (3, 4)) ORDER BY 1, 2",
                "SELECT a FROM t WHERE (a, b) IN ((?, ?)) ORDER BY ?, ?",
            ),
            (
                "SELECT a FROM t WHERE (a, b) IN ((1, 2), (3, 4), (5, 6)) AND f(a, 1, 2) GROUP BY 1, 2, 3",
                "SELECT a FROM t WHERE (a, b) IN ((?, ?)) AND f(a, ?, ?) GROUP BY ?, ?, ?",
            ),
        ],
    );
}

/// Where a value stands, also first behind a word, so that what is asked for is one statement.
#[test]
fn a_constant_is_a_value_wherever_one_stands() {
    templates(
        "gmps",
        &[
            ("SELECT NULL, TRUE, a FROM t WHERE FALSE", "SELECT ?, ?, a FROM t WHERE ?"),
            (
                "SELECT a FROM t WHERE b IS NULL AND c IS NOT TRUE",
                "SELECT a FROM t WHERE b IS NULL AND c IS NOT TRUE",
            ),
        ],
    );
}

/// A column in quotes is no value, so a tuple with one repeats no other.
#[test]
fn a_tuple_with_a_quoted_column_is_no_tuple_of_values() {
    templates(
        "gps",
        &[
            (
                r#"SELECT a FROM t WHERE (a, b) IN ((1, 2), (3, "c"), (4, 5))"#,
                r#"SELECT a FROM t WHERE (a, b) IN ((?, ?), (?, "c"), (?, ?))"#,
            ),
            (
                r#"SELECT a FROM t WHERE (a, b) IN ((1, 2), ("c", 3))"#,
                r#"SELECT a FROM t WHERE (a, b) IN ((?, ?), ("c", ?))"#,
            ),
        ],
    );
}

/// Tuples within a tuple are left as they are: the outer one decides what repeats.
#[test]
fn a_tuple_within_a_tuple_of_a_list_does_not_shrink() {
    let shown = |text: &str| {
        let template = Template::new(tidegate_cost_model::SqlDialect::Generic, format!("SELEC {text}"));
        template.text().to_owned()
    };
    assert_eq!(shown("in ((1, (2, 3)), (4, a))"), "selec in ((?, (?, ?)), (?, a))");
    assert_eq!(shown("in (((1, 2), (3, 4)), 5)"), "selec in (((?, ?), (?, ?)), ?)");
    assert_eq!(shown("in ((a, (1, 2)), ((3, 4), (5, 6)))"), "selec in ((a, (?, ?)), ((?, ?), (?, ?)))");
    assert_eq!(shown("in ((f(1), in (2, 3)), 5, 6)"), "selec in ((f (?), in (?)), ?)");
    assert_eq!(
        shown("in ((1, a in ((2, 3), (4, 5))), (6, 7), (8, 9))"),
        "selec in ((?, a in ((?, ?), (?, ?))), (?, ?))"
    );
}

#[test]
fn a_slash_that_opens_a_comment_does_not_close_it() {
    templates(
        "gmps",
        &[
            ("SELECT a /**/, b FROM t", "SELECT a, b FROM t"),
            ("SELECT a /***/, b FROM t", "SELECT a, b FROM t"),
        ],
    );
    templates("ms", &[("SELECT a /*/ , b /*/ FROM t", "SELECT a FROM t")]);
    templates("gp", &[("SELECT a /*/ , b */ FROM t", "SELECT a FROM t")]);
    templates("gp", &[("SELECT a /*/ /*/ , b */ */ FROM t", "SELECT a FROM t")]);
}

/// An executable comment has one end, and its version as many digits as there are.
#[test]
fn code_in_a_comment_begins_behind_its_version_and_ends_once() {
    templates(
        "m",
        &[
            ("SELECT a /*!100100 + 1 */ FROM t", "SELECT a + ? FROM t"),
            ("SELECT a /*!100100, b*/, c FROM t", "SELECT a, b, c FROM t"),
            ("SELEC a /*!50000 b */ c */ d", "selec a b c */ d"),
            ("SELEC /*! a */ b /*! c */ d */", "selec a b c d */"),
        ],
    );
}

/// A dollar sign in front of the closing tag belongs to the text.
#[test]
fn a_dollar_quote_ends_at_the_first_tag() {
    templates(
        "gp",
        &[
            ("SELECT $x$ 5 $$x$, a FROM t", "SELECT ?, a FROM t"),
            ("SELECT $x$ $y$ 5 $x$, a FROM t", "SELECT ?, a FROM t"),
            ("SELECT $$5$$, a, $$$$, b FROM t", "SELECT ?, a, ?, b FROM t"),
        ],
    );
}

#[test]
fn an_exponent_has_its_sign_whatever_the_case_of_its_letter() {
    templates(
        "gmps",
        &[
            ("SELECT 1.5E+3, 2E-7 FROM t", "SELECT ?, ? FROM t"),
            ("SELECT 1.5e+3, 2e-7 FROM t", "SELECT ?, ? FROM t"),
        ],
    );
}

/// MySQL escapes in all of its strings, with a prefix or without.
#[test]
fn a_backslash_escapes_in_a_string_with_a_prefix() {
    templates("m", &[(r"SELECT N'it\'s', a FROM t WHERE b = '\\'", "SELECT ?, a FROM t WHERE b = ?")]);
    templates("gps", &[(r"SELECT N'\', a FROM t", "SELECT ?, a FROM t")]);
}
