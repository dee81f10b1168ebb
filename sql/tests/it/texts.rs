//! Any text, in any dialect: read, refused or passed on, and never a panic.

use proptest::prelude::*;
use tidegate_cost_model::SqlDialect;
use tidegate_sql::{MAX_TEXT, Statement, may_be_ours, parse_query_limit, split};

const DIALECTS: [SqlDialect; 4] =
    [SqlDialect::Generic, SqlDialect::MySql, SqlDialect::PostgreSql, SqlDialect::SQLite];

const WORDS: &[&str] = &[
    "CREATE",
    "ALTER",
    "DROP",
    "SHOW",
    "SET",
    "RESOURCE",
    "GROUP",
    "GROUPS",
    "IF",
    "NOT",
    "EXISTS",
    "USER",
    "DATABASE",
    "IN",
    "QUERY",
    "WATCH",
    "ADD",
    "REMOVE",
    "SQL",
    "TEXT",
    "DIGEST",
    "EXACT",
    "SIMILAR",
    "TO",
    "ACTION",
    "KILL",
    "SWITCH_GROUP",
    "DURATION",
    "RU_PER_SEC",
    "PRIORITY",
    "HIGH",
    "BURSTABLE",
    "QUERY_LIMIT",
    "EXEC_ELAPSED",
    "RU",
    "ROWS",
    "NULL",
    "UNLIMITED",
    "EXPLAIN",
    "SELECT",
    "FROM",
    "WHERE",
    "WITH",
    "AS",
    "JOIN",
    "TRUNCATE",
    "TABLE",
    "DELETE",
    "tidegate",
    "statements",
    "usage",
    "information_schema",
    "resource_groups",
    "CURRENT_RESOURCE_GROUP",
    "=",
    "(",
    ")",
    ",",
    ";",
    ".",
    "*",
    "'10m'",
    "'",
    "\"",
    "`",
    "5",
    "0.5",
    "-",
    "@",
    "@'%'",
    "g",
    "`g`",
    "\"g\"",
    "/*",
    "*/",
    "--",
    "\n",
    "#",
    "$$",
    "\\",
    "/*!",
    "?",
    "$1",
    "::",
    "E'",
    "é",
];

fn sentence() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(WORDS);
    let blank = prop_oneof![4 => Just(" "), 1 => Just("")];
    proptest::collection::vec((word, blank), 0..24)
        .prop_map(|words| words.into_iter().flat_map(|(word, blank)| [word, blank]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_refused_or_passed_on(text in prop_oneof!["\\PC{0,80}", sentence()]) {
        for dialect in DIALECTS {
            let read = Statement::parse(&text, dialect);
            if let Err(error) = &read {
                prop_assert!(error.to_string().len() < 1_000);
            }
            prop_assert!(may_be_ours(text.as_bytes()) || read == Ok(None));
            let _ = split(&text, dialect);
        }
        let _ = parse_query_limit(&text);
    }

    #[test]
    fn any_bytes_are_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        may_be_ours(&bytes);
    }

    #[test]
    fn blanks_and_comments_before_do_not_matter(
        blanks in proptest::collection::vec(proptest::sample::select(&[" ", "\n", "\t", "/* x; */", "-- y;\n", ";"][..]), 0..8),
        text in proptest::sample::select(&[
            "SET RESOURCE GROUP g", "DROP RESOURCE GROUP g", "SELECT * FROM tidegate.usage", "EXPLAIN RU SELECT 1",
            "ALTER USER ann RESOURCE GROUP g", "TRUNCATE TABLE tidegate.statements",
        ][..]),
    ) {
        for dialect in DIALECTS {
            let bare = Statement::parse(text, dialect).unwrap();
            prop_assert!(bare.is_some());
            prop_assert_eq!(Statement::parse(&format!("{}{text}", blanks.concat()), dialect), Ok(bare));
        }
    }
}

#[test]
fn deep_and_long_queries_need_little_stack() {
    let read = || {
        for (open, close) in
            [("(", ")"), ("(SELECT ", ")"), ("NOT ", ""), ("1 + ", ""), ("- ", ""), ("f(", ")")]
        {
            let depth = MAX_TEXT / (open.len() + close.len()).max(1) / 2;
            for depth in [40, 400, depth] {
                let text =
                    format!("SELECT {}1{} FROM tidegate.usage", open.repeat(depth), close.repeat(depth));
                for dialect in DIALECTS {
                    let _ = Statement::parse(&text, dialect);
                }
            }
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(read).unwrap().join().unwrap();
}
