//! The content of every block of the file when it was last read or written, so that damage is found where it is read.
//!
//! redb compares pages with their checksums when it repairs a file and never afterwards. So an opening reads the file
//! through as a repair does (`Overlay`), and from then on each block that is read must be what it was then, or what was
//! written there since. Nothing should ask for a block that was neither read nor written. Checksums are kept in memory,
//! 4 bytes for each block of 4 KiB: a thousandth of the file.

use std::io::{Error, ErrorKind, Result};
use std::num::NonZeroU32;
use std::ops::Bound;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use redb::{BackendError, StorageBackend};

/// Bytes of a block: a page of redb, whose larger pages are several blocks.
const BLOCK: usize = 4_096;

/// The checksum of each block, by its number; `None` for a block that was not read or written yet.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    seen: RwLock<Seen>,
    /// The first damage found.
    damage: OnceLock<String>,
}

#[derive(Debug, Default)]
struct Seen {
    sums: Vec<Option<NonZeroU32>>,
    /// Whether the file was read through: nothing may read a block that was not seen by then.
    closed: bool,
}

impl Blocks {
    /// Notes that the file was read through, and nothing was wrong.
    pub(super) fn close(&self) {
        self.seen.write().unwrap_or_else(PoisonError::into_inner).closed = true;
    }

    /// The first damage found, if any.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    fn damaged(&self, reason: String) -> Error {
        self.damage.get_or_init(|| {
            tracing::error!(reason, "the store is damaged; `tidegate store restore` puts a backup back");
            reason.clone()
        });
        Error::other(reason)
    }

    /// Compares blocks from number `first` on with their checksums; returns whether all are known.
    fn compare(&self, first: usize, bytes: &[u8]) -> Result<bool> {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        let mut known = true;
        for (number, block) in (first..).zip(bytes.chunks(BLOCK)) {
            match seen.sums.get(number).copied().flatten() {
                Some(sum) if sum == sum_of(block) => {}
                Some(_) => return Err(self.damaged(format!("block {number} is not what was written there"))),
                None if seen.closed => {
                    return Err(self.damaged(format!("block {number} was no part of it when it was checked")));
                }
                None => known = false,
            }
        }
        Ok(known)
    }

    fn learn(&self, first: usize, bytes: &[u8]) {
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        let end = first.saturating_add(bytes.len().div_ceil(BLOCK));
        if seen.sums.len() < end {
            seen.sums.resize(end, None);
        }
        for (sum, block) in seen.sums.iter_mut().skip(first).zip(bytes.chunks(BLOCK)) {
            *sum = Some(sum_of(block));
        }
    }

    /// Notes that the file has another length. What it grew by holds zeros.
    fn resize(&self, before: u64, after: u64) {
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        let blocks = |len: u64| usize::try_from(len.div_ceil(BLOCK as u64)).unwrap_or(usize::MAX);
        if seen.sums.len() < blocks(before) {
            seen.sums.resize(blocks(before), None);
        }
        seen.sums.resize(blocks(after), Some(sum_of(&[0; BLOCK])));
    }
}

/// Changes with any single bit, and with any run of bits within 32.
fn sum_of(block: &[u8]) -> NonZeroU32 {
    NonZeroU32::new(crc32fast::hash(block)).unwrap_or(NonZeroU32::MIN)
}

/// A file whose blocks are compared as they are read.
#[derive(Debug)]
pub(super) struct Watched<B> {
    file: B,
    blocks: Arc<Blocks>,
    /// Keeps a block from being read while it is written.
    turn: RwLock<()>,
}

impl<B: StorageBackend> Watched<B> {
    pub(super) fn new(file: B, blocks: Arc<Blocks>) -> Self {
        Self { file, blocks, turn: RwLock::new(()) }
    }

    /// Reads and compares the whole blocks around a range: the number of the first, their bytes, and where the range
    /// begins.
    fn around(&self, offset: u64, len: usize) -> Result<(usize, Vec<u8>, usize)> {
        let block = BLOCK as u64;
        let begin = offset - offset % block;
        let end =
            offset.saturating_add(len as u64).div_ceil(block).saturating_mul(block).min(self.file.len()?);
        let bytes =
            end.checked_sub(begin).and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(outside)?;
        let mut all = vec![0; bytes];
        self.file.read(begin, &mut all)?;
        let first = usize::try_from(begin / block).map_err(Error::other)?;
        if !self.blocks.compare(first, &all)? {
            self.blocks.learn(first, &all);
        }
        Ok((first, all, usize::try_from(offset % block).map_err(Error::other)?))
    }
}

