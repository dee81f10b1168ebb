//! A checkpoint as bytes: all rows as of a number of the log, in order of tables and keys, cut into pages.
//!
//! Layout of a page, numbers big-endian: version (1 byte), generation, its number from 0 (8 each), a piece of the rows
//! as entries, CRC-32 (4). The value of the checkpoint: version, generation, last n contained, epoch of that segment,
//! bytes of all segments up to it, number of pages, bytes of all entries (8 each), their SHA-256, CRC-32. A generation
//! is used once: a page that was sent and comes late never gets among those of another attempt.

use sha2::{Digest as _, Sha256};

use super::super::{Row, StoreError, Table, Write};
use super::bytes::{Cursor, LONGEST, cut_off, put_entry, sealed, unsealed};

const VERSION: u8 = 1;
/// Bytes of a page without rows.
const FRAME: usize = 1 + 2 * 8 + 4;

/// What a checkpoint says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// Its generation: the revision at which it was begun.
    pub(super) generation: u64,
    /// The last segment that it contains.
    pub(super) n: u64,
    /// The epoch of that segment.
    pub(super) epoch: u64,
    /// Bytes of all segments up to that one.
    pub(super) logged: u64,
    /// What it consists of.
    pub(super) content: Content,
}

/// The pages of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) pages: u64,
    /// Bytes of all entries.
    pub(super) size: u64,
    pub(super) hash: [u8; 32],
}

impl Checkpoint {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Content { pages, size, hash } = self.content;
        let mut out = vec![VERSION];
        for word in [self.generation, self.n, self.epoch, self.logged, pages, size] {
            out.extend(word.to_be_bytes());
        }
        out.extend(hash);
        sealed(out)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut cursor = unsealed(bytes, VERSION)?;
        let mut word = || cursor.word().ok_or_else(cut_off);
        let (generation, n, epoch, logged) = (word()?, word()?, word()?, word()?);
        let (pages, size) = (word()?, word()?);
        let hash = cursor.0.try_into().map_err(|_| "it has another length".to_owned())?;
        if n == 0 || epoch == 0 {
            return Err(format!("it ends at number {n} of epoch {epoch}, which cannot be"));
        }
        Ok(Self { generation, n, epoch, logged, content: Content { pages, size, hash } })
    }
}

/// Cuts rows into pages.
pub(super) struct Pager<S> {
    generation: u64,
    room: usize,
    buffer: Vec<u8>,
    pages: u64,
    size: u64,
    hash: Sha256,
    sink: S,
}

impl<S: FnMut(u64, Vec<u8>) -> Result<(), StoreError>> Pager<S> {
    /// Passes pages of at most so many bytes to `sink`, with their numbers.
    pub(super) fn new(generation: u64, page: usize, sink: S) -> Self {
        let room = page.saturating_sub(FRAME).max(1);
        Self { generation, room, buffer: Vec::new(), pages: 0, size: 0, hash: Sha256::new(), sink }
    }

    pub(super) fn row(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        put_entry(&mut self.buffer, &Write::Put(table, key.to_vec(), value.to_vec()));
        while self.buffer.len() >= self.room {
            let rest = self.buffer.split_off(self.room);
            let full = std::mem::replace(&mut self.buffer, rest);
            self.page(&full)?;
        }
        Ok(())
    }

    fn page(&mut self, piece: &[u8]) -> Result<(), StoreError> {
        let mut out = Vec::with_capacity(FRAME + piece.len());
        out.push(VERSION);
        out.extend(self.generation.to_be_bytes());
        out.extend(self.pages.to_be_bytes());
        out.extend_from_slice(piece);
        (self.sink)(self.pages, sealed(out))?;
        self.hash.update(piece);
        self.pages += 1;
        self.size += piece.len() as u64;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Content, StoreError> {
        let rest = std::mem::take(&mut self.buffer);
        if !rest.is_empty() {
            self.page(&rest)?;
        }
        Ok(Content { pages: self.pages, size: self.size, hash: self.hash.finalize().into() })
    }
}

/// Makes rows of the pages of a checkpoint, page by page.
pub(super) struct Unpager {
    checkpoint: Checkpoint,
    rest: Vec<u8>,
    pages: u64,
    size: u64,
    hash: Sha256,
}

impl Unpager {
    pub(super) fn new(checkpoint: Checkpoint) -> Self {
        Self { checkpoint, rest: Vec::new(), pages: 0, size: 0, hash: Sha256::new() }
    }

    /// The number of the page that comes next; `None` behind the last.
    pub(super) fn next(&self) -> Option<u64> {
        (self.pages < self.checkpoint.content.pages).then_some(self.pages)
    }

