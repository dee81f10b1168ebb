//! Evaluates a query of our tables on SQLite in memory, in a database of its own that is gone afterwards.
//!
//! In: the query and the contents of its tables. Out: rows with typed columns. The query may read these tables and
//! call functions, and nothing else: no other table, no change, no PRAGMA, no ATTACH, no recursion. Steps, rows and
//! bytes are bounded. Columns take their type from the table they come from, or else from their values.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error, ErrorCode, Row, Statement, ToSql, params_from_iter};
use tidegate_cost_model::SqlDialect;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::load::Contents;
use super::schema::VirtualTable;
use super::select::Select;
use super::time::is_timestamp;
use crate::answer::{Column, Kind, Table, Value};
use crate::code::Code;
use crate::error::SqlError;

/// Instructions between two looks at the count of them, and at the time. One of them may make a value of a megabyte,
/// which takes a millisecond.
const STEPS_PER_LOOK: c_int = 1_000;
/// Looks before a query is ended: 20 million instructions are about half a second.
const MAX_LOOKS: u32 = 20_000;
/// Time for a query: as much as an answer of the controller has. 20 million instructions on large values take hours,
/// and every session may send one that reads no table.
const WITHIN: Duration = Duration::from_secs(10);
/// Queries of tables at once in a process; others wait. Each may sort on disk what it computes, some 100 MB/s of it. Half
/// of them would be two dashboards; with twice of them, all of a small machine's threads would compute answers.
static OF_TABLES: Semaphore = Semaphore::const_new(8);
/// Queries that read no table, which every session may send: apart, so that those of operators go on beside them.
static OF_NOTHING: Semaphore = Semaphore::const_new(2);
/// Rows of an answer; the rest is left out, with a note.
const MAX_ANSWER_ROWS: usize = 10_000;
/// Bytes of text in an answer; the rest is left out, with a note, from the first row on that goes beyond it.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// Columns of an answer: more than all tables have together. SQLite holds a value of each before a row is read.
const MAX_COLUMNS: i32 = 128;
/// Longest value, in bytes, also of one that is computed on the way.
const MAX_VALUE_BYTES: i32 = 1_024 * 1_024;
/// Deepest expression.
const MAX_EXPRESSION_DEPTH: i32 = 100;
/// SELECTs joined by UNION.
const MAX_COMPOUND: i32 = 20;

/// Evaluates `select`; `group` is what `CURRENT_RESOURCE_GROUP()` gives.
pub(crate) async fn query(
    select: Select,
    contents: Vec<Contents>,
    notes: Vec<String>,
    group: String,
) -> Result<Table, SqlError> {
    let wanted = Wanted::default();
    let unwanted = Arc::clone(&wanted.0);
    let turns = if contents.is_empty() { &OF_NOTHING } else { &OF_TABLES };
    let evaluated = async {
        let turn = turns.acquire().await;
        let work = move || {
            // Until the work ends, which is after its caller has left.
            let _turn = turn;
            evaluate(&select, &contents, group, unwanted).map_err(refused)
        };
        tokio::task::spawn_blocking(work).await
    };
    let Ok(evaluated) = timeout(WITHIN, evaluated).await else {
        let message = format!("it takes more than {} s; narrow it", WITHIN.as_secs());
        return Err(SqlError::Query { message, code: Code::FULL });
    };
    let mut table =
        evaluated.map_err(|error| SqlError::Internal(format!("the query did not finish: {error}")))??;
    table.notes.splice(0..0, notes);
    Ok(table)
}

/// The interest in an answer. When it is over, because of the time or because the session has left, the work ends at
/// its next look.
#[derive(Default)]
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn evaluate(
    select: &Select,
    contents: &[Contents],
    group: String,
    unwanted: Arc<AtomicBool>,
) -> Result<Table, Error> {
    let mut connection = Connection::open_in_memory()?;
    for schema in ["information_schema", "tidegate"] {
        connection.execute("ATTACH ':memory:' AS ?1", [schema])?;
    }
    for table in contents {
        fill(&connection, table, select.dialect())?;
    }
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("current_resource_group", 0, flags, move |_| Ok(group.clone()))?;
    confine(&mut connection, unwanted)?;
    let mut statement = connection.prepare(select.text())?;
    answer(&mut statement)
}

