//! A wall around redb. It checks pages as it reads them, and damage that its checks do not foresee may make it panic:
//! while opening, in any call, and while closing. The wall turns that into an error of the call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use redb::Database;

use super::StoreError;
use super::blocks::Blocks;

/// The meaning of a panic of redb.
pub(super) const DAMAGED: &str = "its pages are damaged";

/// Makes one call behind the wall.
pub(super) fn walled<T>(
    operation: &'static str,
    call: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| damaged(operation, DAMAGED))?
}

fn damaged(operation: &'static str, reason: &str) -> StoreError {
    StoreError::Damaged { operation, reason: reason.to_owned() }
}

/// An open database, and the blocks of its file if they are compared.
pub(super) struct Guarded(Option<Database>, Option<Arc<Blocks>>);

impl Guarded {
    /// Opens a database; `None` when redb panicked.
    pub(super) fn open<E>(open: impl FnOnce() -> Result<Database, E>) -> Option<Result<Self, E>> {
        let opened = catch_unwind(AssertUnwindSafe(open)).ok()?;
        Some(opened.map(|database| Self(Some(database), None)))
    }

    /// The same with the blocks of its file, which are compared.
    pub(super) fn watched(self, blocks: Arc<Blocks>) -> Self {
        let mut this = self;
        this.1 = Some(blocks);
        this
    }

    /// Makes one call. redb rolls a transaction back that a panic cut off.
    pub(super) fn call<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.0.as_ref().ok_or_else(|| damaged(operation, DAMAGED))?;
        self.told(operation, walled(operation, || call(database)))
    }

    /// The result of a call, unless damage was found by then: it caused any failure, and rows read beside it may be
    /// incomplete.
    pub(super) fn told<T>(
        &self,
        operation: &'static str,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self.1.as_ref().and_then(|blocks| blocks.damage()) {
            Some(reason) => Err(damaged(operation, reason)),
            None => result,
        }
    }

    /// Compares every page with its checksum.
    pub(super) fn check_pages(&mut self) -> Result<(), String> {
        let database = self.0.as_mut().ok_or_else(|| DAMAGED.to_owned())?;
        match catch_unwind(AssertUnwindSafe(|| database.check_integrity())) {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) | Err(_) => Err(DAMAGED.to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
        }
    }
}

impl Drop for Guarded {
    /// Closes the database. A panic that left this during another would end the process.
    fn drop(&mut self) {
        let database = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(database))).is_err() {
            tracing::error!("the store could not be closed: {DAMAGED}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use redb::backends::InMemoryBackend;
    use redb::{DatabaseError, StorageBackend};

    use super::super::blocks::Watched;
    use super::*;

    /// Memory that panics from some moment on, as redb does on pages that make no sense.
    #[derive(Debug)]
    struct Brittle {
        memory: InMemoryBackend,
        broken: Arc<AtomicBool>,
    }

    impl Brittle {
        fn touch(&self) {
            assert!(!self.broken.load(Ordering::SeqCst), "broken");
        }
    }

    impl StorageBackend for Brittle {
        fn len(&self) -> std::io::Result<u64> {
            self.touch();
            self.memory.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
            self.touch();
            self.memory.read(offset, out)
        }

        fn set_len(&self, len: u64) -> std::io::Result<()> {
            self.touch();
            self.memory.set_len(len)
        }

        fn sync_data(&self) -> std::io::Result<()> {
            self.touch();
            self.memory.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
            self.touch();
            self.memory.write(offset, data)
        }
    }

    fn open(broken: &Arc<AtomicBool>) -> Option<Result<Guarded, DatabaseError>> {
        let medium = Brittle { memory: InMemoryBackend::new(), broken: Arc::clone(broken) };
        Guarded::open(|| Database::builder().create_with_backend(medium))
    }

    #[test]
    fn what_was_read_beside_damage_is_no_answer() {
        let blocks = Arc::new(Blocks::default());
        let database = Guarded::open(|| Database::builder().create_with_backend(InMemoryBackend::new()));
        let guarded = database.unwrap().unwrap().watched(Arc::clone(&blocks));
        assert_eq!(guarded.call("count", |_| Ok(5)).unwrap(), 5);
        let memory = InMemoryBackend::new();
        memory.set_len(4_096).unwrap();
        // A block that nobody has seen when all had been read.
        blocks.close();
        Watched::new(memory, blocks).read(0, &mut [0; 10]).unwrap_err();
        let count = guarded.call("count", |_| Ok(5));
        assert!(matches!(count, Err(StoreError::Damaged { operation: "count", .. })), "{count:?}");
    }

    #[test]
    fn a_panic_is_an_error_of_the_call_and_closing_never_panics() {
        let broken = Arc::new(AtomicBool::new(false));
        let guarded = open(&broken).unwrap().unwrap();
        assert_eq!(guarded.call("count", |_| Ok(5)).unwrap(), 5);
        broken.store(true, Ordering::SeqCst);
        let write = |database: &Database| {
            let transaction = database.begin_write().unwrap();
            transaction.commit().unwrap();
            Ok(())
        };
        let error = guarded.call("write", write).unwrap_err().to_string();
        assert!(error.contains("write") && error.contains(DAMAGED), "{error}");
        drop(guarded);
        assert!(open(&broken).is_none(), "a panic while opening is told apart from an error");
    }
}
