//! For tests: a disk on which writes fail.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::file::RedbStore;
use super::opening::{builder, opened};
use super::seal::NoSeal;

/// A disk in memory on which writes fail after so many more. Clones are handles of one and the same.
#[derive(Clone, Debug)]
pub(super) struct Failing {
    disk: Arc<InMemoryBackend>,
    left: Arc<AtomicU64>,
    /// Only one write fails.
    once: Arc<AtomicBool>,
}

impl Default for Failing {
    fn default() -> Self {
        Self { disk: Arc::default(), left: Arc::new(AtomicU64::new(u64::MAX)), once: Arc::default() }
    }
}

impl Failing {
    /// The store on it, which errors name by `path`.
    pub(super) fn open(&self, path: &Path) -> RedbStore {
        let (named, medium) = (path.to_owned(), self.clone());
        RedbStore::over(NoSeal, move || opened(&named, || builder().create_with_backend(medium.clone())))
            .unwrap()
    }

    /// From now on so many writes, changes of the length and syncs succeed.
    pub(super) fn fails_after(&self, left: u64) {
        self.left.store(left, Relaxed);
        self.once.store(false, Relaxed);
    }

    /// The same, but after one failure they succeed again.
    pub(super) fn fails_once_after(&self, left: u64) {
        self.fails_after(left);
        self.once.store(true, Relaxed);
    }

    /// Another disk with what this one holds now.
    pub(super) fn copy(&self) -> Self {
        let copy = Self::default();
        let length = self.disk.len().unwrap();
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.disk.read(0, &mut bytes).unwrap();
        copy.disk.set_len(length).unwrap();
        copy.disk.write(0, &bytes).unwrap();
        copy
    }

    fn fails(&self) -> io::Result<()> {
        let left = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| {
            if self.once.load(Relaxed) {
                self.fails_after(u64::MAX);
            }
            io::Error::other("the disk is full")
        })
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.fails().and_then(|()| self.disk.set_len(len))
    }
    fn sync_data(&self) -> io::Result<()> {
        self.fails().and_then(|()| self.disk.sync_data())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.fails().and_then(|()| self.disk.write(offset, data))
    }
}
