//! The store that ships: one redb file.
//!
//! A new file is built under a temporary name and renamed when it is complete, so that a file under the store's name is
//! always a whole store and an empty or foreign file is an error, never a reason to start empty. fsync follows every
//! commit (redb's immediate durability).
//!
//! Every opening first reads the file through as it is (`Overlay`): each page in use must have its checksum, and the
//! last acknowledged commit must be there (`Note`). From then on each block must be what it was (`Blocks`).
//!
//! After a failed write redb refuses everything until the file is reopened, so the next call reopens it first: a disk
//! that was full for a while costs only the calls of that time.

use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use redb::{
    Database, ReadTransaction, ReadableDatabase as _, StorageBackend, TableDefinition, TableError,
    TableHandle as _,
};

use super::blocks::Blocks;
use super::guarded::{DAMAGED, Guarded, walled};
use super::note::{CommitMark, Note};
use super::opening::{
    builder, create, doubted, doubting, format_row, last_commit, missed, opened, sound, unreadable,
};
use super::records::{FORMAT, META_COMMIT, META_FORMAT};
use super::seal::{FileSeal, NoSeal, Seal};
use super::undo::Undo;
use super::{Store, StoreError, Table, Visit, VisitAll, Write, by_table};

/// The redb file.
pub struct RedbStore {
    /// Reopens the file.
    again: Box<dyn Fn() -> Result<Guarded, StoreError> + Send + Sync>,
    /// `None` after a failed commit, until the file is reopened.
    database: RwLock<Option<Guarded>>,
    seal: Box<dyn Seal>,
    /// The numbers of commits, if the store is a file in use.
    numbered: Option<Numbered>,
}

/// The number of the last commit.
struct Numbered {
    path: PathBuf,
    note: Note,
    /// Lets one commit at a time be made and noted.
    turn: Mutex<()>,
    last: Mutex<CommitMark>,
    /// The commit that is being made, or that failed last, if it must not be there unless it succeeds.
    undo: Mutex<Option<Undo>>,
}

impl Numbered {
    fn of(path: &Path, last: Option<CommitMark>) -> Self {
        let last = Mutex::new(CommitMark::begin(last));
        Self {
            path: path.to_owned(),
            note: Note::of(path),
            turn: Mutex::default(),
            last,
            undo: Mutex::default(),
        }
    }

    /// Notes a commit that is on disk. A failure to note its number must not make it fail.
    fn note(&self, mark: CommitMark) {
        if let Err(error) = self.note.write(mark) {
            tracing::warn!(%error, path = %self.note.path().display(), "the last commit could not be noted");
        }
    }

    /// Checks a file that was opened again: it must contain every acknowledged commit, and is left without the one that
    /// failed.
    fn resume(&self, open: &Guarded) -> Result<(), StoreError> {
        let found = open.call("read the number of the last commit", last_commit)?;
        let mut last = lock(&self.last);
        let Some(found) = found else { return Ok(()) };
        if found.lacks(*last) {
            return Err(unreadable(&self.path, &found.told(*last)));
        }
        let mut undo = lock(&self.undo);
        *last = if last.lacks(found) { found } else { *last };
        if let Some(before) = undo.as_ref().and_then(|undo| undo.needed(found)) {
            let mark = last.next();
            open.call("take a failed change back", |database| commit(database, before, Some(mark)))?;
            *last = mark;
            self.note(mark);
            tracing::warn!("a change that was reported as failed was on disk, and is taken back");
        }
        *undo = None;
        Ok(())
    }
}

