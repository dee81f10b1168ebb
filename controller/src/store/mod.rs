//! Durable storage: named tables of bytes, changed in atomic batches.
//!
//! `commit` returns when the batch is on disk as a whole, or an error when none of it is. The trait is small so that
//! tests can replace the store by a failing one; `RedbStore` is the one that ships, and `records` defines the meaning
//! of the bytes.

mod blocks;
mod draft;
#[cfg(test)]
mod failing;
mod file;
mod guarded;
mod note;
mod opening;
#[cfg(test)]
pub(crate) mod overheard;
mod overlay;
pub mod records;
pub mod replicated;
mod seal;
mod undo;

use std::ops::ControlFlow;
use std::path::PathBuf;

pub use draft::{Draft, Row};
pub use file::RedbStore;
pub(crate) use note::{forget as forget_last_commit, read_row as last_commit_of};
pub(crate) use seal::FileSeal;
pub use seal::Seal;

/// The tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Single values by name: format, epoch, revision, counters, keys, the clean mark.
    Meta,
    /// Group id to definition.
    Groups,
    /// Principal to group.
    Bindings,
    /// Cost tables by name and version.
    CostTables,
    /// Client id to identity and last sign of life.
    Clients,
    /// Node name to the oldest incarnation that may still report.
    Tombstones,
    /// (client, group) to cumulative consumption.
    Ledger,
    /// Group to the consumption of incarnations that were folded.
    Folded,
    /// (name, client) to the consumption counted for removed groups of that name.
    Retired,
    /// (minute, group) to consumption.
    Minutes,
    /// (hour, group) to consumption.
    Hours,
    /// Audit entries by id.
    Audit,
    /// Watched statements by id.
    Watches,
    /// Records of runaways, oldest first.
    Runaways,
    /// (client, group) to the part of the group's fallback that the client may be using.
    Parts,
    /// Group to the present window of its quota.
    Quotas,
    /// (client, group) to claims that cannot have been used; the sum for folded clients has no client.
    Apart,
    /// Tokens of callers by id, with their hashes.
    Tokens,
    /// (hour, group) to the consumption of its minutes, in brief.
    PastMinutes,
    /// Group to the change that is proposed for it.
    Proposals,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 20] = [
        Self::Meta,
        Self::Groups,
        Self::Bindings,
        Self::CostTables,
        Self::Clients,
        Self::Tombstones,
        Self::Ledger,
        Self::Folded,
        Self::Retired,
        Self::Minutes,
        Self::Hours,
        Self::Audit,
        Self::Watches,
        Self::Runaways,
        Self::Parts,
        Self::Quotas,
        Self::Apart,
        Self::Tokens,
        Self::PastMinutes,
        Self::Proposals,
    ];

    /// Its name in the file and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Groups => "groups",
            Self::Bindings => "bindings",
            Self::CostTables => "cost_tables",
            Self::Clients => "clients",
            Self::Tombstones => "tombstones",
            Self::Ledger => "ledger",
            Self::Folded => "folded",
            Self::Retired => "retired",
            Self::Minutes => "minutes",
            Self::Hours => "hours",
            Self::Audit => "audit",
            Self::Watches => "watches",
            Self::Runaways => "runaways",
            Self::Parts => "parts",
            Self::Quotas => "quotas",
            Self::Apart => "apart",
            Self::Tokens => "tokens",
            Self::PastMinutes => "past_minutes",
            Self::Proposals => "proposals",
        }
    }

    /// The table of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }
}

/// One change of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Inserts or replaces a row.
    Put(Table, Vec<u8>, Vec<u8>),
    /// Removes a row, if it is there.
    Delete(Table, Vec<u8>),
    /// Removes all rows with a key below this.
    DeleteBelow(Table, Vec<u8>),
}

impl Write {
    /// The table that it changes.
    pub fn table(&self) -> Table {
        let (Self::Put(table, ..) | Self::Delete(table, _) | Self::DeleteBelow(table, _)) = self;
        *table
    }
}

/// Changes that happen together or not at all, in order.
pub type Batch = Vec<Write>;

/// The writes of a batch, those to one table together as far as they follow each other.
fn by_table(batch: &[Write]) -> impl Iterator<Item = (Table, &[Write])> {
    let runs = batch.chunk_by(|one, next| one.table() == next.table());
    runs.filter_map(|writes| Some((writes.first()?.table(), writes)))
}

