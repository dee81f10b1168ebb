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

/// A query that changes rows in its body is a change, whatever is named before it.
#[test]
fn what_follows_named_queries_gives_the_kind() {
    use StatementKind::{Ddl, Delete, Insert, Other, Select, Update};
    kinds(
        "gp",
        &[
            ("WITH q AS (SELECT 1) INSERT INTO t SELECT * FROM q", Insert),
            ("WITH q AS (SELECT 1) UPDATE t SET a = 1", Update),
            ("WITH q AS (SELECT 1) DELETE FROM t", Delete),
            ("WITH q AS (SELECT 1) SELECT * FROM q UNION SELECT 2", Select),
            // The rows that the server reports are those of the last query.
            ("WITH q AS (DELETE FROM t RETURNING a) SELECT count(*) FROM q", Other),
            ("WITH p AS (SELECT 1), q AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM q", Other),
            ("WITH q AS (UPDATE t SET a = 1 RETURNING a) INSERT INTO u SELECT a FROM q", Other),
            ("(WITH q AS (DELETE FROM t RETURNING a) SELECT count(*) FROM q)", Other),
            ("SELECT * INTO u FROM t", Ddl),
            ("SELECT * INTO TEMP u FROM t", Ddl),
        ],
    );
    kinds("m", &[("WITH q AS (SELECT 1) DELETE FROM t", Delete), ("REPLACE INTO t VALUES (1)", Insert)]);
    kinds("m", &[("SELECT a, b INTO @a, @b FROM t", Select)]);
}

#[test]
fn what_ends_a_transaction_or_a_part_of_one_is_of_its_kind() {
    use StatementKind::Transaction;
    let all = ["START TRANSACTION", "COMMIT", "ROLLBACK", "SAVEPOINT a", "RELEASE SAVEPOINT a"];
    kinds("gmps", &all.map(|text| (text, Transaction)));
    let options = [
        "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY",
        "COMMIT AND CHAIN",
        "END",
        "ABORT",
        "ROLLBACK TO SAVEPOINT a",
        "ROLLBACK TO a",
        "LOCK TABLE t IN EXCLUSIVE MODE",
    ];
    kinds("p", &options.map(|text| (text, Transaction)));
    kinds("m", &["BEGIN WORK", "LOCK TABLES t READ", "UNLOCK TABLES"].map(|text| (text, Transaction)));
}

/// The parser has none of these forms, and takes nothing in their place.
#[test]
fn forms_of_mysql_and_tidb_that_do_not_parse_are_known_by_their_words() {
    use StatementKind::{Copy, Transaction, Unknown};
    kinds(
        "m",
        &[
            ("LOAD DATA INFILE 'a' INTO TABLE t", Copy),
            ("load data local infile 'a;b' into table t fields terminated by ';' (a, @b) set c = @b;", Copy),
            ("LOAD DATA LOW_PRIORITY LOCAL INFILE 'a' REPLACE INTO TABLE `t`", Copy),
            ("LOAD /* a */ DATA CONCURRENT INFILE 'a' INTO TABLE t", Copy),
            ("LOAD DATA GLOBAL INFILE 'a' INTO TABLE t", Unknown),
            ("LOAD DATA LOCAL INFILE 'a' INTO TABLE t; DELETE FROM t", Unknown),
            ("START TRANSACTION WITH CONSISTENT SNAPSHOT", Transaction),
            ("start transaction with consistent snapshot, read only;", Transaction),
            ("START TRANSACTION READ WRITE, WITH CONSISTENT SNAPSHOT", Transaction),
            ("START TRANSACTION WITH CAUSAL CONSISTENCY ONLY", Transaction),
            ("START TRANSACTION WITH CONSISTENT SNAPSHOT; DELETE FROM t", Unknown),
            ("START TRANSACTION WITH CONSISTENT SNAPSHOT DELETE FROM t", Unknown),
            ("START TRANSACTION WITH", Unknown),
            ("BEGIN PESSIMISTIC", Transaction),
            ("BEGIN OPTIMISTIC", Transaction),
            ("BEGIN OPTIMISTIC a", Unknown),
        ],
    );
    kinds("p", &[("START TRANSACTION WITH CONSISTENT SNAPSHOT", Unknown), ("LOAD DATA INFILE 'a'", Unknown)]);
}

#[test]
fn what_concerns_the_session_the_schema_or_the_server_is_told_apart() {
    use StatementKind::{Call, Copy, Ddl, Other, Select, Set, Show, Update};
    kinds(
        "p",
        &[
            ("SET LOCAL a TO 5", Set),
            ("SET TRANSACTION READ ONLY", Set),
            ("RESET ALL", Set),
            ("DISCARD ALL", Set),
            ("SHOW search_path", Show),
            ("TRUNCATE t", Ddl),
            ("GRANT SELECT ON t TO a", Ddl),
            ("REVOKE SELECT ON t FROM a", Ddl),
            ("COMMENT ON TABLE t IS 'x'", Ddl),
            ("COPY (SELECT 1) TO STDOUT", Copy),
            ("FETCH 5 FROM c", Select),
            ("SELECT a FROM t FOR UPDATE", Select),
            ("SELECT a INTO b FROM t", Ddl),
            ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = 1", Update),
            ("DECLARE c CURSOR FOR SELECT 1", Other),
            ("EXECUTE a(1)", Other),
            ("CALL p()", Call),
        ],
    );
    kinds(
        "m",
        &[
            ("USE a", Set),
            ("SET NAMES utf8mb4", Set),
            ("DESC t", Show),
            ("SHOW WARNINGS", Show),
            ("EXPLAIN ANALYZE FORMAT=TREE SELECT 1 FROM t", Select),
            ("EXPLAIN FORMAT=JSON SELECT 1 FROM t", Show),
            ("KILL 5", Other),
        ],
    );
    kinds("s", &[("PRAGMA a = 1", Set)]);
}

/// What is asked about the database itself, in the words of MySQL.
#[test]
fn whatever_is_shown_is_of_one_kind() {
    let shown = [
        "DATABASES",
        "SCHEMAS",
        "TABLES",
        "FULL TABLES",
        "COLUMNS FROM t",
        "VARIABLES",
        "GLOBAL STATUS",
        "COLLATION",
        "CREATE TABLE t",
        "PROCESSLIST",
        "CHARACTER SET",
        "FUNCTIONS",
    ];
    for what in shown {
        kinds("m", &[(&format!("SHOW {what}"), StatementKind::Show)]);
    }
    kinds("gp", &[("SHOW search_path", StatementKind::Show), ("DESCRIBE t", StatementKind::Show)]);
}