impl RedbStore {
    /// Opens the store at `path`, creating it when there is no such file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let missing = matches!(fs::metadata(path), Err(error) if error.kind() == ErrorKind::NotFound);
        if missing {
            create(path)?;
        }
        let named = path.to_owned();
        let store = Self::over(FileSeal::of(path), move || sound(&named))?;
        store.check_format(path)?;
        store.numbered(path)
    }

    /// Numbers its commits, and notes the last one beside `path`.
    pub(super) fn numbered(self, path: &Path) -> Result<Self, StoreError> {
        let numbered = Numbered::of(path, self.last_commit()?);
        Ok(Self { numbered: Some(numbered), ..self })
    }

    /// Opens the store on a medium that is no file, creating it when the medium is empty. Simulations and fuzzing use
    /// this to put a disk with faults under the store; errors name it by `path`.
    pub fn open_on(
        medium: impl StorageBackend + Clone,
        seal: impl Seal + 'static,
        path: &Path,
    ) -> Result<Self, StoreError> {
        let fresh = medium.len().map_err(|error| unreadable(path, &error.to_string()))? == 0;
        let named = path.to_owned();
        let store =
            Self::over(seal, move || opened(&named, || builder().create_with_backend(medium.clone())))?;
        if fresh {
            store.commit(&[format_row()])?;
        }
        store.check_format(path)?;
        Ok(store)
    }

    /// Opens the store at `path`, which no other process has open, without changing it: writes stay in memory.
    ///
    /// # Errors
    /// There is no such file, it is in use, it is no store of this format, or it is damaged.
    pub fn peek(path: &Path) -> Result<Self, StoreError> {
        let blocks = Arc::new(Blocks::default());
        let (medium, in_order) = doubted(path, &blocks)?;
        let named = path.to_owned();
        let open = move || {
            let doubting = doubting(in_order);
            Ok(opened(&named, || doubting.create_with_backend(medium.clone()))?.watched(Arc::clone(&blocks)))
        };
        let store = Self::over(NoSeal, open)?;
        store.check_format(path)?;
        missed(path, &Note::of(path), store.last_commit()?)?;
        Ok(store)
    }

    /// Checks every page against its checksum, and that the file has no tables but those of its format. Returns what is
    /// wrong, or `None`.
    pub fn integrity(&mut self) -> Option<String> {
        let open = self.database.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = open else { return Some(DAMAGED.to_owned()) };
        if let Err(reason) = database.check_pages() {
            return Some(reason);
        }
        let names = database.call("list the tables", |database| {
            let transaction = database.begin_read().map_err(failed("begin to read"))?;
            let tables = transaction.list_tables().map_err(failed("list the tables"))?;
            Ok(tables.map(|table| table.name().to_owned()).collect::<Vec<_>>())
        });
        match names {
            Ok(names) => names
                .iter()
                .find(|name| Table::named(name).is_none())
                .map(|name| format!("it holds a table {name}, which this version does not know")),
            Err(error) => Some(error.to_string()),
        }
    }

    pub(super) fn over(
        seal: impl Seal + 'static,
        open: impl Fn() -> Result<Guarded, StoreError> + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        let database = RwLock::new(Some(open()?));
        Ok(Self { again: Box::new(open), database, seal: Box::new(seal), numbered: None })
    }

    /// Makes one call on the open file.
    fn call<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let open = self.database.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(database) = &*open {
            return database.call(operation, call);
        }
        drop(open);
        let mut closed = self.database.write().unwrap_or_else(PoisonError::into_inner);
        match &*closed {
            // Another call has reopened it.
            Some(database) => database.call(operation, call),
            None => closed.insert(self.opened_again()?).call(operation, call),
        }
    }

    fn opened_again(&self) -> Result<Guarded, StoreError> {
        let open = (self.again)()?;
        self.numbered.as_ref().map_or(Ok(()), |numbered| numbered.resume(&open))?;
        Ok(open)
    }

    /// Makes a commit. If it fails, the next call reopens the file.
    fn committed<T>(&self, call: impl FnOnce(&Database) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let result = self.call("commit a change", call);
        if result.is_err() {
            *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        result
    }

    /// The mark of the last commit in the file.
    pub(super) fn last_commit(&self) -> Result<Option<CommitMark>, StoreError> {
        self.call("read the number of the last commit", last_commit)
    }

    fn check_format(&self, path: &Path) -> Result<(), StoreError> {
        let rows = self.get(Table::Meta, &[META_FORMAT.to_vec()]);
        let rows = rows.map_err(|error| unreadable(path, &error.to_string()))?;
        match rows.into_iter().flatten().next() {
            None => Err(unreadable(path, "it is a redb file, but not one of a tidegate controller")),
            Some(found) if found == FORMAT.to_string().as_bytes() => Ok(()),
            Some(found) => Err(StoreError::Format {
                path: path.to_owned(),
                found: String::from_utf8_lossy(&found).chars().take(40).collect(),
                expected: FORMAT,
            }),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) const fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

pub(super) fn failed<E: std::fmt::Display>(operation: &'static str) -> impl Fn(E) -> StoreError {
    move |error| StoreError::Failed { operation, reason: error.to_string() }
}

impl Store for RedbStore {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let Some(numbered) = &self.numbered else {
            return self.committed(|database| commit(database, batch, None));
        };
        let _turn = lock(&numbered.turn);
        let made = self.committed(|database| {
            let mark = lock(&numbered.last).next();
            *lock(&numbered.undo) = Undo::of(database, batch, mark)?;
            commit(database, batch, Some(mark))?;
            *lock(&numbered.last) = mark;
            *lock(&numbered.undo) = None;
            Ok(mark)
        });
        match made {
            Ok(mark) => numbered.note(mark),
            // The sooner it is taken back, the less can come between. A disk that is still away lets the next call do it.
            Err(_) if lock(&numbered.undo).is_some() => drop(self.last_commit()),
            Err(_) => {}
        }
        made.map(drop)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.call("read a table", |database| scan(database, table, from, visit))
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.call("read rows", |database| get(database, table, keys))
    }

    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        let begin = |database: &Database| database.begin_read().map_err(failed("begin to read"));
        // Others use the file while the rows are visited, and reopen it if a commit of theirs fails.
        let transaction = self.call("begin to read", begin)?;
        let copied = walled("read all tables", || copy(&transaction, visit));
        match &*self.database.read().unwrap_or_else(PoisonError::into_inner) {
            Some(database) => database.told("read all tables", copied),
            None => copied,
        }
    }

    fn seal(&self) -> Result<String, StoreError> {
        self.seal.set().map_err(failed("put the seal of a clean stop beside it"))
    }

    fn break_seal(&self) -> Result<Option<String>, StoreError> {
        self.seal.take().map_err(failed("break the seal of the last clean stop"))
    }
}

