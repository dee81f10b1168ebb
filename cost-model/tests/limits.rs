//! Fingerprints by property: literals never count, structure does, and no text can hurt.

#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_cost_model::{Fingerprinter, SqlDialect, StatementKind, Template};

const DIALECTS: [SqlDialect; 4] =
    [SqlDialect::Generic, SqlDialect::MySql, SqlDialect::PostgreSql, SqlDialect::SQLite];

/// Half of the smallest stack that a worker thread has by default.
const STACK: usize = 1 << 20;

#[test]
fn signs_that_follow_each_other_are_no_comment() {
    for (text, template) in [
        ("SELECT - -a FROM t", "SELECT - -a FROM t"),
        ("SELECT 1 - - - -a FROM t", "SELECT ? - - - -a FROM t"),
        ("SELECT - - -\"a--b\" FROM t", "SELECT ---\"a--b\" FROM t"),
    ] {
        assert_eq!(Template::new(SqlDialect::Generic, text).text(), template);
    }
}

#[test]
fn a_value_that_runs_into_a_string_hides_the_rest() {
    for dialect in [SqlDialect::Generic, SqlDialect::PostgreSql] {
        for value in [
            "1$x$ secret $x$",
            "1.5e3$x$ secret",
            "0x1f$$ secret $$",
            "$1$x$ secret",
            "2x$$it's$$ secret'",
            "2E'it\\'s' AND c = 'a secret'",
        ] {
            let template = Template::new(dialect, format!("SELECT a FROM t WHERE b = {value}"));
            assert_eq!(template.text().to_lowercase(), "select a from t where b = ?", "{value}");
        }
    }
}

#[test]
fn a_string_behind_what_may_be_a_name_hides_the_rest() {
    let template = Template::new(SqlDialect::Generic, "SELECT @q'xit's' AND c = 'a secretx'");
    assert_eq!(template.text(), "select @ ?");
    let other = Template::new(SqlDialect::PostgreSql, "SELECT @E'5' AND c = 1");
    assert_eq!(other.text(), "SELECT @? AND c = ?");
}

#[test]
fn a_raw_string_hides_the_rest() {
    for prefix in ["r", "R", "rb", "bR"] {
        for value in ["'''it's a secret'''", "'a\\' secret'", "\"\"\"5\" secret\"\"\"", "\"secret\" = 'b'"] {
            let template =
                Template::new(SqlDialect::Generic, format!("SELECT a FROM t WHERE b = {prefix}{value}"));
            assert_eq!(template.text().to_lowercase(), "select a from t where b = ?", "{prefix}{value}");
        }
    }
    let bytes = Template::new(SqlDialect::Generic, "SELECT a FROM t WHERE b = B\"a secret\"");
    assert_eq!(bytes.text(), "SELECT a FROM t WHERE b = ?");
    let bits = Template::new(SqlDialect::Generic, "SELECT a FROM t WHERE b = B'01' AND c = 1");
    assert_eq!(bits.text(), "SELECT a FROM t WHERE b = ? AND c = ?");
    let alias = Template::new(SqlDialect::PostgreSql, "SELECT a r\"b\" FROM t");
    assert_eq!(alias.text(), "select a r \"b\" from t");
}

#[test]
fn a_string_between_delimiters_of_its_own_is_a_literal() {
    for text in ["q'[it's a secret]'", "NQ'xit's a secretx'", "Q'äit's a secretä'", "q'[it's a secret"] {
        let template = Template::new(SqlDialect::Generic, format!("SELECT a FROM t WHERE b = {text}"));
        assert_eq!(template.text().to_lowercase(), "select a from t where b = ?", "{text}");
    }
    let other = Template::new(SqlDialect::PostgreSql, "SELECT q'[it''s]' AND c = 1");
    assert_eq!(other.text(), "select q ? and c = ?");
}

