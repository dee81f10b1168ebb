//! A store of which a test hears what it is asked for, before it is done.

use super::{Store, StoreError, Table, Visit, VisitAll, Write};

/// What a store is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Commit,
    Scan(Table),
    Get(Table),
}

/// A store, and who hears of its calls. A call that is refused there is not made.
pub(crate) struct Overheard<S, H>(pub(crate) S, pub(crate) H);

impl<S: Store, H: Fn(Call) -> Result<(), StoreError> + Send + Sync> Store for Overheard<S, H> {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        (self.1)(Call::Commit)?;
        self.0.commit(batch)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        (self.1)(Call::Scan(table))?;
        self.0.scan(table, from, visit)
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        (self.1)(Call::Get(table))?;
        self.0.get(table, keys)
    }

    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        self.0.copy(visit)
    }

    fn seal(&self) -> Result<String, StoreError> {
        self.0.seal()
    }

    fn break_seal(&self) -> Result<Option<String>, StoreError> {
        self.0.break_seal()
    }
}