fn commit(database: &Database, batch: &[Write], mark: Option<CommitMark>) -> Result<(), StoreError> {
    let transaction = database.begin_write().map_err(failed("begin a change"))?;
    // A table is opened once for all consecutive writes to it.
    for (table, writes) in by_table(batch) {
        let mut rows = transaction.open_table(definition(table)).map_err(failed("open a table"))?;
        for write in writes {
            match write {
                Write::Put(_, key, value) => {
                    rows.insert(key.as_slice(), value.as_slice()).map_err(failed("write a row"))?;
                }
                Write::Delete(_, key) => {
                    rows.remove(key.as_slice()).map_err(failed("remove a row"))?;
                }
                Write::DeleteBelow(_, key) => {
                    rows.retain_in(..key.as_slice(), |_, _| false).map_err(failed("remove rows"))?;
                }
            }
        }
    }
    if let Some(mark) = mark {
        let mut rows = transaction.open_table(definition(Table::Meta)).map_err(failed("open a table"))?;
        rows.insert(META_COMMIT, mark.text().as_bytes()).map_err(failed("write a row"))?;
    }
    transaction.commit().map_err(failed("commit a change"))
}

fn scan(database: &Database, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
    let transaction = database.begin_read().map_err(failed("begin to read"))?;
    visit_rows(&transaction, table, from, visit).map(drop)
}

