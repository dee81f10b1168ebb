//! A store file under construction: under a name of its own until it is whole and on disk, readable by its owner only.
//!
//! Whatever ends the process or fills the disk meanwhile, the final name never holds a part of a store. A draft that is
//! given up is removed; one whose process is killed stays as `<name>.<random>.part` and may be deleted.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use redb::WriteTransaction;

use super::file::{RedbStore, definition, failed};
use super::guarded::{Guarded, walled};
use super::opening::{builder, opened};
use super::records::{META_CLEAN, META_COMMIT};
use super::seal::sync_folder;
use super::{StoreError, Table};

/// One row: its table, its key and its value.
pub type Row = (Table, Vec<u8>, Vec<u8>);

/// The file under construction.
pub struct Draft {
    target: PathBuf,
    path: PathBuf,
    replace: bool,
    // Dropped before the database, which the transaction uses.
    transaction: Option<WriteTransaction>,
    database: Option<Guarded>,
    rows: u64,
}

impl Draft {
    /// Begins a file for the name `target`. With `replace` it may replace a store that no process has open, and nothing
    /// else.
    ///
    /// # Errors
    /// The file exists, or creating one failed.
    pub fn begin(target: &Path, replace: bool) -> Result<Self, StoreError> {
        match fs::symlink_metadata(target) {
            Ok(_) if !replace => return Err(StoreError::Exists { path: target.to_owned() }),
            // Refuses to replace a file that is no store, and a store in use, which must not lose its name.
            Ok(_) => drop(RedbStore::peek(target)?),
            Err(_) => {}
        }
        Self::beside(target, replace)
    }

    /// The same; with `replace` it may replace any file.
    pub(crate) fn beside(target: &Path, replace: bool) -> Result<Self, StoreError> {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".{:016x}.part", rand::random::<u64>()));
        let path = PathBuf::from(name);
        let open =
            |error: std::io::Error| StoreError::Open { path: target.to_owned(), reason: error.to_string() };
        if target.file_name().is_none() {
            return Err(open(ErrorKind::IsADirectory.into()));
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path).map_err(open)?;
        let mut draft =
            Self { target: target.to_owned(), path, replace, transaction: None, database: None, rows: 0 };
        let database = opened(&draft.target, || builder().create_file(file))?;
        let begin = |database: &redb::Database| database.begin_write().map_err(failed("begin a copy"));
        draft.transaction = Some(database.call("begin a copy", begin)?);
        draft.database = Some(database);
        Ok(draft)
    }

    /// Adds rows, except for the mark of a clean stop and the number of the last commit, which belong to the original
    /// only.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub fn put(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        self.write(rows, |table, key| !is_mark(table, key))
    }

    /// Adds rows, without any exception.
    pub(super) fn put_all(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        self.write(rows, |_, _| true)
    }

    fn write(&mut self, rows: &[Row], belongs: impl Fn(Table, &[u8]) -> bool) -> Result<(), StoreError> {
        let Some(transaction) = &self.transaction else { return Ok(()) };
        // A table is opened once for all consecutive rows of it.
        for rows in rows.chunk_by(|(one, ..), (next, ..)| one == next) {
            let Some((table, ..)) = rows.first() else { continue };
            let written = walled("write rows of a copy", || {
                let open = transaction.open_table(definition(*table));
                let mut open = open.map_err(failed("open a table of a copy"))?;
                let mut written: u64 = 0;
                for (_, key, value) in rows.iter().filter(|(table, key, _)| belongs(*table, key)) {
                    open.insert(key.as_slice(), value.as_slice()).map_err(failed("write a row of a copy"))?;
                    written = written.saturating_add(1);
                }
                Ok(written)
            })?;
            self.rows = self.rows.saturating_add(written);
        }
        Ok(())
    }

    /// Number of rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Makes the file whole and durable, and gives it its name once `verify` finds nothing wrong with it.
    ///
    /// # Errors
    /// The disk is full or fails, another file has taken the name meanwhile, or `verify` fails.
    pub fn finish<E: From<StoreError>>(
        mut self,
        verify: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        self.close()?;
        verify(&self.path)?;
        self.place()?;
        Ok(sync_folder(&self.target).map_err(failed("finish a copy"))?)
    }

    fn close(&mut self) -> Result<(), StoreError> {
        if let Some(transaction) = self.transaction.take() {
            walled("finish a copy", || transaction.commit().map_err(failed("finish a copy")))?;
        }
        drop(self.database.take());
        // The rest of it, which closing wrote, too.
        let synced = File::open(&self.path).and_then(|file| file.sync_all());
        synced.map_err(failed("finish a copy"))
    }

    fn place(&self) -> Result<(), StoreError> {
        let exists = || StoreError::Exists { path: self.target.clone() };
        if !self.replace {
            // A link, unlike a rename, never takes a name that is in use.
            match fs::hard_link(&self.path, &self.target) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(exists()),
                // Some file systems have no links.
                Err(_) if fs::symlink_metadata(&self.target).is_ok() => return Err(exists()),
                Err(_) => {}
            }
        }
        fs::rename(&self.path, &self.target).map_err(failed("give a copy its name"))
    }
}

