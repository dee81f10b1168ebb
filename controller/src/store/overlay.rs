//! A store file that is only inspected: reads come from the file, writes stay in memory.
//!
//! redb repairs a file when it opens one that was not closed in order. A copy that is checked must not change, and a
//! store whose controller died must not lose what a repair would drop, so the repair happens here, in pages that are
//! not written back. The file is locked as a reader locks it: not while a controller has it, and no controller
//! meanwhile.
//!
//! redb trusts a file that was closed in order and compares none of its pages with their checksums. `doubt` makes it
//! repair the file in any case, which begins with every page in use, before it interprets any of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::blocks::{Blocks, Watched, outside};

/// The first bytes of a redb file; the next byte holds flags about its end.
const MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";
/// The flag that the file was not closed in order.
const RECOVER: u8 = 2;
/// The flag that the last commit is whole, as is the one that closes it.
const WHOLE: u8 = 4;

/// Bytes of a piece of the file, which is kept in memory once a byte of it is written.
const PIECE: usize = 4_096;

/// The file and what was written over it.
#[derive(Clone, Debug)]
pub(super) struct Overlay {
    file: Arc<Watched<FileBackend>>,
    above: Arc<Mutex<Above>>,
}

#[derive(Debug)]
struct Above {
    /// Length of the file with all writes.
    len: u64,
    /// Length of the visible part of the file itself: it shrinks with the length and never grows.
    shown: u64,
    pieces: BTreeMap<u64, Box<[u8; PIECE]>>,
}

impl Overlay {
    /// Opens the file; `blocks` learns its content.
    pub(super) fn open(path: &Path, blocks: Arc<Blocks>) -> Result<Self> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(Error::new(ErrorKind::InvalidInput, "it is not a file"));
        }
        let file = Watched::new(FileBackend::new(file).map_err(Error::other)?, blocks);
        let len = file.len()?;
        let above = Above { len, shown: len, pieces: BTreeMap::new() };
        Ok(Self { file: Arc::new(file), above: Arc::new(Mutex::new(above)) })
    }

    /// Makes a redb file look as if it had not been closed in order; returns whether it was.
    pub(super) fn doubt(&self) -> Result<bool> {
        let mut begin = [0; MAGIC.len() + 1];
        if self.len()? < begin.len() as u64 {
            return Ok(false);
        }
        self.read(0, &mut begin)?;
        let [magic @ .., end] = begin;
        if magic != MAGIC {
            return Ok(false);
        }
        self.write(MAGIC.len() as u64, &[(end | RECOVER) & !WHOLE])?;
        Ok(end & RECOVER == 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.above().len == 0
    }

    fn above(&self) -> MutexGuard<'_, Above> {
        self.above.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Above {
    /// The piece with a number, with all writes.
    fn piece(&self, file: &Watched<FileBackend>, number: u64) -> Result<Box<[u8; PIECE]>> {
        if let Some(piece) = self.pieces.get(&number) {
            return Ok(piece.clone());
        }
        let mut piece = Box::new([0; PIECE]);
        let begin = number.saturating_mul(PIECE as u64);
        let there = usize::try_from(self.shown.saturating_sub(begin)).unwrap_or(PIECE).min(PIECE);
        if let Some(part) = piece.get_mut(..there).filter(|part| !part.is_empty()) {
            file.read(begin, part)?;
        }
        Ok(piece)
    }
}

/// The pieces that `len` bytes from `offset` touch: number, offset in the piece, offset in the bytes, length.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= len {
            return None;
        }
        let at = offset.saturating_add(done as u64);
        let inside = usize::try_from(at % PIECE as u64).unwrap_or_default();
        let count = (PIECE - inside).min(len - done);
        let part = (at / PIECE as u64, inside, done, count);
        done += count;
        Some(part)
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> Result<u64> {
        Ok(self.above().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let above = self.above();
        if offset.saturating_add(out.len() as u64) > above.len {
            return Err(outside());
        }
        for (number, inside, from, count) in parts(offset, out.len()) {
            let piece = above.piece(&self.file, number)?;
            let (Some(to), Some(bytes)) =
                (out.get_mut(from..from + count), piece.get(inside..inside + count))
            else {
                return Err(outside());
            };
            to.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut above = self.above();
        above.shown = above.shown.min(len);
        above.len = len;
        // The part beyond reads as zeros if the file grows again.
        above.pieces.split_off(&len.div_ceil(PIECE as u64));
        let (last, inside) = (len / PIECE as u64, usize::try_from(len % PIECE as u64).unwrap_or_default());
        if let Some(rest) = above.pieces.get_mut(&last).and_then(|piece| piece.get_mut(inside..)) {
            rest.fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut above = self.above();
        if offset.saturating_add(data.len() as u64) > above.len {
            return Err(outside());
        }
        for (number, inside, from, count) in parts(offset, data.len()) {
            let mut piece = above.piece(&self.file, number)?;
            let (Some(to), Some(bytes)) =
                (piece.get_mut(inside..inside + count), data.get(from..from + count))
            else {
                return Err(outside());
            };
            to.copy_from_slice(bytes);
            above.pieces.insert(number, piece);
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> std::result::Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> std::result::Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn writes_show_and_the_file_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..10_000_u32).map(|number| (number % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let overlay = Overlay::open(&path, Arc::default()).unwrap();
        let read = |offset, len| {
            let mut out = vec![0; len];
            overlay.read(offset, &mut out).map(|()| out)
        };
        assert_eq!(read(0, 10_000).unwrap(), bytes);
        overlay.write(4_090, &[255; 20]).unwrap();
        let mut expected = bytes.clone();
        expected[4_090..4_110].fill(255);
        assert_eq!(read(0, 10_000).unwrap(), expected);
        assert!(read(9_999, 2).is_err() && overlay.write(9_999, &[1, 2]).is_err());
        // The part that was cut off reads as zeros after the file grows again.
        overlay.set_len(4_100).unwrap();
        overlay.set_len(9_000).unwrap();
        expected.truncate(4_100);
        expected.resize(9_000, 0);
        assert_eq!(read(0, 9_000).unwrap(), expected);
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert!(Overlay::open(folder.path(), Arc::default()).is_err());
    }
}
