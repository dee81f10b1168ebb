//! Runs one statement on SQLite and measures what it used.
//!
//! Usage: CPU is the thread's clock around the statement; bytes read and written are those of the thread's system
//! calls (pages that missed SQLite's cache, frames of the write-ahead log), and at least the result and the bound
//! values, for data that never left memory; a statement is one read request, each row it changed one write request;
//! the statement text and bound values are network ingress, the result is egress.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error};
use tidegate_client::Usage;
use tidegate_client::meter::measure_with_io;

/// A statement with its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    pub(crate) values: Vec<Value>,
}

impl Statement {
    /// `sql` with `values` for its parameters.
    pub(crate) fn new(sql: impl Into<String>, values: impl IntoIterator<Item = Value>) -> Self {
        Self { sql: sql.into(), values: values.into_iter().collect() }
    }

    /// Bytes that a caller on a network would have sent.
    fn sent_bytes(&self) -> u64 {
        let values: u64 = self.values.iter().map(|value| value_bytes(ValueRef::from(value))).sum();
        bytes(self.sql.len()).saturating_add(values)
    }
}

/// What a statement used and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) usage: Usage,
    /// Rows returned.
    pub(crate) rows: u64,
    /// Rows changed.
    pub(crate) changed: u64,
}

/// What was seen while stepping through the result.
#[derive(Clone, Copy, Debug, Default)]
struct Result {
    rows: u64,
    bytes: u64,
}

/// Runs `statement`; what a failed one used is measured, too.
pub(crate) fn run(
    connection: &Connection,
    statement: &Statement,
) -> (std::result::Result<(), Error>, Measured) {
    let changes = connection.total_changes();
    let mut seen = Result::default();
    let (done, io) = measure_with_io(|| step(connection, statement, &mut seen));
    let changed = connection.total_changes().saturating_sub(changes);
    let sent = statement.sent_bytes();
    let writes = u64::from(changed > 0);
    let reads = u64::from(seen.rows > 0 || io.read_bytes > 0);
    let usage = Usage {
        cpu_ns: io.cpu_ns,
        read_requests: reads,
        read_batches: reads,
        read_bytes: io.read_bytes.max(seen.bytes),
        write_requests: changed,
        write_batches: writes,
        write_bytes: io.write_bytes.max(sent.saturating_mul(writes)),
        net_in_bytes: sent,
        net_out_bytes: seen.bytes,
        cross_zone_bytes: 0,
    };
    (done, Measured { usage, rows: seen.rows, changed })
}

fn step(connection: &Connection, statement: &Statement, seen: &mut Result) -> std::result::Result<(), Error> {
    let mut prepared = connection.prepare_cached(&statement.sql)?;
    let columns = prepared.column_count();
    let mut rows = prepared.query(rusqlite::params_from_iter(&statement.values))?;
    while let Some(row) = rows.next()? {
        seen.rows = seen.rows.saturating_add(1);
        for column in 0..columns {
            seen.bytes = seen.bytes.saturating_add(value_bytes(row.get_ref(column)?));
        }
    }
    Ok(())
}

fn value_bytes(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Null => 1,
        ValueRef::Integer(_) | ValueRef::Real(_) => 8,
        ValueRef::Text(text) => bytes(text.len()),
        ValueRef::Blob(blob) => bytes(blob.len()),
    }
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_changes_and_bytes_are_counted() {
        let connection = Connection::open_in_memory().unwrap();
        let one = |sql: &str, values: Vec<Value>| {
            let (done, measured) = run(&connection, &Statement::new(sql, values));
            done.unwrap();
            measured
        };
        one("create table t(a integer, b text)", vec![]);
        let insert = one(
            "insert into t values (?1, ?2), (2, 'x')",
            vec![Value::Integer(1), Value::Text("hello".into())],
        );
        assert_eq!((insert.changed, insert.rows), (2, 0));
        assert_eq!((insert.usage.write_requests, insert.usage.write_batches), (2, 1));
        assert_eq!(insert.usage.net_in_bytes, 39 + 8 + 5);
        let select = one("select a, b from t order by a", vec![]);
        assert_eq!((select.changed, select.rows), (0, 2));
        assert_eq!((select.usage.read_requests, select.usage.net_out_bytes), (1, 8 + 5 + 8 + 1));
        assert!(select.usage.read_bytes >= 22 && select.usage.cpu_ns > 0);
    }

    #[test]
    fn rows_that_triggers_and_cascades_change_are_writes_of_the_statement() {
        let connection = Connection::open_in_memory().unwrap();
        let text = "pragma foreign_keys = on; create table p(id integer primary key);
                    create table c(p references p on delete cascade); create table log(what);
                    create trigger logs after insert on p begin insert into log values (new.id), (0); end";
        connection.execute_batch(text).unwrap();
        for (sql, changed) in [
            ("insert into p values (1)", 3),
            ("insert into c values (1), (1), (1), (1)", 4),
            ("delete from p where id = 9", 0),
            ("delete from p", 5),
            ("delete from p", 0),
        ] {
            let (done, measured) = run(&connection, &Statement::new(sql, []));
            done.unwrap();
            let usage = measured.usage;
            assert_eq!((measured.changed, usage.write_requests), (changed, changed), "{sql}");
            assert_eq!(usage.write_batches, u64::from(changed > 0), "{sql}");
            assert!((usage.write_bytes >= usage.net_in_bytes) == (changed > 0), "{sql}: {usage:?}");
        }
    }

    #[test]
    fn a_failed_statement_is_measured() {
        let connection = Connection::open_in_memory().unwrap();
        let (done, measured) = run(&connection, &Statement::new("select * from nowhere", []));
        assert!(done.is_err() && measured.usage.cpu_ns > 0);
    }
}
