//! The demo's database: customers, items, orders and their lines, made by SQLite itself from running numbers.
//!
//! One file per node, in WAL mode. The page cache of a connection is small on purpose, so that scans read the file.
//! Checkpoints are made by a thread of the node and not by whichever commit is unlucky, whose user would pay for it.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::error::CliError;

/// How large the database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scale {
    pub(crate) customers: u32,
    pub(crate) items: u32,
    pub(crate) orders: u32,
}

/// Orders of one day.
pub(crate) const ORDERS_PER_DAY: u32 = 200;
/// Lines of one order.
pub(crate) const LINES_PER_ORDER: u32 = 3;
/// Orders made in one step, between two words of progress.
const STEP: u32 = 10_000;
/// Page cache of a connection, in KiB.
const CACHE_KIB: i64 = 1_024;
/// How long a writer waits for another.
const BUSY_WITHIN: Duration = Duration::from_secs(10);

const SCHEMA: &str = "
    CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, region INTEGER NOT NULL, balance INTEGER NOT NULL);
    CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER NOT NULL, stock INTEGER NOT NULL);
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, day INTEGER NOT NULL,
        status TEXT NOT NULL, note TEXT NOT NULL);
    CREATE TABLE order_line (order_id INTEGER NOT NULL, line INTEGER NOT NULL, item_id INTEGER NOT NULL,
        quantity INTEGER NOT NULL, price INTEGER NOT NULL, PRIMARY KEY (order_id, line)) WITHOUT ROWID;
    CREATE TABLE campaign_hit (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, message TEXT NOT NULL);";
const INDEXES: &str = "
    CREATE INDEX orders_by_customer ON orders (customer_id);
    CREATE INDEX orders_by_day ON orders (day);
    ANALYZE;";
// Multiplying by a number without common factors scatters the keys and is the same on every machine.
const CUSTOMERS: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
    INSERT INTO customer SELECT i, 'customer ' || i || ' of the demo', i % 7, i * 7919 % 100000 FROM n";
const ITEMS: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
    INSERT INTO item SELECT i, 'item ' || i, 100 + i * 7907 % 9900, 1000000 FROM n";
const ORDERS: &str = "
    WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
    INSERT INTO orders SELECT i, 1 + i * 7919 % ?3, i / ?4, CASE i % 5 WHEN 0 THEN 'open' ELSE 'shipped' END,
        'deliver to the back door, please; order ' || i || ', paid in advance by transfer' FROM n";
const LINES: &str = "
    WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2), l(k) AS (VALUES (1), (2), (3))
    INSERT INTO order_line SELECT i, k, 1 + (i * 7919 + k * 104729) % ?3, 1 + (i + k) % 4, 100 + (i * k) % 9900 FROM n, l";

impl Scale {
    /// A database of `orders` orders and what belongs to them.
    pub(crate) fn of(orders: u32) -> Self {
        Self { customers: (orders / 6).max(10), items: (orders / 24).max(10), orders }
    }

    /// Days with orders.
    pub(crate) fn days(self) -> u32 {
        (self.orders / ORDERS_PER_DAY).max(1)
    }
}

/// Makes the database at `path`, telling the share that is done, in percent.
pub(crate) fn build(path: &Path, scale: Scale, mut progress: impl FnMut(u32)) -> Result<(), CliError> {
    let mut connection = Connection::open(path)?;
    // If this is interrupted the file is thrown away, so nothing needs to survive.
    connection
        .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;")?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(SCHEMA)?;
    transaction.execute(CUSTOMERS, [scale.customers])?;
    transaction.execute(ITEMS, [scale.items])?;
    let mut first = 1;
    while first <= scale.orders {
        let last = first.saturating_add(STEP - 1).min(scale.orders);
        transaction.execute(ORDERS, [first, last, scale.customers, ORDERS_PER_DAY])?;
        transaction.execute(LINES, [first, last, scale.items])?;
        let percent = u64::from(last).saturating_mul(90) / u64::from(scale.orders.max(1));
        progress(u32::try_from(percent).unwrap_or(90));
        first = last.saturating_add(1);
    }
    transaction.execute_batch(INDEXES)?;
    transaction.commit()?;
    connection.execute_batch("PRAGMA journal_mode = WAL;")?;
    progress(100);
    Ok(())
}

/// Opens the database as a worker does.
pub(crate) fn open(path: &Path) -> Result<Connection, CliError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_WITHIN)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;",
    )?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(connection)
}

/// Brings the write-ahead log into the database, as far as no reader is in the way.
pub(crate) fn checkpoint(connection: &Connection) -> Result<(), CliError> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_has_its_rows_and_progress_reaches_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.db");
        let scale = Scale::of(600);
        let mut told = Vec::new();
        build(&path, scale, |percent| told.push(percent)).unwrap();
        assert_eq!(told.last(), Some(&100));
        let connection = open(&path).unwrap();
        let count = |table: &str| {
            connection
                .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, u32>(0))
                .unwrap()
        };
        assert_eq!(count("orders"), 600);
        assert_eq!(count("order_line"), 600 * LINES_PER_ORDER);
        assert_eq!((count("customer"), count("item")), (scale.customers, scale.items));
        checkpoint(&connection).unwrap();
    }
}