/// Why a call of the store failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the file open.
    #[error("the store {path} is in use by another process; stop that process or choose another store path")]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file is no store of this software, or is damaged beyond reading.
    #[error(
        "the store {path} cannot be read: {reason}; restore it from a backup, or move the file away to start empty"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The store was written in another format.
    #[error(
        "the store {path} has format {found}, this version reads {expected}; use the version that wrote it"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: String,
        /// The format this build reads and writes.
        expected: u32,
    },
    /// Opening or creating the file or its folder failed.
    #[error(
        "the store {path} cannot be opened: {reason}; check that the folder exists, that it and the file are writable, \
         and that the disk has space"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// Another controller has started on the store since this one could last write to it.
    #[error(
        "the store is at epoch {theirs} and this controller at {ours}: another one has taken over; stop this process"
    )]
    TakenOver {
        /// The epoch of this controller.
        ours: u64,
        /// The epoch found.
        theirs: u64,
    },
    /// An operation on an open store failed.
    #[error("the store failed to {operation}: {reason}; check the disk and its free space")]
    Failed {
        /// The operation that failed.
        operation: &'static str,
        /// The error of the store.
        reason: String,
    },
    /// The disk does not hold what was written there.
    #[error(
        "the store is damaged, it failed to {operation}: {reason}; stop the controller, check the disk, and put a backup \
         back with `tidegate store restore`"
    )]
    Damaged {
        /// The operation that failed.
        operation: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The store that controllers share failed.
    #[error(
        "the shared store failed to {operation}: {reason}; check that its members run and can be reached"
    )]
    Shared {
        /// The operation that failed.
        operation: &'static str,
        /// The error, with the member that gave it.
        reason: String,
    },
    /// Another controller owns the log.
    #[error("{by} has taken the log over; stop this process, or start it again to follow")]
    Deposed {
        /// The owner found.
        by: String,
    },
    /// This controller has left the log to others.
    #[error("this controller has left the log to the next one; call that one")]
    Left,
    /// The log was not taken over: it has another owner than was seen, or that one lives.
    #[error("the log was not taken over: {by}; look again")]
    NotTaken {
        /// What was found.
        by: String,
    },
    /// The log has a change that the local store failed to take.
    #[error(
        "the log and the local store have parted: {reason}; restart the process, which brings the local store up to the log"
    )]
    Parted {
        /// What happened.
        reason: String,
    },
    /// A definition that was reported as not stored is stored after all.
    #[error("a change that was reported as failed is in the log; the controller has to load its store again")]
    Belated,
    /// A key of the log holds what no controller of this version writes.
    #[error(
        "{key} in the shared store cannot be used: {reason}; use the version that wrote it, or restore the shared store \
         from a backup"
    )]
    Unfit {
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The local store does not belong to the log.
    #[error("the local store {path} does not belong to the log under {prefix}: {reason}")]
    Stray {
        /// The local store.
        path: String,
        /// The prefix of the log.
        prefix: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// The local store is not what the log says.
    #[error(
        "the local store {path} is not what the log under {prefix} says: the checkpoint at segment {n} has other rows; \
         stop this process and move the file away, and the next start builds it from the log"
    )]
    Differs {
        /// The local store.
        path: String,
        /// The prefix of the log.
        prefix: String,
        /// The last segment in the checkpoint.
        n: u64,
    },
    /// A file to be written exists already.
    #[error("{path} is there already; choose another name, or replace it with --replace")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A row does not decode.
    #[error(
        "the store holds a row in {table:?} that does not decode: {reason}; restore the store from a backup"
    )]
    Record {
        /// The table.
        table: Table,
        /// What is wrong with it.
        reason: String,
    },
}

/// Called for each row of a scan with its key and its value; returns whether to go on.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError> + 'a;

/// Called for each row of all tables with its key and its value; returns whether to go on.
pub type VisitAll<'a> = dyn FnMut(Table, &[u8], &[u8]) -> Result<ControlFlow<()>, StoreError> + 'a;

/// Durable tables.
pub trait Store: Send + Sync {
    /// Makes every change of the batch durable, or none.
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError>;

    /// Commits the last batch of a controller, which writes no more: a store that controllers share is left to the next
    /// one with that very batch.
    fn commit_last(&self, batch: &[Write]) -> Result<(), StoreError> {
        self.commit(batch)
    }

    /// Visits the rows of a table with a key of `from` or above, in order of the keys.
    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError>;

    /// Returns the values of `keys`, in one consistent view.
    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;

    /// Visits every row of every table, all as of one moment; commits go on meanwhile.
    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError>;

    /// Puts a seal beside the store, which no copy of the store carries along; returns its word.
    fn seal(&self) -> Result<String, StoreError>;

    /// Removes the seal, durably; returns its word, if there was one.
    fn break_seal(&self) -> Result<Option<String>, StoreError>;
}

/// Every row of a table, in order.
pub(crate) fn each(
    store: &dyn Store,
    table: Table,
    mut row: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    store.scan(table, &[], &mut |key, value| row(key, value).map(|()| ControlFlow::Continue(())))
}