fn is_mark(table: Table, key: &[u8]) -> bool {
    table == Table::Meta && (key == META_CLEAN || key == META_COMMIT)
}

impl Drop for Draft {
    fn drop(&mut self) {
        drop(self.transaction.take());
        drop(self.database.take());
        // The file has its final name by now, or is given up.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::store::Store as _;
    use crate::store::records::{FORMAT, META_FORMAT};

    fn rows() -> [Row; 4] {
        [
            (Table::Meta, META_COMMIT.to_vec(), b"0 5".to_vec()),
            (Table::Meta, META_CLEAN.to_vec(), b"{}".to_vec()),
            (Table::Meta, META_FORMAT.to_vec(), FORMAT.to_string().into_bytes()),
            (Table::Groups, b"a".to_vec(), b"1".to_vec()),
        ]
    }

    fn unverified(_: &Path) -> Result<(), StoreError> {
        Ok(())
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn a_copy_has_its_name_when_it_is_whole_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        let mut draft = Draft::begin(&path, false).unwrap();
        draft.put(&rows()).unwrap();
        assert_eq!(draft.rows(), 2, "the mark of a clean stop and of a commit stay behind");
        assert!(!path.exists());
        draft.finish(unverified).unwrap();
        assert_eq!(names(folder.path()), ["copy"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let store = RedbStore::peek(&path).unwrap();
        assert_eq!(store.get(Table::Meta, &[META_CLEAN.to_vec()]).unwrap(), [None]);
        assert_eq!(store.get(Table::Groups, &[b"a".to_vec()]).unwrap(), [Some(b"1".to_vec())]);
    }

    #[test]
    fn what_is_given_up_leaves_nothing_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        let mut draft = Draft::begin(&path, false).unwrap();
        draft.put(&rows()).unwrap();
        drop(draft);
        assert!(names(folder.path()).is_empty());
        // Another draft is finished first.
        let mut draft = Draft::begin(&path, false).unwrap();
        draft.put(&rows()).unwrap();
        fs::write(&path, "notes").unwrap();
        assert!(matches!(draft.finish(unverified), Err(StoreError::Exists { .. })));
        assert!(matches!(Draft::begin(&path, false), Err(StoreError::Exists { .. })));
        assert!(matches!(Draft::begin(&path, true), Err(StoreError::Unreadable { .. })));
        assert_eq!((fs::read_to_string(&path).unwrap(), names(folder.path()).len()), ("notes".to_owned(), 1));
    }

    #[test]
    fn a_store_gives_way_unless_it_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        let open = RedbStore::open(&path).unwrap();
        assert!(matches!(Draft::begin(&path, true), Err(StoreError::Locked { .. })));
        drop(open);
        let mut draft = Draft::begin(&path, true).unwrap();
        draft.put(&rows()).unwrap();
        draft.finish(unverified).unwrap();
        assert_eq!(RedbStore::peek(&path).unwrap().get(Table::Groups, &[b"a".to_vec()]).unwrap().len(), 1);
    }
}
