//! Comments that are code for some servers only: nothing hides in the template of another text.

use tidegate_cost_model::{Fingerprinter, SqlDialect, StatementKind, Template};

fn template(text: &str) -> Template {
    let template = Template::new(SqlDialect::MySql, text);
    assert_eq!(*Fingerprinter::new(SqlDialect::MySql).fingerprint(text), template, "{text}");
    template
}

#[test]
fn code_for_one_kind_of_server_is_code() {
    for (text, plain) in [
        ("SELECT a /*M!, sleep(9) */ FROM t", "SELECT a, sleep(9) FROM t"),
        ("SELECT a /*M!100100, b*/, c FROM t", "SELECT a, b, c FROM t"),
        ("SELECT a /*T!, sleep(9) */ FROM t", "SELECT a, sleep(9) FROM t"),
        ("SELECT a /*M! /* b */, c */ FROM t", "SELECT a FROM t"),
        ("SELECT a /*m!, b*/ FROM t", "SELECT a FROM t"),
        ("SELECT a /*M, b*/ FROM t", "SELECT a FROM t"),
        ("SELECT a /*X!, b*/ FROM t", "SELECT a FROM t"),
    ] {
        let is_unclear = text.contains("/* b */");
        assert_eq!(template(text) == template(plain), !is_unclear, "{text}: {}", template(text).text());
    }
    let features = template("CREATE TABLE t (a BIGINT /*T![auto_rand] AUTO_RANDOM(5) */)");
    assert!(features.text().contains("auto_random"), "{}", features.text());
    for dialect in [SqlDialect::PostgreSql, SqlDialect::SQLite, SqlDialect::Generic] {
        let commented = Template::new(dialect, "SELECT a /*M!, b */ FROM t");
        assert_eq!(commented, Template::new(dialect, "SELECT a FROM t"), "{dialect:?}");
    }
}

/// Where the comment ends depends on the server: each of these is two statements.
#[test]
fn a_text_that_servers_read_in_two_ways_is_a_statement_of_its_own() {
    let hides =
        |begins: &str, quote: &str, code: &str| format!("SELECT a {begins} {quote} */ {code} -- {quote}");
    let mut seen = Vec::new();
    for begins in ["/*!99999", "/*!50000", "/*M!", "/*M!100100", "/*T!", "/*!99999 /*!"] {
        for quote in ["'", "\"", "`"] {
            for code in [", sleep(8)", ", sleep(9)", "FROM t"] {
                let text = hides(begins, quote, code);
                let made = template(&text);
                assert_eq!(made.kind(), StatementKind::Unknown, "{text}: {}", made.text());
                assert_eq!(template(made.text()), made, "its template is one of itself");
                seen.push(made);
            }
        }
    }
    // What a line comment hides from those for whom it is code.
    for code in ["sleep(8)", "sleep(9)"] {
        seen.push(template(&format!("SELECT a /*!99999 -- */ , {code}")));
        seen.push(template(&format!("SELECT a /*!99999 # */ , {code}")));
        seen.push(template(&format!("SELECT a /*M! /* */ , {code} */")));
    }
    for (at, one) in seen.iter().enumerate() {
        assert!(seen[..at].iter().all(|other| other.fingerprint() != one.fingerprint()), "{}", one.text());
    }
}

#[test]
fn what_ends_at_one_place_for_all_servers_has_no_token_of_its_own() {
    for (text, expected) in [
        ("SELECT a /*!50000 , 'b' */ FROM t", "SELECT a, ? FROM t"),
        ("SELECT a /*!50000 , /* b */ c */ FROM t", "SELECT a, c FROM t"),
        ("SELECT a /*M! , `b` */ FROM t", "SELECT a, `b` FROM t"),
        ("SELECT /*!a*/ FROM t", "SELECT a FROM t"),
        ("SELECT /*!50000a * b */ FROM t", "SELECT a * b FROM t"),
        // All servers of this kind read it as code, whatever it holds.
        ("SELECT a /*! , '*/' */ FROM t", "SELECT a, ? FROM t"),
        ("SELECT a FROM t /*!50000 WHERE b = 1", "SELECT a FROM t WHERE b = ?"),
    ] {
        assert_eq!(template(text).text(), expected, "{text}");
    }
}

/// The template is shown: it holds no value.
#[test]
fn the_token_of_an_unclear_text_shows_nothing_of_it() {
    let made = template("SELECT a /*!99999 ' */ , 'secret' -- '");
    assert!(!made.text().contains("secret"), "{}", made.text());
}