/// The error of a read or a write past the end.
pub(super) fn outside() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "past the end of the file")
}

impl<B: StorageBackend> StorageBackend for Watched<B> {
    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        if offset.is_multiple_of(BLOCK as u64) && out.len().is_multiple_of(BLOCK) {
            self.file.read(offset, out)?;
            let first = usize::try_from(offset / BLOCK as u64).map_err(Error::other)?;
            if !self.blocks.compare(first, out)? {
                self.blocks.learn(first, out);
            }
            return Ok(());
        }
        let (_, all, inside) = self.around(offset, out.len())?;
        out.copy_from_slice(all.get(inside..inside + out.len()).ok_or_else(outside)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        let before = self.file.len()?;
        self.file.set_len(len)?;
        self.blocks.resize(before, len);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        if offset.is_multiple_of(BLOCK as u64) && data.len().is_multiple_of(BLOCK) {
            self.file.write(offset, data)?;
            self.blocks.learn(usize::try_from(offset / BLOCK as u64).map_err(Error::other)?, data);
            return Ok(());
        }
        let (first, mut all, inside) = self.around(offset, data.len())?;
        all.get_mut(inside..inside + data.len()).ok_or_else(outside)?.copy_from_slice(data);
        self.file.write(offset, data)?;
        self.blocks.learn(first, &all);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> std::result::Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> std::result::Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    /// Memory that a second handle can damage.
    #[derive(Clone, Debug)]
    struct Shared(Arc<InMemoryBackend>);

    impl StorageBackend for Shared {
        fn len(&self) -> Result<u64> {
            self.0.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
            self.0.read(offset, out)
        }
        fn set_len(&self, len: u64) -> Result<()> {
            self.0.set_len(len)
        }
        fn sync_data(&self) -> Result<()> {
            self.0.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
            self.0.write(offset, data)
        }
    }

    #[test]
    fn a_block_is_what_it_was_when_it_was_read_or_written_last_or_an_error() {
        let below = Shared(Arc::new(InMemoryBackend::new()));
        below.set_len(3 * 4_096).unwrap();
        let blocks = Arc::new(Blocks::default());
        let file = Watched::new(below.clone(), Arc::clone(&blocks));
        let read = |offset, len| {
            let mut out = vec![0; len];
            file.read(offset, &mut out).map(|()| out)
        };
        read(0, 4_096).unwrap();
        file.write(4_090, &[7; 12]).unwrap();
        assert_eq!(read(4_090, 12).unwrap(), [7; 12]);
        blocks.close();
        file.set_len(4 * 4_096).unwrap();
        assert_eq!(read(3 * 4_096, 4_096).unwrap(), [0; 4_096], "what it grew by is known");
        assert!(read(2 * 4_096, 10).unwrap_err().to_string().contains("block 2 was no part"));
        file.write(2 * 4_096, &[1; 4_096]).unwrap();
        assert_eq!(read(2 * 4_096, 10).unwrap(), [1; 10]);
        // From the beginning of a block, and not to its end; and as long as a block, in two of them.
        file.write(2 * 4_096, &[2; 10]).unwrap();
        file.write(2 * 4_096 + 100, &[3; 4_096]).unwrap();
        let both = [&[2; 10][..], &[1; 90], &[3; 4_096], &[0; 3_996]].concat();
        assert_eq!(read(2 * 4_096, 2 * 4_096).unwrap(), both);
        below.write(4_096 + 17, &[8]).unwrap();
        assert!(read(4_090, 3).is_ok(), "the block beside it is whole");
        for (offset, len) in [(4_096, 4_096), (4_090, 12), (8_000, 1)] {
            let error = read(offset, len).unwrap_err().to_string();
            assert!(error.contains("block 1 is not what was written"), "{error}");
        }
        assert!(file.write(4_200, &[0]).is_err(), "nothing is built on damage");
        assert!(blocks.damage().is_some());
    }
}