/// Creates a table with its rows.
fn fill(connection: &Connection, contents: &Contents, dialect: SqlDialect) -> Result<(), Error> {
    let columns = contents.table.columns();
    // TiDB's own tables have their columns in upper case; PostgreSQL folds names to lower case.
    let upper = contents.table.schema() == "information_schema" && dialect != SqlDialect::PostgreSql;
    let named = |name: &str| if upper { name.to_ascii_uppercase() } else { name.to_owned() };
    let list: Vec<String> =
        columns.iter().map(|(name, kind)| format!("\"{}\" {}", named(name), declared(*kind))).collect();
    let name = contents.table.full_name();
    connection.execute(&format!("CREATE TABLE {name} ({})", list.join(", ")), [])?;
    let marks = vec!["?"; columns.len()].join(", ");
    let mut insert = connection.prepare(&format!("INSERT INTO {name} VALUES ({marks})"))?;
    for row in &contents.rows {
        insert.execute(params_from_iter(row))?;
    }
    Ok(())
}

impl ToSql for Value {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>, Error> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Float(value) => ValueRef::Real(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// The declared type, of which SQLite keeps the name and derives that texts stay texts.
const fn declared(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "TEXT",
        Kind::Int | Kind::Int32 => "INTEGER",
        Kind::Float => "REAL",
        Kind::Timestamp => "TIMESTAMP_TEXT",
    }
}

fn kind_of(declared: &str) -> Option<Kind> {
    [Kind::Text, Kind::Int, Kind::Float, Kind::Timestamp]
        .into_iter()
        .find(|kind| self::declared(*kind).eq_ignore_ascii_case(declared))
}

/// Leaves the connection nothing but reading the tables that are there.
fn confine(connection: &mut Connection, unwanted: Arc<AtomicBool>) -> Result<(), Error> {
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
    connection.set_limit(Limit::SQLITE_LIMIT_COLUMN, MAX_COLUMNS)?;
    connection.set_limit(Limit::SQLITE_LIMIT_EXPR_DEPTH, MAX_EXPRESSION_DEPTH)?;
    connection.set_limit(Limit::SQLITE_LIMIT_COMPOUND_SELECT, MAX_COMPOUND)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 2)?;
    connection.authorizer(Some(authorize))?;
    let mut looks = 0_u32;
    connection.progress_handler(
        STEPS_PER_LOOK,
        Some(move || {
            looks += 1;
            looks > MAX_LOOKS || unwanted.load(Ordering::Relaxed)
        }),
    )
}

fn authorize(asked: AuthContext<'_>) -> Authorization {
    let allowed = match asked.action {
        AuthAction::Select => true,
        AuthAction::Read { table_name, .. } => {
            asked.database_name.is_some_and(|schema| VirtualTable::named(schema, table_name).is_some())
        }
        AuthAction::Function { function_name } => !function_name.eq_ignore_ascii_case("load_extension"),
        _ => false,
    };
    if allowed { Authorization::Allow } else { Authorization::Deny }
}

fn answer(statement: &mut Statement<'_>) -> Result<Table, Error> {
    let (names, declared): (Vec<String>, Vec<Option<Kind>>) = statement
        .columns()
        .map(|column| (column.name().to_owned(), column.decl_type().and_then(kind_of)))
        .unzip();
    let mut table = Table::default();
    let mut left = MAX_ANSWER_BYTES;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let is_full = table.rows.len() == MAX_ANSWER_ROWS;
        let Some(cells) = (if is_full { None } else { cells(row, names.len(), &mut left)? }) else {
            table.notes.push(format!(
                "note: the answer has more rows than these {}; narrow it with WHERE or LIMIT, or to fewer columns",
                table.rows.len()
            ));
            break;
        };
        table.rows.push(cells);
    }
    for (index, (name, declared)) in names.into_iter().zip(declared).enumerate() {
        let kind = settle(&mut table.rows, index, declared);
        table.columns.push(Column { name, kind });
    }
    Ok(table)
}

