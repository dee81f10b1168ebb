//! What sort of statement a text is: coarse enough to guess a cost by, and to count by in metrics.
//!
//! In: parsed statements. Out: one kind. An `EXPLAIN` is `Show` unless it also runs the statement; a query that
//! holds an `INSERT`, `UPDATE` or `DELETE` as its body is that, and one that holds it before its body is `Other`: what is
//! said of its rows is not what it changes.

use std::fmt;

use sqlparser::ast::{Expr, Query, SelectInto, SetExpr, Statement, UtilityOption, Value};
use tidegate_core::usage::Usage;

use super::dialect::SqlDialect;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Sort of statement.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum StatementKind {
            $($(#[$doc])* $variant,)*
        }

        impl StatementKind {
            /// All kinds.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant,)*];
            /// How many kinds there are.
            pub const COUNT: usize = [$($name,)*].len();

            /// Lower-case name, as a metric label.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

kinds! {
    /// Reads rows.
    Select "select",
    /// Adds rows, also `REPLACE`.
    Insert "insert",
    /// Changes rows, also `MERGE`.
    Update "update",
    /// Removes rows.
    Delete "delete",
    /// Changes the schema or privileges, also `TRUNCATE`.
    Ddl "ddl",
    /// Begins, ends or locks.
    Transaction "transaction",
    /// Changes the session.
    Set "set",
    /// Asks the server about itself, also `EXPLAIN`.
    Show "show",
    /// Bulk transfer.
    Copy "copy",
    /// Runs a procedure.
    Call "call",
    /// Parses and is none of these, is empty, or is several statements of different kinds.
    Other "other",
    /// Does not parse, and is none of the forms that are known by their words.
    Unknown "unknown",
}

impl StatementKind {
    /// The kind of a text that parsed to `statements`.
    pub(super) fn of(statements: &[Statement]) -> Self {
        let mut kinds = statements.iter().map(Self::of_one);
        match kinds.next() {
            Some(first) if kinds.all(|other| other == first) => first,
            _ => Self::Other,
        }
    }

    /// The kind of a text that does not parse, words in lower case with one space between: of one statement in words
    /// of MySQL's or TiDB's that the parser does not have.
    pub(super) fn of_words(dialect: SqlDialect, text: &str) -> Self {
        let text = text.trim_end_matches(';');
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap_or_default();
        match (next(), next()) {
            // A second statement may be of another kind.
            _ if dialect != SqlDialect::MySql || text.contains(';') => Self::Unknown,
            ("load", "data") if words.find(|word| !LOAD_OPTIONS.contains(word)) == Some("infile") => {
                Self::Copy
            }
            ("begin", "optimistic" | "pessimistic") if words.next().is_none() => Self::Transaction,
            ("start", "transaction") if all_begin(text) => Self::Transaction,
            _ => Self::Unknown,
        }
    }

    fn of_one(statement: &Statement) -> Self {
        match statement {
            Statement::Query(query) => Self::of_query(query),
            Statement::Fetch { .. } => Self::Select,
            Statement::Insert(_) => Self::Insert,
            Statement::Update(_) | Statement::Merge(_) => Self::Update,
            Statement::Delete(_) => Self::Delete,
            Statement::Explain { analyze, options, statement, .. }
                if *analyze || options.as_deref().is_some_and(analyzes) =>
            {
                Self::of_one(statement)
            }
            Statement::Copy { .. } | Statement::LoadData { .. } | Statement::Unload { .. } => Self::Copy,
            Statement::Call(_) => Self::Call,
            other if is_transaction(other) => Self::Transaction,
            other if is_session(other) => Self::Set,
            other if is_question(other) => Self::Show,
            other if is_ddl(other) => Self::Ddl,
            _ => Self::Other,
        }
    }

    fn of_query(query: &Query) -> Self {
        let mut before = query.with.iter().flat_map(|with| &with.cte_tables);
        if before.any(|named| Self::of_query(&named.query) != Self::Select) {
            return Self::Other;
        }
        match &*query.body {
            SetExpr::Insert(_) => Self::Insert,
            SetExpr::Update(_) | SetExpr::Merge(_) => Self::Update,
            SetExpr::Delete(_) => Self::Delete,
            SetExpr::Query(inner) => Self::of_query(inner),
            SetExpr::Select(select) if select.into.as_ref().is_some_and(makes_table) => Self::Ddl,
            SetExpr::Select(_) | SetExpr::SetOperation { .. } | SetExpr::Values(_) | SetExpr::Table(_) => {
                Self::Select
            }
        }
    }

    /// The usage of a statement of this kind when nothing else is known: a point access of 1 KiB for rows, ten writes
    /// for the schema, 64 KiB for bulk. Ours; the first observation replaces it.
    pub const fn typical_usage(self) -> Usage {
        const KIB: u64 = 1_024;
        let (cpu_us, reads, writes, read_bytes, write_bytes) = match self {
            Self::Select => (200, 1, 0, KIB, 0),
            Self::Insert => (300, 0, 1, 0, KIB),
            Self::Update | Self::Delete => (400, 1, 1, KIB, KIB),
            Self::Ddl => (5_000, 10, 10, 10 * KIB, 10 * KIB),
            Self::Transaction | Self::Set => (50, 0, 0, 0, 0),
            Self::Show => (300, 1, 0, KIB, 0),
            Self::Copy => (5_000, 0, 1, 0, 64 * KIB),
            Self::Call => (1_000, 3, 3, 3 * KIB, 3 * KIB),
            Self::Other | Self::Unknown => (500, 1, 0, KIB, 0),
        };
        Usage {
            cpu_ns: cpu_us * 1_000,
            read_requests: reads,
            read_batches: reads,
            read_bytes,
            write_requests: writes,
            write_batches: writes,
            write_bytes,
            net_in_bytes: write_bytes,
            net_out_bytes: read_bytes,
            cross_zone_bytes: 0,
        }
    }
}

/// What may stand between `LOAD DATA` and `INFILE`.
const LOAD_OPTIONS: [&str; 3] = ["low_priority", "concurrent", "local"];

/// Whether a text is the beginning of a transaction and how it begins.
fn all_begin(text: &str) -> bool {
    const WAYS: [&str; 4] =
        ["with consistent snapshot", "with causal consistency only", "read only", "read write"];
    let ways = text.strip_prefix("start transaction ");
    ways.is_some_and(|ways| ways.split(", ").all(|way| WAYS.contains(&way)))
}

/// Whether a query goes into a new table, as `CREATE TABLE .. AS` has it, and not into a variable.
fn makes_table(into: &SelectInto) -> bool {
    into.targets.iter().all(|target| !target.to_string().starts_with('@'))
}

/// Whether the options of an `EXPLAIN` have the statement run. Of several `ANALYZE` the last one counts. Of a literal
/// only `FALSE` is known by now; another one is taken for a yes, since few write one and mean no.
fn analyzes(options: &[UtilityOption]) -> bool {
    let last = options.iter().rev().find(|option| option.name.value.eq_ignore_ascii_case("analyze"));
    last.is_some_and(|option| match &option.arg {
        Some(Expr::Value(value)) => value.value != Value::Boolean(false),
        Some(Expr::Identifier(word)) => !word.value.eq_ignore_ascii_case("off"),
        _ => true,
    })
}

const fn is_transaction(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::StartTransaction { .. }
            | Statement::Commit { .. }
            | Statement::Rollback { .. }
            | Statement::Savepoint { .. }
            | Statement::ReleaseSavepoint { .. }
            | Statement::Lock(_)
            | Statement::LockTables { .. }
            | Statement::UnlockTables
    )
}

const fn is_session(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Set(_)
            | Statement::Use(_)
            | Statement::Reset(_)
            | Statement::Discard { .. }
            | Statement::Pragma { .. }
            | Statement::AlterSession { .. }
    )
}

const fn is_question(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Explain { .. }
            | Statement::ExplainTable { .. }
            | Statement::ShowFunctions { .. }
            | Statement::ShowVariable { .. }
            | Statement::ShowVariables { .. }
            | Statement::ShowStatus { .. }
            | Statement::ShowCreate { .. }
            | Statement::ShowColumns { .. }
            | Statement::ShowCatalogs { .. }
            | Statement::ShowDatabases { .. }
            | Statement::ShowProcessList { .. }
            | Statement::ShowSchemas { .. }
            | Statement::ShowCharset(_)
            | Statement::ShowObjects(_)
            | Statement::ShowTables { .. }
            | Statement::ShowViews { .. }
            | Statement::ShowCollation { .. }
    )
}

/// Schema statements are many and all begin with one of a few verbs, so the printed verb decides.
fn is_ddl(statement: &Statement) -> bool {
    const VERBS: [&str; 8] = ["CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "COMMENT", "GRANT", "REVOKE"];
    let text = statement.to_string();
    text.split_whitespace().next().is_some_and(|verb| VERBS.contains(&verb))
}

impl fmt::Display for StatementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