#[test]
fn the_cache_is_bounded_counts_and_is_shared() {
    let fingerprinter = Fingerprinter::with_capacity(SqlDialect::Generic, 64);
    for column in 0..1_000 {
        fingerprinter.fingerprint(format!("SELECT c{column} FROM t"));
    }
    let stats = fingerprinter.stats();
    assert_eq!((stats.hits, stats.misses, stats.capacity), (0, 1_000, 64));
    assert!(stats.entries <= 64);
    assert_eq!(stats.evictions + stats.entries as u64, 1_000);

    let threads: Vec<_> = std::thread::scope(|scope| {
        let spawn = |_| scope.spawn(|| fingerprinter.fingerprint("SELECT shared FROM t WHERE a = 1"));
        (0..4).map(spawn).collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(threads.iter().all(|template| Arc::ptr_eq(template, &threads[0])));
}

#[test]
fn no_more_templates_are_kept_than_memory_is_meant_for() {
    let most = Fingerprinter::MAX_CAPACITY;
    assert_eq!(Fingerprinter::with_capacity(SqlDialect::Generic, most + 1).stats().capacity, most);
}

/// Texts that make a parser recurse or run long, on half of a worker thread's stack.
#[test]
fn deep_and_long_texts_neither_overflow_the_stack_nor_lose_their_fingerprint() {
    let chain = |link: &str, links| format!("SELECT a{}", link.repeat(links));
    let nested =
        |open: &str, close: &str, depth| format!("SELECT {}1{}", open.repeat(depth), close.repeat(depth));
    let texts = [
        nested("(", ")", 100_000),
        nested("(", ")", 45),
        nested("(SELECT ", ")", 500),
        nested("f(", ")", 900),
        nested("CASE WHEN ", " THEN 1 END", 300),
        "(".repeat(200_000),
        chain(" + a", 1_000),
        chain(" OR a", 1_000),
        chain("::b", 1_000),
        chain(" IS NULL", 1_000),
        chain("[b]", 600),
        chain(" + a", 200_000),
        chain(" UNION SELECT a", 600),
        chain(", a", 100_000),
        format!("SELECT {} a", "NOT ".repeat(2_000)),
        format!("SELECT {} a", "- ".repeat(2_000)),
        format!("SELECT {} a", "!".repeat(2_000)),
        format!("SELECT a FROM t {}", "JOIN t ON a ".repeat(500)),
        format!("SELECT a FROM {}t{}", "(".repeat(40), ")".repeat(40)),
    ];
    let run = move || {
        for text in &texts {
            for dialect in DIALECTS {
                assert_eq!(Template::new(dialect, text), Template::new(dialect, text));
            }
        }
    };
    std::thread::Builder::new().stack_size(STACK).spawn(run).unwrap().join().unwrap();
}
/// Rows that repeat the first are no tokens of the text, and leave those before them counted.
#[test]
fn a_text_of_more_tokens_than_are_parsed_is_not_parsed_whatever_rows_follow() {
    let kind = |links: usize, rows: &str| {
        let text = format!("INSERT INTO t VALUES (a{}){rows}", " + a".repeat(links));
        Template::new(SqlDialect::Generic, text).kind()
    };
    // Seven tokens and two of each link.
    let most = (Template::MAX_PARSED_TOKENS - 7) / 2;
    for rows in ["", ", (1)", ", (1), (2, 3)"] {
        assert_eq!(kind(most, rows), StatementKind::Insert, "{rows}");
        assert_eq!(kind(most + 1, rows), StatementKind::Unknown, "{rows}");
    }
}

#[test]
fn a_text_beyond_the_limit_counts_as_its_beginning() {
    let insert = |rows: usize| {
        let rows: Vec<_> = (0..rows).map(|row| format!("({row}, 'value {row}', f({row}))")).collect();
        Template::new(SqlDialect::PostgreSql, format!("INSERT INTO t (a, b, c) VALUES {}", rows.join(",")))
    };
    let (one, many) = (insert(1), insert(100_000));
    assert_eq!(one, many);
    assert_eq!(one.kind(), StatementKind::Insert);
    let long = Template::new(SqlDialect::Generic, format!("SELECT {} FROM t", vec!["é"; 20_000].join(",")));
    assert!(long.text().len() <= Template::MAX_TEXT && long.kind() == StatementKind::Unknown);
}

#[test]
fn texts_that_differ_behind_what_is_kept_of_them_are_different_statements() {
    let long = "é".repeat(Template::MAX_TEXT / 2);
    for of in [|tail: &str| format!("{tail} FROM t"), |tail: &str| format!("{tail} NOT QUITE sql")] {
        let [one, other] = ["a", "b"]
            .map(|tail| Template::new(SqlDialect::Generic, format!("SELECT \"{long}\", {}", of(tail))));
        assert_eq!(one.text(), other.text());
        assert!(one.text().len() > Template::MAX_TEXT - 4, "{} bytes", one.text().len());
        assert_ne!(one.fingerprint(), other.fingerprint());
    }
}

/// A statement with places for literals, written `{}`.
const SHAPES: [&str; 8] = [
    "SELECT a, b FROM t WHERE c = {} AND d > {}",
    "SELECT a FROM t WHERE c IN ({}, {}, {}) ORDER BY b LIMIT {}",
    "UPDATE t SET a = {}, b = b + {} WHERE c = {}",
    "INSERT INTO t (a, b) VALUES ({}, {}), ({}, {})",
    "DELETE FROM t WHERE a BETWEEN {} AND {} OR b LIKE {}",
    "SELECT f({}, {}), CASE WHEN a = {} THEN {} ELSE {} END FROM t",
    "NOT QUITE sql ({}, {}) = {}",
    "WITH q AS (SELECT {} AS x) SELECT * FROM q WHERE x <> {}",
];

fn literals() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i32>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        (0_u32..1_000, 0_u32..1_000).prop_map(|(whole, part)| format!("{whole}.{part}")),
        "[0-9a-zé ,()*/;-]{0,12}".prop_map(|text| format!("'{text}'")),
        "([a-z]|''){0,8}".prop_map(|text| format!("'{text}'")),
    ]
}

