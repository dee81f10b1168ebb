//! A place in memory, whose store can be wiped, and can fail to write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::super::super::opening::format_row;
use super::super::super::{Row, Store, StoreError, Table, Visit, VisitAll, Write};
use super::super::place::{Fresh, Place};

/// The place.
#[derive(Default)]
pub(crate) struct Memory(Arc<Mutex<Arc<Rows>>>);

#[derive(Default)]
pub(crate) struct Rows {
    rows: Mutex<super::Rows>,
    fails: AtomicBool,
    fails_next: AtomicBool,
}

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        let memory = Arc::new(Self::default());
        memory.wipe();
        memory
    }

    pub(crate) fn store(&self) -> Arc<Rows> {
        Arc::clone(&self.0.lock().unwrap())
    }

    /// As if the file had been deleted.
    pub(crate) fn wipe(&self) {
        let rows = Rows::default();
        rows.commit(&[format_row()]).unwrap();
        *self.0.lock().unwrap() = Arc::new(rows);
    }

    /// Whether commits fail from now on.
    pub(crate) fn fail(&self, fails: bool) {
        self.store().fails.store(fails, Ordering::SeqCst);
    }
}

impl Rows {
    /// The next commit fails.
    pub(crate) fn fail_next(&self) {
        self.fails_next.store(true, Ordering::SeqCst);
    }

    /// A store that has these rows.
    pub(super) fn holding(rows: &super::Rows) -> Self {
        Self { rows: Mutex::new(rows.clone()), ..Self::default() }
    }
}

impl Place for Memory {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(self.store())
    }

    fn fresh(&self) -> Result<Box<dyn Fresh>, StoreError> {
        Ok(Box::new(Building(Rows::default(), Arc::clone(&self.0))))
    }
}

struct Building(Rows, Arc<Mutex<Arc<Rows>>>);

impl Fresh for Building {
    fn put(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        let put = |(table, key, value): &Row| Write::Put(*table, key.clone(), value.clone());
        self.0.commit(&rows.iter().map(put).collect::<Vec<_>>())
    }

    fn finish(self: Box<Self>, _: bool) -> Result<(), StoreError> {
        *self.1.lock().unwrap() = Arc::new(self.0);
        Ok(())
    }
}

impl Store for Rows {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        if self.fails.load(Ordering::SeqCst) || self.fails_next.swap(false, Ordering::SeqCst) {
            return Err(StoreError::Failed {
                operation: "commit a change",
                reason: "the disk is full".into(),
            });
        }
        let mut rows = self.rows.lock().unwrap();
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
        let rows = self.rows.lock().unwrap();
        let of = rows.range((table, from.to_vec())..).take_while(|((of, _), _)| *of == table);
        for ((_, key), value) in of {
            if visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let rows = self.rows.lock().unwrap();
        Ok(keys.iter().map(|key| rows.get(&(table, key.clone())).cloned()).collect())
    }

    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        let rows = self.rows.lock().unwrap().clone();
        for ((table, key), value) in &rows {
            if visit(*table, key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn seal(&self) -> Result<String, StoreError> {
        Ok("memory".to_owned())
    }

    fn break_seal(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }
}