/// The cells of a row; nothing where they go beyond what is left of the answer's bytes.
fn cells(row: &Row<'_>, count: usize, left: &mut usize) -> Result<Option<Vec<Value>>, Error> {
    let mut cells = Vec::with_capacity(count);
    for index in 0..count {
        let value = value(row.get_ref(index)?);
        if let Value::Text(text) = &value {
            let Some(rest) = left.checked_sub(text.len()) else { return Ok(None) };
            *left = rest;
        }
        cells.push(value);
    }
    Ok(Some(cells))
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Real(value) => Value::Float(value),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Value::Text(String::from_utf8_lossy(bytes).into_owned())
        }
    }
}

/// The kind of a column, to which its values are brought: SQLite types values, and both protocols type columns.
fn settle(rows: &mut [Vec<Value>], index: usize, declared: Option<Kind>) -> Kind {
    let values = || rows.iter().filter_map(|row| row.get(index));
    let (mut texts, mut floats, mut ints) = (false, false, false);
    for value in values() {
        match value {
            Value::Null => {}
            Value::Int(_) => ints = true,
            Value::Float(_) => floats = true,
            Value::Text(_) => texts = true,
        }
    }
    let found = match (texts, floats, ints) {
        (true, ..) | (false, false, false) => Kind::Text,
        (false, true, _) => Kind::Float,
        (false, false, true) => Kind::Int,
    };
    let kind = declared.filter(|kind| values().all(|value| holds(*kind, value))).unwrap_or(found);
    for value in rows.iter_mut().filter_map(|row| row.get_mut(index)) {
        let brought = match (kind, &*value) {
            (Kind::Float, Value::Int(number)) => Value::Float(*number as f64),
            (Kind::Text, Value::Int(number)) => Value::Text(number.to_string()),
            (Kind::Text, Value::Float(number)) => Value::Text(number.to_string()),
            _ => continue,
        };
        *value = brought;
    }
    kind
}

/// Whether a column of a table can have this value. A UNION may put another beside those of the table, and an integer
/// of more than 64 bits comes as a double.
fn holds(kind: Kind, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Int(_) => kind != Kind::Timestamp,
        Value::Float(_) => matches!(kind, Kind::Float | Kind::Text),
        Value::Text(text) => kind == Kind::Text || kind == Kind::Timestamp && is_timestamp(text),
    }
}

/// What SQLite says, with what to do.
fn refused(error: Error) -> SqlError {
    let (message, code) = match &error {
        Error::SqliteFailure(failure, _) if failure.code == ErrorCode::OperationInterrupted => (
            format!(
                "it takes more than {} steps; narrow it",
                u64::from(MAX_LOOKS) * u64::from(STEPS_PER_LOOK.unsigned_abs())
            ),
            Code::FULL,
        ),
        Error::SqliteFailure(failure, _) if failure.code == ErrorCode::TooBig => {
            (format!("a value is longer than {MAX_VALUE_BYTES} bytes; shorten it with substr()"), Code::FULL)
        }
        Error::SqliteFailure(failure, _) if failure.code == ErrorCode::AuthorizationForStatementDenied => {
            ("it does more than read tidegate's tables; leave that out".to_owned(), Code::UNSUPPORTED)
        }
        Error::SqlInputError { msg, .. } | Error::SqliteFailure(_, Some(msg)) => described(msg),
        other => (other.to_string(), Code::INTERNAL),
    };
    SqlError::Query { message, code }
}