fn copy(transaction: &ReadTransaction, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
    for table in Table::ALL {
        let mut visit = |key: &[u8], value: &[u8]| visit(table, key, value);
        if visit_rows(transaction, table, &[], &mut visit)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn visit_rows(
    transaction: &ReadTransaction,
    table: Table,
    from: &[u8],
    visit: &mut Visit<'_>,
) -> Result<ControlFlow<()>, StoreError> {
    let rows = match transaction.open_table(definition(table)) {
        Ok(rows) => rows,
        Err(TableError::TableDoesNotExist(_)) => return Ok(ControlFlow::Continue(())),
        Err(error) => return Err(failed("open a table")(error)),
    };
    for row in rows.range(from..).map_err(failed("read a table"))? {
        let (key, value) = row.map_err(failed("read a row"))?;
        if let ControlFlow::Break(()) = visit(key.value(), value.value())? {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

pub(super) fn get(
    database: &Database,
    table: Table,
    keys: &[Vec<u8>],
) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
    let transaction = database.begin_read().map_err(failed("begin to read"))?;
    let rows = match transaction.open_table(definition(table)) {
        Ok(rows) => rows,
        Err(TableError::TableDoesNotExist(_)) => return Ok(vec![None; keys.len()]),
        Err(error) => return Err(failed("open a table")(error)),
    };
    let values = keys.iter().map(|key| {
        let value = rows.get(key.as_slice()).map_err(failed("read a row"))?;
        Ok(value.map(|value| value.value().to_vec()))
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::super::failing::Failing;
    use super::*;

    fn put(table: Table, key: &[u8], value: &[u8]) -> Write {
        Write::Put(table, key.to_vec(), value.to_vec())
    }

    #[test]
    fn rows_survive_reopening_and_ranges_are_pruned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        {
            let store = RedbStore::open(&path).unwrap();
            store
                .commit(&[
                    put(Table::Groups, b"a", b"1"),
                    put(Table::Groups, b"b", b"2"),
                    put(Table::Groups, b"c", b"3"),
                ])
                .unwrap();
            store
                .commit(&[
                    Write::DeleteBelow(Table::Groups, b"b".to_vec()),
                    Write::Delete(Table::Groups, b"x".to_vec()),
                ])
                .unwrap();
        }
        let store = RedbStore::open(&path).unwrap();
        let mut seen = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            seen.push((key.to_vec(), value.to_vec()));
            Ok(ControlFlow::Continue(()))
        };
        store.scan(Table::Groups, b"", &mut visit).unwrap();
        assert_eq!(seen, [(b"b".to_vec(), b"2".to_vec()), (b"c".to_vec(), b"3".to_vec())]);
        assert_eq!(
            store.get(Table::Groups, &[b"c".to_vec(), b"a".to_vec()]).unwrap(),
            [Some(b"3".to_vec()), None]
        );
        assert_eq!(store.get(Table::Hours, &[b"c".to_vec()]).unwrap(), [None]);
    }

    #[test]
    fn a_file_that_failed_is_opened_again_as_soon_as_it_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let store = RedbStore::open(&path).unwrap();
        store.commit(&[put(Table::Groups, b"a", b"1")]).unwrap();
        // As after a failed commit, on a disk that is away.
        *store.database.write().unwrap() = None;
        let away = folder.path().join("away");
        fs::rename(&path, &away).unwrap();
        let keys = [b"a".to_vec(), b"b".to_vec()];
        assert!(matches!(store.commit(&[put(Table::Groups, b"b", b"2")]), Err(StoreError::Open { .. })));
        assert!(matches!(store.get(Table::Groups, &keys), Err(StoreError::Open { .. })));
        assert!(!path.exists(), "no empty store takes its place");
        fs::rename(&away, &path).unwrap();
        store.commit(&[put(Table::Groups, b"b", b"2")]).unwrap();
        assert_eq!(store.get(Table::Groups, &keys).unwrap(), [Some(b"1".to_vec()), Some(b"2".to_vec())]);
    }

    #[test]
    fn a_commit_whose_number_cannot_be_noted_is_one_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let store = RedbStore::open(&folder.path().join("store")).unwrap();
        // No file can be where a folder is.
        fs::create_dir(folder.path().join("store.commit")).unwrap();
        for value in [b"1", b"2"] {
            store.commit(&[put(Table::Groups, b"a", value)]).unwrap();
            assert_eq!(store.get(Table::Groups, &[b"a".to_vec()]).unwrap(), [Some(value.to_vec())]);
        }
    }

    #[test]
    fn what_a_start_that_was_cut_off_left_of_a_new_store_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let (path, part) = (folder.path().join("store"), folder.path().join("store.new"));
        fs::write(&part, "a part of a store").unwrap();
        let store = RedbStore::open(&path).unwrap();
        store.commit(&[put(Table::Groups, b"a", b"1")]).unwrap();
        assert!(path.exists() && !part.exists());
    }

    #[test]
    fn commits_go_on_after_any_that_failed_at_any_write_and_none_is_missed_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        for fails_after in [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32] {
            let path = folder.path().join(format!("store-{fails_after}"));
            let failing = Failing::default();
            let store = failing.open(&path).numbered(&path).unwrap();
            let mut acknowledged = Vec::new();
            for round in 0..2_u8 {
                for (step, left) in [u64::MAX, fails_after, fails_after / 2, u64::MAX].into_iter().enumerate()
                {
                    failing.fails_after(left);
                    let key = vec![round, u8::try_from(step).unwrap()];
                    // The file has to grow for the large ones, which can fail before the commit.
                    let large = |part: u8| put(Table::Hours, &[round, part], &vec![round; 512 << 10]);
                    let rows = (0..if step == 1 { 3 } else { 0 }).map(large);
                    let batch: Vec<Write> = rows.chain([put(Table::Groups, &key, b"1")]).collect();
                    let done = store.commit(&batch);
                    assert!(done.is_ok() || left < u64::MAX, "{fails_after}: the disk works, but {done:?}");
                    acknowledged.extend(done.is_ok().then_some(key));
                }
            }
            let found = store.get(Table::Groups, &acknowledged).unwrap();
            assert!(found.iter().all(Option::is_some), "{fails_after}: {found:?}");
            drop(store);
            missed(&path, &Note::of(&path), failing.open(&path).last_commit().unwrap()).unwrap();
        }
    }

    #[test]
    fn a_second_opener_is_told_that_the_store_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let _first = RedbStore::open(&path).unwrap();
        assert!(matches!(RedbStore::open(&path), Err(StoreError::Locked { .. })));
    }

    #[test]
    fn foreign_and_damaged_files_are_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in
            [("empty", Vec::new()), ("text", b"hello ".repeat(1_000)), ("zeros", vec![0; 8_192])]
        {
            let path = folder.path().join(name);
            fs::write(&path, &bytes).unwrap();
            let error = RedbStore::open(&path).err().unwrap();
            assert!(matches!(error, StoreError::Unreadable { .. }), "{name}: {error}");
            assert!(error.to_string().contains(name) && error.to_string().contains("backup"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bytes, "{name}");
        }
        let path = folder.path().join("other");
        drop(Database::create(&path).unwrap());
        assert!(RedbStore::open(&path).err().unwrap().to_string().contains("not one of a tidegate"));
        let missing = folder.path().join("no/such/folder");
        assert!(matches!(RedbStore::open(&missing), Err(StoreError::Open { .. })));
    }

    #[test]
    fn another_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let store = RedbStore::open(&path).unwrap();
        store.commit(&[put(Table::Meta, META_FORMAT, b"99")]).unwrap();
        drop(store);
        let refused = RedbStore::open(&path).err().unwrap().to_string();
        let reads = format!("has format 99, this version reads {FORMAT}; use the version that wrote it");
        assert_eq!(refused, format!("the store {} {reads}", path.display()));
    }
}
