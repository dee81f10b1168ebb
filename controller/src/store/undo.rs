//! Taking a commit back that failed and is on disk after all.
//!
//! A sync that fails does not say what reached the disk. The rooms that hold definitions in memory go by the report, so
//! such a commit is taken back when the file is opened again, before anything else is read or written. Consumption needs
//! no such care: it is stored as totals, and the next flush writes over them. A process that dies before it has taken
//! the commit back leaves it on disk.

use redb::Database;

use super::file::get;
use super::note::CommitMark;
use super::records::META_EPOCH;
use super::replicated::defines;
use super::{Batch, StoreError, Table, Write, by_table};

/// A commit that is being made, and the rows that it changes as they were before it.
pub(super) struct Undo {
    mark: CommitMark,
    before: Batch,
}

impl Undo {
    /// Reads what a commit is about to change, if the memory of the controller depends on whether it succeeds. Rows that
    /// it removes by age stay removed, as the next removal has them again.
    pub(super) fn of(
        database: &Database,
        batch: &[Write],
        mark: CommitMark,
    ) -> Result<Option<Self>, StoreError> {
        if !batch.iter().any(matters) {
            return Ok(None);
        }
        let mut before = Batch::with_capacity(batch.len());
        for (table, writes) in by_table(batch) {
            let keys: Vec<Vec<u8>> = writes.iter().filter_map(key).cloned().collect();
            let rows = get(database, table, &keys)?;
            before.extend(keys.into_iter().zip(rows).map(|(key, row)| match row {
                Some(value) => Write::Put(table, key, value),
                None => Write::Delete(table, key),
            }));
        }
        Ok(Some(Self { mark, before }))
    }

    /// The batch that takes the commit back, if it is the one found as the last of the file.
    pub(super) fn needed(&self, found: CommitMark) -> Option<&[Write]> {
        (self.mark == found).then_some(self.before.as_slice())
    }
}

/// Whether the controller holds a picture of the row in memory that is right only if a failed write is not there. A raised
/// epoch on disk would stop the controller, which has the one before.
fn matters(write: &Write) -> bool {
    match write {
        Write::Put(Table::Meta, key, _) => key == META_EPOCH,
        Write::Put(..) | Write::Delete(..) => defines(write),
        Write::DeleteBelow(..) => false,
    }
}

fn key(write: &Write) -> Option<&Vec<u8>> {
    match write {
        Write::Put(_, key, _) | Write::Delete(_, key) => Some(key),
        Write::DeleteBelow(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::failing::Failing;
    use super::super::note::Note;
    use super::super::opening::missed;
    use super::super::{RedbStore, Store as _};
    use super::*;

    fn put(table: Table, key: &[u8], value: &[u8]) -> Write {
        Write::Put(table, key.to_vec(), value.to_vec())
    }

    /// What is there of a group, its audit entry, its consumption, and the epoch.
    fn rows(store: &RedbStore) -> Vec<Option<Vec<u8>>> {
        let get = |table, key: &[u8]| store.get(table, &[key.to_vec()]).unwrap().remove(0);
        let (group, audit) = (get(Table::Groups, b"a"), get(Table::Audit, b"1"));
        vec![group, audit, get(Table::Ledger, b"a"), get(Table::Meta, META_EPOCH)]
    }

    /// When the disk works again.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Back {
        /// After one write.
        Now,
        /// When something is read next.
        ForAReader,
        /// When something is written next.
        ForAWriter,
    }

    /// Makes a batch fail after so many writes. Returns whether the disk had it.
    fn fail(batch: &[Write], left: u64, back: Back) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let disk = Failing::default();
        let store = disk.open(&path).numbered(&path).unwrap();
        let epoch = put(Table::Meta, META_EPOCH, b"1");
        store.commit(&[put(Table::Groups, b"a", b"old"), put(Table::Ledger, b"a", b"5"), epoch]).unwrap();
        let before = rows(&store);
        let what = format!("{batch:?} failed after {left} writes, {back:?}");
        match back {
            Back::Now => disk.fails_once_after(left),
            Back::ForAReader | Back::ForAWriter => disk.fails_after(left),
        }
        if store.commit(batch).is_ok() {
            return false;
        }
        let had = rows(&disk.copy().open(&path)) != before;
        // A process that dies now leaves nothing of it.
        assert!(!(had && back == Back::Now), "{what}");
        disk.fails_after(u64::MAX);
        if back != Back::ForAWriter {
            assert_eq!(rows(&store), before, "{what}");
        }
        store.commit(&[put(Table::Ledger, b"b", b"6")]).unwrap();
        assert_eq!(rows(&store), before, "{what}");
        drop(store);
        // Nor is it there at the next start, which finds the last commit that was acknowledged.
        let next = disk.open(&path);
        assert_eq!(rows(&next), before, "{what}");
        missed(&path, &Note::of(&path), next.last_commit().unwrap()).unwrap();
        had
    }

    #[test]
    fn what_was_reported_as_failed_is_not_there_though_the_disk_had_it() {
        let changes: [&[Write]; 3] = [
            &[put(Table::Groups, b"a", b"new"), put(Table::Audit, b"1", b"a: new")],
            // A deletion takes consumption along.
            &[
                Write::Delete(Table::Groups, b"a".to_vec()),
                Write::Delete(Table::Ledger, b"a".to_vec()),
                put(Table::Audit, b"1", b"a: gone"),
            ],
            &[put(Table::Meta, META_EPOCH, b"2")],
        ];
        for batch in changes {
            for back in [Back::ForAReader, Back::ForAWriter] {
                let had = (0..40).filter(|left| fail(batch, *left, back)).count();
                assert!(had > 0, "no failure left it on the disk: {batch:?}");
            }
            for left in 0..40 {
                fail(batch, left, Back::Now);
            }
        }
    }
}
