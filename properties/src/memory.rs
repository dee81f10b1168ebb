//! A store without a disk: rows in memory, that can be copied as they are when a controller dies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tidegate_controller::store::{Store, StoreError, Table, Visit, VisitAll, Write};

/// Rows by table and key.
pub(super) type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// The store, and whether its seal is there.
#[derive(Default)]
pub(super) struct MemoryStore(Mutex<Rows>, AtomicBool);

impl MemoryStore {
    /// A store that holds these rows, as if it had been closed in order; whether it was, they say.
    pub(super) fn new(rows: Rows) -> Self {
        Self(Mutex::new(rows), AtomicBool::new(true))
    }

    /// All rows.
    pub(super) fn rows(&self) -> Rows {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Store for MemoryStore {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for write in batch {
            match write.clone() {
                Write::Put(table, key, value) => drop(rows.insert((table, key), value)),
                Write::Delete(table, key) => drop(rows.remove(&(table, key))),
                Write::DeleteBelow(table, below) => rows.retain(|(of, key), _| *of != table || *key >= below),
            }
        }
        Ok(())
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let rows = self.rows();
        for ((_, key), value) in rows.range((table, from.to_vec())..).take_while(|((of, _), _)| *of == table)
        {
            if visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(keys.iter().map(|key| rows.get(&(table, key.clone())).cloned()).collect())
    }

    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        for ((table, key), value) in &self.rows() {
            if visit(*table, key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn seal(&self) -> Result<String, StoreError> {
        self.1.store(true, Ordering::SeqCst);
        Ok("memory".to_owned())
    }

    fn break_seal(&self) -> Result<Option<String>, StoreError> {
        Ok(self.1.swap(false, Ordering::SeqCst).then(|| "memory".to_owned()))
    }
}