fn spaces() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![" ", "  ", "\n", "\t ", " /* ' */ ", " -- \"\n"])
}

fn filled(shape: &str, literals: &[String], spaces: &[&str]) -> String {
    let mut literals = literals.iter().cycle();
    let mut spaces = spaces.iter().cycle();
    let words: Vec<_> = shape
        .split(' ')
        .map(|word| {
            let mut word = word.to_owned();
            while word.contains("{}") {
                word = word.replacen("{}", literals.next().unwrap(), 1);
            }
            word + spaces.next().unwrap()
        })
        .collect();
    words.concat()
}

proptest! {
    #[test]
    fn literals_and_spaces_do_not_count_and_shapes_do(
        one in prop::collection::vec(literals(), 5), other in prop::collection::vec(literals(), 5),
        spaces in prop::collection::vec(spaces(), 7), shape in 0..SHAPES.len(), shape2 in 0..SHAPES.len(),
        dialect in prop::sample::select(DIALECTS.to_vec()),
    ) {
        let fingerprinter = Fingerprinter::new(dialect);
        let a = fingerprinter.fingerprint(filled(SHAPES[shape], &one, &[" "]));
        let b = fingerprinter.fingerprint(filled(SHAPES[shape], &other, &spaces));
        prop_assert_eq!(a.fingerprint(), b.fingerprint(), "{} | {}", a.text(), b.text());
        let c = fingerprinter.fingerprint(filled(SHAPES[shape2], &other, &spaces));
        prop_assert_eq!(shape == shape2, a.fingerprint() == c.fingerprint(), "{} | {}", a.text(), c.text());
    }

    #[test]
    fn any_bytes_have_a_template_that_the_cache_agrees_with(
        bytes in prop::collection::vec(any::<u8>(), 0..200), dialect in prop::sample::select(DIALECTS.to_vec()),
    ) {
        prop_assert_eq!(&*Fingerprinter::new(dialect).fingerprint(&bytes), &Template::new(dialect, &bytes));
    }

    #[test]
    fn any_run_of_sql_tokens_has_a_template_and_equal_keys_mean_equal_templates(
        texts in prop::collection::vec(prop::collection::vec(prop::sample::select(TOKENS.to_vec()), 0..14), 12),
        dialect in prop::sample::select(DIALECTS.to_vec()),
    ) {
        let fingerprinter = Fingerprinter::new(dialect);
        for text in texts {
            let text = text.concat();
            prop_assert_eq!(&*fingerprinter.fingerprint(&text), &Template::new(dialect, &text), "{}", text);
        }
    }
}

const TOKENS: [&str; 44] = [
    " ", " ", "select ", "from ", "values", "in", "array", "null", "a", "B", "1", "-", "+", ".", "5", "'",
    "''", "'x'", "\"", "`", "[", "]", "(", ")", ",", ",", ";", "$", "$1", "$$", "?", ":", "::", "@", "#",
    "--", "\n", "/*", "/*+", "/*!", "*/", "\\", "e'", "é",
];