    /// The rows that end in the next page.
    pub(super) fn page(&mut self, bytes: &[u8]) -> Result<Vec<Row>, String> {
        let mut cursor = unsealed(bytes, VERSION)?;
        let mut word = || cursor.word().ok_or_else(cut_off);
        let (generation, i) = (word()?, word()?);
        if (generation, i) != (self.checkpoint.generation, self.pages) {
            return Err(format!("it is page {i} of generation {generation}"));
        }
        self.pages += 1;
        self.size += cursor.0.len() as u64;
        self.hash.update(cursor.0);
        if self.rest.len() > 2 * LONGEST {
            return Err("a row of it is longer than any can be".to_owned());
        }
        self.rest.extend_from_slice(cursor.0);
        let (mut left, mut rows) = (Cursor(&self.rest), Vec::new());
        while let Some(write) = left.entry()? {
            let Write::Put(table, key, value) = write else {
                return Err("it has an entry that is no row".to_owned());
            };
            rows.push((table, key, value));
        }
        self.rest = left.0.to_vec();
        Ok(rows)
    }

    /// Checks that all of it was read.
    pub(super) fn finish(self) -> Result<(), String> {
        let hash = self.hash.finalize().into();
        let read = Content { pages: self.pages, size: self.size, hash };
        if read != self.checkpoint.content || !self.rest.is_empty() {
            return Err("its pages are not those that were written".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bytes::tests::batches;
    use super::*;

    fn paged(rows: &[Row], page: usize) -> (Checkpoint, Vec<Vec<u8>>) {
        let mut pages = Vec::new();
        let sink = |i: u64, page: Vec<u8>| {
            assert_eq!(i, pages.len() as u64);
            pages.push(page);
            Ok(())
        };
        let mut pager = Pager::new(9, page, sink);
        for (table, key, value) in rows {
            pager.row(*table, key, value).unwrap();
        }
        let content = pager.finish().unwrap();
        (Checkpoint { generation: 9, n: 4, epoch: 3, logged: 70, content }, pages)
    }

    fn read(checkpoint: Checkpoint, pages: &[Vec<u8>]) -> Result<Vec<Row>, String> {
        let (mut unpager, mut rows) = (Unpager::new(checkpoint), Vec::new());
        for page in pages {
            rows.extend(unpager.page(page)?);
        }
        unpager.finish().map(|()| rows)
    }

    proptest! {
        #[test]
        fn pages_make_the_rows_again(batch in batches(), size in 1..600_usize) {
            let row = |write| match write {
                Write::Put(table, key, value) => Some((table, key, value)),
                _ => None,
            };
            let rows: Vec<Row> = batch.into_iter().filter_map(row).collect();
            let (checkpoint, pages) = paged(&rows, size);
            prop_assert!(pages.iter().all(|page| page.len() <= size.max(FRAME + 1)));
            prop_assert_eq!(Checkpoint::decode(&checkpoint.encode()).unwrap(), checkpoint);
            prop_assert_eq!(read(checkpoint, &pages).unwrap(), rows);
        }

        #[test]
        fn checkpoints_and_pages_of_any_bytes_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            prop_assert!(Checkpoint::decode(&bytes).is_err());
            let (checkpoint, _) = paged(&[], 100);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            let _ = Checkpoint::decode(&sealed(bytes.clone()));
            prop_assert!(Unpager::new(checkpoint).page(&bytes).is_err());
        }
    }

    #[test]
    fn a_page_that_is_missing_foreign_or_damaged_is_found() {
        let rows: Vec<Row> = (0..20_u8).map(|key| (Table::Groups, vec![key], vec![key; 30])).collect();
        let (checkpoint, pages) = paged(&rows, 100);
        assert_eq!(read(checkpoint, &pages).unwrap(), rows);
        assert!(read(checkpoint, &pages[1..]).unwrap_err().contains("page 1"));
        assert!(read(checkpoint, &pages[..pages.len() - 1]).unwrap_err().contains("not those"));
        let mut damaged = pages.clone();
        damaged[1][40] ^= 1;
        assert!(read(checkpoint, &damaged).unwrap_err().contains("checksum"));
        let other = Checkpoint { content: Content { hash: [0; 32], ..checkpoint.content }, ..checkpoint };
        assert!(read(other, &pages).unwrap_err().contains("not those"));
        let bytes = checkpoint.encode();
        for bit in 0..8 * bytes.len() {
            let mut turned = bytes.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            assert!(Checkpoint::decode(&turned).is_err(), "bit {bit}");
        }
    }
}
