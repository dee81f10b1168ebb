//! Opening the store's file: all of it is read and compared with its checksums before any of it is used.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageError};

use super::blocks::{Blocks, Watched};
use super::file::{RedbStore, failed, get};
use super::guarded::{DAMAGED, Guarded};
use super::note::{CommitMark, Note, read_row};
use super::overlay::Overlay;
use super::records::{FORMAT, META_COMMIT, META_FORMAT};
use super::seal::{FileSeal, sync_folder};
use super::{Store as _, StoreError, Table, Write};

/// Memory for pages of the file. A scan at start would otherwise leave all of it in memory; writes are in order of the
/// keys and need few pages at a time.
const CACHE_BYTES: usize = 16 << 20;

pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// The store at `path`, once all of it has been read and is as it was written.
pub(super) fn sound(path: &Path) -> Result<Guarded, StoreError> {
    let blocks = Arc::new(Blocks::default());
    let (medium, in_order) = doubted(path, &blocks)?;
    let doubting = doubting(in_order);
    let read = opened(path, || doubting.create_with_backend(medium))?;
    let last = read.call("read the number of the last commit", last_commit)?;
    missed(path, &Note::of(path), last)?;
    drop(read);
    blocks.close();
    let open = |error: std::io::Error| StoreError::Open { path: path.to_owned(), reason: error.to_string() };
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(open)?;
    let file =
        Watched::new(FileBackend::new(file).map_err(|error| open_error(path, error))?, Arc::clone(&blocks));
    let open = opened(path, || builder().create_with_backend(file));
    if let Some(reason) = blocks.damage() {
        return Err(unreadable(path, reason));
    }
    let open = open?.watched(blocks);
    // redb chooses between the two newest commits by the header of the file.
    if open.call("read the number of the last commit", last_commit)? != last {
        return Err(unreadable(path, "its header does not say which commit is the last"));
    }
    Ok(open)
}

/// The file at `path` under pages that are not written back, to be read through; and whether it was closed in order.
pub(super) fn doubted(path: &Path, blocks: &Arc<Blocks>) -> Result<(Overlay, bool), StoreError> {
    let open = |error: std::io::Error| StoreError::Open { path: path.to_owned(), reason: error.to_string() };
    let medium = Overlay::open(path, Arc::clone(blocks)).map_err(open)?;
    if medium.is_empty() {
        return Err(unreadable(path, "it is empty"));
    }
    let in_order = medium.doubt().map_err(open)?;
    Ok((medium, in_order))
}

/// A builder that goes back to the commit before the last only if a crash may have cut the last one off.
pub(super) fn doubting(in_order: bool) -> Builder {
    let mut builder = builder();
    // redb calls this once the pages of the last commit have failed, and at the start of every repair with no progress.
    builder.set_repair_callback(move |session| {
        if in_order && session.progress() > 0.0 && session.progress() < 0.5 {
            session.abort();
        }
    });
    builder
}

/// The last commit found in the store, unless a later one was acknowledged.
pub(super) fn missed(
    path: &Path,
    note: &Note,
    found: Option<CommitMark>,
) -> Result<Option<CommitMark>, StoreError> {
    let noted = note.read().map_err(failed("read the note of the last commit beside it"))?;
    match (found, noted) {
        (Some(found), Some(noted)) if found.lacks(noted) => {
            let note = note.path().display();
            let go_on = format!("{} (delete {note} to go on without what is missing)", found.told(noted));
            Err(unreadable(path, &go_on))
        }
        // A restored store has no number, nor has one of an earlier version.
        _ => Ok(found),
    }
}

pub(super) fn last_commit(database: &Database) -> Result<Option<CommitMark>, StoreError> {
    let rows = get(database, Table::Meta, &[META_COMMIT.to_vec()])?;
    let Some(row) = rows.into_iter().flatten().next() else { return Ok(None) };
    read_row(&row)?;
    Ok(CommitMark::parse(&row))
}

/// Builds an empty store beside `path` and moves it there.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    let open = |reason: String| StoreError::Open { path: path.to_owned(), reason };
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let fresh = PathBuf::from(name);
    // A start that was cut off has left it behind; the controller never reads it.
    if let Err(error) = fs::remove_file(&fresh)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(open(error.to_string()));
    }
    let (named, new) = (path.to_owned(), fresh.clone());
    // It contains the key that signs leases, so only its owner may read it.
    let file =
        move || OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&new);
    let created = move || {
        let error =
            |error: std::io::Error| StoreError::Open { path: named.clone(), reason: error.to_string() };
        let file = file().map_err(error)?;
        opened(&named, || builder().create_file(file))
    };
    let store = RedbStore::over(FileSeal::of(path), created)?;
    store.commit(&[format_row()])?;
    drop(store);
    fs::rename(&fresh, path).map_err(|error| open(error.to_string()))?;
    sync_folder(path).map_err(|error| open(error.to_string()))
}

pub(super) fn opened(
    path: &Path,
    open: impl FnOnce() -> Result<Database, DatabaseError>,
) -> Result<Guarded, StoreError> {
    let opened = Guarded::open(open).ok_or_else(|| unreadable(path, DAMAGED))?;
    opened.map_err(|error| open_error(path, error))
}

pub(super) fn format_row() -> Write {
    Write::Put(Table::Meta, META_FORMAT.to_vec(), FORMAT.to_string().into_bytes())
}

pub(super) fn unreadable(path: &Path, reason: &str) -> StoreError {
    StoreError::Unreadable { path: path.to_owned(), reason: reason.to_owned() }
}

pub(super) fn open_error(path: &Path, error: DatabaseError) -> StoreError {
    let owned = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::Locked { path: owned },
        DatabaseError::Storage(StorageError::Io(io)) if io.kind() == ErrorKind::InvalidData => {
            unreadable(path, "it is not a redb file or its header is damaged")
        }
        DatabaseError::Storage(StorageError::Io(io)) if io.kind() == ErrorKind::UnexpectedEof => {
            unreadable(path, "it ends too early")
        }
        DatabaseError::Storage(StorageError::Io(io)) => {
            StoreError::Open { path: owned, reason: io.to_string() }
        }
        DatabaseError::UpgradeRequired(version) => {
            StoreError::Format { path: owned, found: format!("redb {version}"), expected: FORMAT }
        }
        other => unreadable(path, &other.to_string()),
    }
}
