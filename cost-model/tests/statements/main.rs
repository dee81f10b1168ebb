//! Fingerprints by example: which texts are the same statement, which are not, and what a template shows.

use tidegate_cost_model::{Fingerprinter, SqlDialect, StatementKind, Template};

mod borders;
mod conditional;
mod hints;
mod kinds;
mod tokens;

/// Each dialect with its letter.
const DIALECTS: [(char, SqlDialect); 4] = [
    ('g', SqlDialect::Generic),
    ('m', SqlDialect::MySql),
    ('p', SqlDialect::PostgreSql),
    ('s', SqlDialect::SQLite),
];

/// Dialect letters (g, m, p, s), texts that are one statement, its template and kind.
type Case = (&'static str, &'static [&'static str], &'static str, StatementKind);

const SAME: &[Case] = &[
    (
        "gmps",
        &[
            "SELECT a FROM t WHERE id = 1",
            "select  a\nfrom t where id=42;",
            "SELECT a FROM t WHERE id = -7 -- note",
            "/* note */ SELECT a FROM t /* x */ WHERE id = 1.5e-3",
            "; select a from t where id = 0x1F ;;",
            "select a from t where id = 'it''s'",
            "select a from t where id = NULL",
            "select a from t where id = +.5",
            "select /*+ RESOURCE_GROUP(rg1) USE_INDEX(t, i) */ a from t where id = 3",
        ],
        "SELECT a FROM t WHERE id = ?",
        StatementKind::Select,
    ),
    (
        "gmps",
        &[
            "SELECT * FROM s.t WHERE a IN (1)",
            "SELECT * FROM s.t WHERE a IN (1, 2,3 , -4)",
            "SELECT * FROM s.t WHERE a IN ('x', NULL, 3)",
            "SELECT * FROM s.t WHERE a IN (- 1, 3)",
            "SELECT * FROM s.t WHERE a IN (1, - 2, 3)",
        ],
        "SELECT * FROM s.t WHERE a IN (?)",
        StatementKind::Select,
    ),
    (
        "gmps",
        &[
            "SELECT * FROM t WHERE (a, b) IN ((1, 2))",
            "SELECT * FROM t WHERE (a, b) IN ((1, 2), (3, 'x'), (NULL, -5))",
            "SELECT * FROM t WHERE (a, b) IN ((1, 2), (- 3, 4))",
        ],
        "SELECT * FROM t WHERE (a, b) IN ((?, ?))",
        StatementKind::Select,
    ),
    (
        "gmps",
        &[
            "INSERT INTO t (a, b) VALUES (1, 'x')",
            "INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'y;)('), (3, f(4, (5)))",
            "insert into t(a,b) values (true,'x'),(2,'cut he",
            "insert into t(a,b) values (true,'x'),(2,'y'),(f(4, 5),'cut he",
        ],
        "INSERT INTO t (a, b) VALUES (?, ?)",
        StatementKind::Insert,
    ),
    (
        "p",
        &[
            "SELECT a FROM t WHERE b = $1 AND c = $2",
            "SELECT a FROM t WHERE b = $$it's$$ AND c = $x$ $$ $x$",
            r"SELECT a FROM t WHERE b = E'it\'s' AND c = e'\\'",
            "SELECT a FROM t WHERE b = X'ff' AND c = B'01'",
            r"SELECT a FROM t WHERE b = '\' AND c = U&'\0061'",
            "SELECT a FROM t WHERE b = /* a /* nested */ b */ 1 AND c = 2",
            "SELECT a FROM t WHERE b = 'one'\n 'string' AND c = 2",
        ],
        "SELECT a FROM t WHERE b = ? AND c = ?",
        StatementKind::Select,
    ),
    (
        "m",
        &[
            "SELECT `a` FROM t WHERE b = ? AND c = ?",
            r#"SELECT `a` FROM t WHERE b = 'it\'s' AND c = "it's""#,
            "SELECT `a` FROM t # note ' \n WHERE b = 1 AND c = N'x'",
            "SELECT `a` FROM t /*!40001 WHERE b = 1 */ AND c = 2",
            "/*!50000 SELECT /*+ USE_INDEX(t, i) */ `a` FROM t WHERE b = 1 */ AND c = 2",
        ],
        "SELECT `a` FROM t WHERE b = ? AND c = ?",
        StatementKind::Select,
    ),
    (
        "gs",
        &["SELECT a FROM t WHERE b = :name AND c = ?1", "SELECT a FROM t WHERE b = 1 AND c = $c"],
        "SELECT a FROM t WHERE b = ? AND c = ?",
        StatementKind::Select,
    ),
    (
        "s",
        &["SELECT [a b] FROM t WHERE b = @x", "SELECT [a b] FROM t WHERE b = '\\'"],
        "SELECT [a b] FROM t WHERE b = ?",
        StatementKind::Select,
    ),
    (
        "gp",
        &["SELECT * FROM t WHERE a = ANY(ARRAY[1,2,3])", "SELECT * FROM t WHERE a = ANY(ARRAY[4])"],
        "SELECT * FROM t WHERE a = ANY(ARRAY[?])",
        StatementKind::Select,
    ),
    (
        "gp",
        &["SELECT ARRAY[1, c, 2], ARRAY[- 1, 2, - 3]", "SELECT ARRAY[1, c, - 2], ARRAY[1]"],
        "SELECT ARRAY[?, c, ?], ARRAY[?]",
        StatementKind::Select,
    ),
    ("m", &["VALUES ROW(1), ROW(2)", "VALUES ROW(1)"], "VALUES ROW(?)", StatementKind::Select),
    ("p", &["LISTEN a"], "LISTEN a", StatementKind::Other),
    (
        "p",
        &["SELECT a->>'k', b::numeric(10, 2), c[1:2] FROM t WHERE d @> '{}' AND e ? 'f' LIMIT 5"],
        "SELECT a ->> ?, b::NUMERIC(?,?), c[?:?] FROM t WHERE d @> ? AND e ? ? LIMIT ?",
        StatementKind::Select,
    ),
    (
        "m",
        &["INSERT INTO t VALUES (1, 2), (3, 4) ON DUPLICATE KEY UPDATE a = VALUES(a), b = b + 1"],
        "INSERT INTO t VALUES (?, ?) ON DUPLICATE KEY UPDATE a = values(a), b = b + ?",
        StatementKind::Insert,
    ),
    (
        "m",
        &[
            "INSERT INTO t VALUES (1, 2), (3, 4) ON DUPLICATE KEY UPDATE a = GREATEST(VALUES(a), (5))",
            "INSERT INTO t VALUES (1, 2) ON DUPLICATE KEY UPDATE a = GREATEST(VALUES(a), (6))",
        ],
        "INSERT INTO t VALUES (?, ?) ON DUPLICATE KEY UPDATE a = greatest(values(a), (?))",
        StatementKind::Insert,
    ),
    (
        "m",
        &[
            "INSERT INTO t VALUES (1), (2) ON DUPLICATE KEY UPDATE a = IFNULL(VALUES(a), (b)); VALUES ROW(1), ROW(2)",
            "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = IFNULL(VALUES(a), (b)); VALUES ROW(3)",
        ],
        "INSERT INTO t VALUES (?) ON DUPLICATE KEY UPDATE a = ifnull(values(a), (b)); VALUES ROW(?)",
        StatementKind::Other,
    ),
    (
        "m",
        &["INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = IF(VALUES(a) > (b), (b), (VALUES(a)))"],
        "INSERT INTO t VALUES (?) ON DUPLICATE KEY UPDATE a = if(values(a) > (b), (b), (values(a)))",
        StatementKind::Insert,
    ),
    (
        "gmps",
        &["UPDATE t SET a = a - 1, b = NULL WHERE c IS NULL"],
        "UPDATE t SET a = a - ?, b = ? WHERE c IS NULL",
        StatementKind::Update,
    ),
    (
        "gmps",
        &["DELETE FROM t WHERE a BETWEEN -1 AND -2", "DELETE FROM t WHERE a BETWEEN 1 AND 2"],
        "DELETE FROM t WHERE a BETWEEN ? AND ?",
        StatementKind::Delete,
    ),
    (
        "gmps",
        &["CREATE TABLE t (a VARCHAR(10) NOT NULL)", "create table t (a varchar(20) not null)"],
        "CREATE TABLE t (a VARCHAR(?) NOT NULL)",
        StatementKind::Ddl,
    ),
    ("gmps", &["DROP TABLE t"], "DROP TABLE t", StatementKind::Ddl),
    ("gmps", &["BEGIN"], "BEGIN", StatementKind::Transaction),
    ("gmps", &["COMMIT;"], "COMMIT", StatementKind::Transaction),
    ("mp", &["SET a = 5", "SET a = 'x'"], "SET a = ?", StatementKind::Set),
    ("gmp", &["SHOW TABLES"], "SHOW TABLES", StatementKind::Show),
    ("gmps", &["EXPLAIN SELECT 1"], "EXPLAIN SELECT ?", StatementKind::Show),
    ("p", &["EXPLAIN ANALYZE DELETE FROM t"], "EXPLAIN ANALYZE DELETE FROM t", StatementKind::Delete),
    ("gmp", &["CALL p(1)", "CALL p(2)"], "CALL p(?)", StatementKind::Call),
    ("p", &["COPY t FROM STDIN"], "COPY t FROM STDIN", StatementKind::Copy),
    ("gmps", &["", " ;; -- nothing"], "", StatementKind::Other),
    ("gmps", &["SELECT 1; SELECT a", "select 2;;select a;"], "SELECT ?; SELECT a", StatementKind::Select),
    ("gmps", &["SELECT 1; COMMIT"], "SELECT ?; COMMIT", StatementKind::Other),
    (
        "m",
        &["CREATE RESOURCE GROUP rg1 RU_PER_SEC = 500", "create resource group RG1 ru_per_sec=7"],
        "create resource group rg1 ru_per_sec = ?",
        StatementKind::Unknown,
    ),
    (
        "p",
        &["SELECT a ` 'one' FROM t WHERE b = 1", "SELECT a ` 'two' FROM t WHERE b = 2"],
        "select a ` ? from t where b = ?",
        StatementKind::Unknown,
    ),
    (
        "gmps",
        &["SELEC a FROM t WHERE b IN (1, 2)", "selec a from t where b in ('x')"],
        "selec a from t where b in (?)",
        StatementKind::Unknown,
    ),
];

fn dialects(letters: &str) -> impl Iterator<Item = SqlDialect> {
    DIALECTS.into_iter().filter(move |(letter, _)| letters.contains(*letter)).map(|(_, of)| of)
}

#[test]
fn texts_of_one_statement_share_template_and_kind() {
    let mut wrong = Vec::new();
    for (letters, texts, template, kind) in SAME {
        for dialect in dialects(letters) {
            let fingerprinter = Fingerprinter::new(dialect);
            for text in *texts {
                let made = fingerprinter.fingerprint(text);
                if (made.text(), made.kind()) != (*template, *kind) {
                    wrong.push(format!(
                        "{dialect:?} {text}\n   {} {}\n   {template} {kind}",
                        made.kind(),
                        made.text()
                    ));
                }
                assert_eq!(*made, Template::new(dialect, text), "the cache changes nothing: {text}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn different_statements_differ() {
    let texts = [
        "SELECT a FROM t",
        "SELECT a, b FROM t",
        "SELECT ab FROM t",
        "SELECT a b FROM t",
        "SELECT \"a\" FROM t",
        "SELECT \"A\" FROM t",
        "SELECT a FROM t WHERE b = 1",
        "SELECT a FROM t WHERE b < 1",
        "SELECT a FROM t WHERE b <= 1",
        "SELECT a FROM t WHERE b IS NULL",
        "SELECT a FROM t WHERE b IS NOT NULL",
        "SELECT a FROM t WHERE b IN (1, c)",
        "SELECT a FROM t WHERE b IN (c, 1)",
        "SELECT a FROM t WHERE b IN (1)",
        "SELECT a FROM t WHERE b NOT IN (1)",
        "SELECT a FROM t WHERE (b) IN ((1, 2), (c, 3))",
        "SELECT a FROM t WHERE (b) IN ((1, 2))",
        "SELECT f(1)",
        "SELECT f(1, 2)",
        "SELECT f(1, 2, 3)",
        "SELECT a - 1",
        "SELECT a, -1",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (1, 2)",
        "INSERT INTO t VALUES (1), (2) RETURNING a",
        "INSERT INTO t VALUES (DEFAULT)",
        "UPDATE t SET a = 1",
        "UPDATE t SET b = 1",
        "DELETE FROM t",
        "SELEC 1",
        "SELEC 1, 2",
        "SELEC a <<<<<<<<< b",
        "SELEC a <<<<<<<<> b",
    ];
    for dialect in [SqlDialect::Generic, SqlDialect::PostgreSql] {
        let fingerprinter = Fingerprinter::new(dialect);
        for (index, one) in texts.iter().enumerate() {
            for other in &texts[..index] {
                let (one, other) = (fingerprinter.fingerprint(one), fingerprinter.fingerprint(other));
                assert_ne!(one.fingerprint(), other.fingerprint(), "{} | {}", one.text(), other.text());
            }
        }
        let stats = fingerprinter.stats();
        assert_eq!(stats.misses, texts.len() as u64, "each text has its own key");
    }
}

/// A hint that begins in a repeated row is taken back with the row, in the key and in the template alike.
#[test]
fn texts_with_one_key_have_one_template() {
    let fingerprinter = Fingerprinter::new(SqlDialect::MySql);
    for text in [
        "INSERT INTO t VALUES (1) AS x",
        "INSERT INTO t VALUES (1), (2 /*+ RESOURCE_GROUP(rg1) */) AS x",
        "INSERT INTO t VALUES (1), (2 /*+ RESOURCE_GROUP(rg1)) AS x",
        "INSERT INTO t VALUES (1), (2 /*+ ) AS x",
    ] {
        assert_eq!(*fingerprinter.fingerprint(text), Template::new(SqlDialect::MySql, text), "{text}");
    }
}

#[test]
fn a_fingerprint_is_the_same_for_ever() {
    let template = Template::new(SqlDialect::MySql, "SELECT a FROM t WHERE id = 1");
    assert_eq!(template.fingerprint().to_string(), "acf883f0d2fd6228");
}

#[test]
fn tables_and_the_group_of_a_hint_are_found() {
    for (text, tables, group) in [
        ("SELECT * FROM a JOIN s.b ON a.x = b.x, a AS c", &["a", "s.b"][..], None),
        ("WITH q AS (SELECT * FROM a) SELECT * FROM q WHERE x IN (SELECT y FROM d)", &["a", "d"], None),
        ("INSERT INTO a SELECT * FROM b", &["a", "b"], None),
        ("UPDATE a SET x = 1", &["a"], None),
        ("DELETE FROM a WHERE x = 1", &["a"], None),
        ("SELECT /*+ RESOURCE_GROUP(Rg1) */ 1", &[], Some("rg1")),
        ("SELECT /*+ A(1) resource_group ( `my group` ) B */ -1", &[], Some("my group")),
        ("SELECT /*+ RESOURCE_GROUP(a) RESOURCE_GROUP(b) */ 1", &[], Some("a")),
        ("SELEC /*+ RESOURCE_GROUP(rg1) */ 1", &[], Some("rg1")),
        ("/*!50000 SELECT /*+ RESOURCE_GROUP(rg1) */ x FROM a */ WHERE x = 1", &["a"], Some("rg1")),
        ("SELECT /* RESOURCE_GROUP(rg1) */ 1", &[], None),
        ("SELECT '/*+ RESOURCE_GROUP(rg1) */'", &[], None),
        ("SELECT /*+ RESOURCE_GROUP() */ resource_group(rg1)", &[], None),
        // What a row that repeats takes back is what it brought, and no more.
        ("INSERT /*+ RESOURCE_GROUP(rg1) */ INTO t VALUES (1), (2)", &["t"], Some("rg1")),
        ("SELECT /*+ VALUES (1), (2) RESOURCE_GROUP(rg1) */ 1", &[], Some("rg1")),
        ("INSERT INTO t VALUES (1), (2 /*+ RESOURCE_GROUP */) /*+ (rg1) */", &["t"], None),
    ] {
        let template = Template::new(SqlDialect::MySql, text);
        assert_eq!(
            (template.tables(), template.resource_group()),
            (&tables.iter().map(|&t| t.to_owned()).collect::<Vec<_>>()[..], group),
            "{text}"
        );
    }
    let fingerprinter = Fingerprinter::new(SqlDialect::MySql);
    let groups =
        ["a", "b"].map(|group| fingerprinter.fingerprint(format!("SELECT /*+ RESOURCE_GROUP({group}) */ 1")));
    assert_eq!(groups[0].fingerprint(), groups[1].fingerprint(), "a hint does not make another statement");
    assert_eq!(
        groups.map(|template| template.resource_group().map(str::to_owned)),
        [Some("a".into()), Some("b".into())]
    );
}

#[test]
fn names_and_tables_are_kept_up_to_their_limits() {
    for (length, kept) in [(128, true), (129, false)] {
        let name = "g".repeat(length);
        let template = Template::new(SqlDialect::MySql, format!("SELECT /*+ RESOURCE_GROUP({name}) */ 1"));
        assert_eq!(template.resource_group(), kept.then_some(&*name), "{length}");
    }
    let from: Vec<_> = (0..40).map(|table| format!("t{table}")).collect();
    let template = Template::new(SqlDialect::Generic, format!("SELECT 1 FROM {}", from.join(", ")));
    assert_eq!(template.tables(), &from[..32]);
    // Each column is a name and a comma, but the last, and the verb makes up for that comma.
    for (columns, kind) in [(1_024, StatementKind::Select), (1_025, StatementKind::Unknown)] {
        let columns = vec!["a"; columns].join(", ");
        assert_eq!(Template::new(SqlDialect::Generic, format!("SELECT {columns}")).kind(), kind);
    }
}

/// All of several named queries, also those of a query within, are no tables.
#[test]
fn no_named_query_is_a_table() {
    for (text, tables) in [
        ("WITH p AS (SELECT 1 FROM a), q AS (SELECT 2 FROM p) SELECT * FROM q, b", &["a", "b"][..]),
        ("SELECT * FROM (WITH p AS (SELECT 1), q AS (SELECT 2) SELECT * FROM p, q, c) AS x", &["c"]),
    ] {
        for dialect in dialects("gmps") {
            assert_eq!(Template::new(dialect, text).tables(), tables, "{dialect:?} {text}");
        }
    }
}

/// A named query is known in what follows it, and to itself and those before it only where the whole is recursive.
#[test]
fn a_table_is_hidden_only_where_a_query_of_its_name_is_known() {
    for (text, tables) in [
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", &["t"][..]),
        ("WITH p AS (SELECT * FROM q), q AS (SELECT * FROM p) SELECT * FROM q", &["q"]),
        ("WITH p AS (SELECT 1), q AS (SELECT * FROM r), r AS (SELECT 2) SELECT * FROM p, q, r", &["r"]),
        ("WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT * FROM t) SELECT * FROM t", &[]),
        ("SELECT * FROM (WITH p AS (SELECT 1) SELECT * FROM p) AS x, p", &["p"]),
        ("WITH p AS (SELECT 1) SELECT * FROM (WITH q AS (SELECT * FROM p) SELECT * FROM q) AS x", &[]),
        (
            "WITH p AS (WITH q AS (SELECT * FROM a) SELECT * FROM q), r AS (SELECT * FROM q) SELECT * FROM p, r",
            &["a", "q"],
        ),
        ("INSERT INTO t WITH t AS (SELECT 1) SELECT * FROM t", &["t"]),
        ("WITH p AS (SELECT 1) SELECT * FROM p; SELECT * FROM p", &["p"]),
        ("WITH t AS (SELECT 1) INSERT INTO t SELECT * FROM t", &["t"]),
        ("WITH t AS (SELECT 1) INSERT INTO t2 SELECT * FROM t", &["t2"]),
        ("WITH t AS (SELECT 1), u AS (SELECT 2) INSERT INTO u SELECT * FROM t, u, v", &["u", "v"]),
    ] {
        for dialect in dialects("gmps") {
            assert_eq!(Template::new(dialect, text).tables(), tables, "{dialect:?} {text}");
        }
    }
}

#[test]
fn a_common_table_expression_takes_no_place_of_a_table() {
    let from: Vec<_> = (0..40).map(|table| format!("t{table}")).collect();
    let named = format!("WITH q AS (SELECT 1 FROM t0) SELECT 1 FROM q, {}", from[1..].join(", "));
    assert_eq!(Template::new(SqlDialect::Generic, named).tables(), &from[..32]);
}
