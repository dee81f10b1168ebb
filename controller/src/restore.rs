//! Making and restoring copies of a store that no controller uses.
//!
//! A restored copy has no mark of a clean stop and no seal, so that the next start recovers, and raises its epoch above
//! what nodes have seen. The store that it replaces stays beside it.

use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::check::{Checked, Damage, check};
use crate::store::records::META_PROOF_KEY;
use crate::store::{
    Draft, FileSeal, RedbStore, Row, Seal as _, Store as _, StoreError, Table, forget_last_commit,
};

/// Rows written at a time.
const ROWS: usize = 4_096;
/// Replaced stores that may stay beside each other, each under a name of its own.
const MOST_ASIDE: u32 = 1_000;

/// Why a copy was not made or restored, or a store got no other key. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Reading or writing a store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The copy is damaged.
    #[error(
        "{path} is damaged in {count} places, first: {first}; `tidegate store check` lists them, use another copy"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Number of damages.
        count: u64,
        /// The first damage.
        first: String,
    },
    /// Store and backup are one file.
    #[error("{path} and the store are one file; name the backup and where it is to go")]
    SameFile {
        /// The backup.
        path: PathBuf,
    },
    /// The store in place belongs to another cluster.
    #[error(
        "{backup} and the store {store} are of different clusters: they sign leases with different keys; check both \
         names, or put it there with --other-cluster, after which nodes of the old cluster can prove nothing"
    )]
    OtherCluster {
        /// The backup.
        backup: PathBuf,
        /// The store.
        store: PathBuf,
    },
    /// A store that is to get another key had no clean stop, or is a copy.
    #[error(
        "{path} was not stopped cleanly, or is a copy: nodes prove by the old key what it does not know; start a \
         controller on it, stop that with SIGTERM, and run this again"
    )]
    NotStopped {
        /// The store.
        path: PathBuf,
    },
    /// Moving the store in place aside failed.
    #[error("the store {path} cannot be put aside: {reason}")]
    Aside {
        /// The store.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
}

/// The stores that a restored copy may replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Over {
    /// Any store.
    pub store: bool,
    /// Also one of another cluster.
    pub other_cluster: bool,
}

/// A restored store.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The content of the copy.
    pub checked: Checked,
    /// The new place of the replaced store.
    pub aside: Option<PathBuf>,
}

/// Makes a copy of the store at `store`, which no controller uses; returns its content.
///
/// # Errors
/// The store is in use or damaged, `file` exists and `replace` is not set, or the disk is full.
pub fn backup(store: &Path, file: &Path, replace: bool) -> Result<Checked, CopyError> {
    if is_same(store, file) {
        return Err(CopyError::SameFile { path: file.to_owned() });
    }
    let draft = Draft::begin(file, replace)?;
    copied(store, draft)
}

/// Puts the copy `backup` at `store`, where no controller runs.
///
/// # Errors
/// The copy is damaged or no store, the store is in use or may not be replaced, or the disk is full.
pub fn restore(backup: &Path, store: &Path, over: Over) -> Result<Restored, CopyError> {
    restore_and(backup, store, over, || ())
}

/// The same; `filled` is called once the copy is written, and before it is in its place.
fn restore_and(
    backup: &Path,
    store: &Path,
    over: Over,
    filled: impl FnOnce(),
) -> Result<Restored, CopyError> {
    if is_same(backup, store) {
        return Err(CopyError::SameFile { path: backup.to_owned() });
    }
    let checked = whole(backup, backup)?;
    let there = fs::symlink_metadata(store).is_ok();
    if there && !over.store {
        return Err(StoreError::Exists { path: store.to_owned() }.into());
    }
    // Open until the end, so that no controller starts on it meanwhile.
    let _open = if there { before(backup, &checked, store, over)? } else { None };
    let mut draft = Draft::beside(store, there)?;
    fill(&mut draft, backup)?;
    filled();
    let mut aside = None;
    draft.finish(|path| {
        whole(path, backup)?;
        if there {
            aside = Some(put_aside(store)?);
        } else {
            unseal(store)?;
        }
        Ok::<(), CopyError>(())
    })?;
    Ok(Restored { checked, aside })
}