fn described(said: &str) -> (String, Code) {
    let code = if said.contains("no such column") {
        Code::NO_COLUMN
    } else if said.contains("no such function") || said.contains("wrong number of arguments") {
        Code::NO_FUNCTION
    } else if said.contains("prohibited") || said.contains("not authorized") {
        Code::UNSUPPORTED
    } else if said.contains("too many") || said.contains("too large") {
        Code::FULL
    } else {
        Code::SYNTAX
    };
    (format!("{said}; docs/sql.md has the columns, and the query runs in SQLite's dialect"), code)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::statement::Statement;

    /// A query of no table that makes a value of a megabyte for each of 10^6 rows.
    fn heavy() -> Select {
        let ten = format!("(VALUES {})", ["(1)"; 10].join(","));
        let rows: Vec<String> = ('a'..='f').map(|name| format!("{ten} {name}")).collect();
        let value = "length(hex(zeroblob(500000 - a.column1 - f.column1)))";
        let text = format!("SELECT max({value}), CURRENT_RESOURCE_GROUP() FROM {}", rows.join(", "));
        select(&text)
    }

    fn select(text: &str) -> Select {
        match Statement::parse(text, SqlDialect::MySql) {
            Ok(Some(Statement::Select(select))) => select,
            other => panic!("{other:?}"),
        }
    }

    fn over() -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(true))
    }

    #[test]
    fn work_that_nobody_waits_for_ends_at_its_next_look() {
        let ended = evaluate(&heavy(), &[], "g".to_owned(), over()).map_err(refused).unwrap_err();
        assert_eq!(ended.code(), Code::FULL, "{ended}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_has_so_much_time_and_no_more_whatever_its_instructions_do() {
        let asked = tokio::spawn(query(heavy(), Vec::new(), Vec::new(), "g".to_owned()));
        tokio::task::yield_now().await;
        advance(WITHIN).await;
        let ended = asked.await.unwrap().unwrap_err();
        assert!(ended.code() == Code::FULL && ended.to_string().contains("10 s"), "{ended}");
    }

    #[tokio::test]
    async fn queries_of_no_table_wait_for_each_other_and_hold_up_none_of_a_table() {
        let asked = || tokio::spawn(query(heavy(), Vec::new(), Vec::new(), "g".to_owned()));
        let mut heavy: Vec<_> = (0..4).map(|_| asked()).collect();
        while OF_NOTHING.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let contents = Contents { table: VirtualTable::Usage, rows: Vec::new() };
        let of_table =
            query(select("SELECT count(*) FROM tidegate.usage"), vec![contents], Vec::new(), String::new());
        assert_eq!(of_table.await.unwrap().rows, [[Value::Int(0)]]);
        assert_eq!(OF_NOTHING.available_permits(), 0);
        heavy.drain(..).for_each(|asked| asked.abort());
        let of_nothing =
            query(select("SELECT upper(CURRENT_RESOURCE_GROUP())"), Vec::new(), Vec::new(), "g".to_owned());
        assert_eq!(of_nothing.await.unwrap().rows, [[Value::Text("G".to_owned())]]);
    }

    #[test]
    fn what_is_waited_for_is_over_when_its_caller_leaves() {
        let wanted = Wanted::default();
        let unwanted = Arc::clone(&wanted.0);
        assert!(!unwanted.load(Ordering::Relaxed));
        drop(wanted);
        assert!(unwanted.load(Ordering::Relaxed));
    }

    /// A count above 2^63 comes as a double, though its column is one of integers.
    #[test]
    fn a_column_of_counts_is_of_doubles_where_one_of_them_is() {
        let columns = VirtualTable::Usage.columns();
        let at = columns.iter().position(|(name, _)| *name == "operations").unwrap();
        let row = |value| {
            let mut row = vec![Value::Null; columns.len()];
            row[at] = value;
            row
        };
        let large = Value::Float(9_223_372_036_854_775_808.0);
        let rows = vec![row(large.clone()), row(Value::Int(7))];
        let contents = Contents { table: VirtualTable::Usage, rows };
        let select = select("SELECT operations FROM tidegate.usage");
        let table = evaluate(&select, &[contents], "g".to_owned(), Arc::default()).unwrap();
        assert_eq!(table.columns[0].kind, Kind::Float);
        assert_eq!(table.rows, [[large], [Value::Float(7.0)]]);
    }
}
