//! A local store in memory, which outlives its process and can be lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::store::records::{FORMAT, META_FORMAT};
use crate::store::replicated::{Fresh, Place};
use crate::store::{Row, Store, StoreError, Table, Visit, VisitAll, Write};

/// The place.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<Arc<Rows>>>);

/// Values by table and key.
type Values = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

#[derive(Default)]
struct Rows(Mutex<Values>);

impl Memory {
    pub(super) fn new() -> Self {
        let memory = Self::default();
        memory.wipe();
        memory
    }

    /// As if the file had been deleted.
    pub(super) fn wipe(&self) {
        let rows = Rows::default();
        let format = Write::Put(Table::Meta, META_FORMAT.to_vec(), FORMAT.to_string().into_bytes());
        rows.commit(&[format]).unwrap();
        *self.0.lock().unwrap() = Arc::new(rows);
    }
}

impl Place for Memory {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::<Rows>::clone(&self.0.lock().unwrap()))
    }

    fn fresh(&self) -> Result<Box<dyn Fresh>, StoreError> {
        Ok(Box::new(Building(Rows::default(), self.clone())))
    }
}

struct Building(Rows, Memory);

impl Fresh for Building {
    fn put(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        let put = |(table, key, value): &Row| Write::Put(*table, key.clone(), value.clone());
        self.0.commit(&rows.iter().map(put).collect::<Vec<_>>())
    }

    fn finish(self: Box<Self>, _: bool) -> Result<(), StoreError> {
        *self.1.0.lock().unwrap() = Arc::new(self.0);
        Ok(())
    }
}

impl Store for Rows {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let mut rows = self.0.lock().unwrap();
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
        let rows = self.0.lock().unwrap();
        for ((_, key), value) in rows.range((table, from.to_vec())..).take_while(|((of, _), _)| *of == table)
        {
            if visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let rows = self.0.lock().unwrap();
        Ok(keys.iter().map(|key| rows.get(&(table, key.clone())).cloned()).collect())
    }

    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        // What is done with a row may call the shared store, while others use this one.
        let rows = self.0.lock().unwrap().clone();
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