/// Opens the store to be replaced, if it can be opened.
fn before(
    backup: &Path,
    checked: &Checked,
    store: &Path,
    over: Over,
) -> Result<Option<RedbStore>, CopyError> {
    let open = match RedbStore::peek(store) {
        Ok(open) => open,
        Err(error @ (StoreError::Locked { .. } | StoreError::Open { .. })) => return Err(error.into()),
        // An unreadable store may be the reason to restore a copy.
        Err(_) => return Ok(None),
    };
    let key = open.get(Table::Meta, &[META_PROOF_KEY.to_vec()]);
    let key = key.unwrap_or_default().into_iter().flatten().next();
    if key.is_some_and(|key| key != checked.key) && !over.other_cluster {
        return Err(CopyError::OtherCluster { backup: backup.to_owned(), store: store.to_owned() });
    }
    Ok(Some(open))
}

fn copied(from: &Path, mut draft: Draft) -> Result<Checked, CopyError> {
    fill(&mut draft, from)?;
    let mut checked = Checked::default();
    draft.finish(|path| {
        checked = whole(path, from)?;
        Ok::<(), CopyError>(())
    })?;
    Ok(checked)
}

fn fill(draft: &mut Draft, from: &Path) -> Result<(), CopyError> {
    let store = RedbStore::peek(from)?;
    let mut rows: Vec<Row> = Vec::with_capacity(ROWS);
    store.copy(&mut |table, key, value| {
        rows.push((table, key.to_vec(), value.to_vec()));
        if rows.len() == ROWS {
            draft.put(&rows)?;
            rows.clear();
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(draft.put(&rows)?)
}

/// The content of a store without damage. Errors name the original of a copy.
///
/// # Errors
/// The store is damaged, in use, of another format, or no store.
pub fn whole(path: &Path, named: &Path) -> Result<Checked, CopyError> {
    let checked = check(path)?;
    let Some(Damage { place, reason }) = checked.damage.first() else { return Ok(checked) };
    let first = if place.is_empty() { reason.clone() } else { format!("{place}: {reason}") };
    let count = checked.more.saturating_add(u64::try_from(checked.damage.len()).unwrap_or(u64::MAX));
    Err(CopyError::Damaged { path: named.to_owned(), count, first })
}

/// A name beside the store that is free.
fn free_name(store: &Path) -> Result<PathBuf, CopyError> {
    let name = |number: u32| {
        let mut name = store.as_os_str().to_owned();
        name.push(format!(".replaced-{number}"));
        PathBuf::from(name)
    };
    let free = (1..=MOST_ASIDE).map(name).find(|path| fs::symlink_metadata(path).is_err());
    free.ok_or_else(|| CopyError::Aside {
        path: store.to_owned(),
        reason: format!("{MOST_ASIDE} of them are there already; delete some"),
    })
}

/// Unseals the store, and gives it another name, which is free. On a file system with links it keeps its own name, too, so
/// that it always has one.
fn put_aside(store: &Path) -> Result<PathBuf, CopyError> {
    let aside = free_name(store)?;
    // Once there is one, so that a store which keeps its place keeps its seal.
    unseal(store)?;
    let linked = fs::hard_link(store, &aside).or_else(|error| match error.kind() {
        // Since a moment ago: a renamed store would replace it.
        ErrorKind::AlreadyExists => Err(error),
        // Some file systems have no links.
        _ => fs::rename(store, &aside),
    });
    linked.map_err(|error| kept(store, &error))?;
    Ok(aside)
}

/// Lets no store at this place pass for one that was stopped cleanly.
fn unseal(store: &Path) -> Result<(), CopyError> {
    FileSeal::of(store).take().map_err(|error| kept(store, &error))?;
    forget_last_commit(store).map_err(|error| kept(store, &error))
}

/// Gives the store another name, and its own to the next one.
pub(crate) fn move_aside(store: &Path) -> Result<PathBuf, CopyError> {
    let aside = put_aside(store)?;
    match fs::remove_file(store) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(kept(store, &error)),
        _ => Ok(aside),
    }
}

fn kept(store: &Path, error: &std::io::Error) -> CopyError {
    CopyError::Aside { path: store.to_owned(), reason: error.to_string() }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino()));
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests;
