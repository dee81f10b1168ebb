//! The journal: consumption that survives `kill -9` of the node, exactly once.
//!
//! One file per node identity. A header holds the incarnation number; fixed-size slots hold, per incarnation and
//! group, the cumulative `Consumption`. Each settled operation rewrites its group's slot with one positioned write
//! of 512 bytes, which the page cache keeps when the process dies (a power failure may lose what the kernel had not
//! written back; the header alone is synced). At the next start the slots of earlier incarnations are handed to the
//! session, which reports them under their own incarnation until the controller has them on disk; then they are
//! dropped. Reports are cumulative, so one that had arrived already changes nothing.
//!
//! The file is locked while it is open: a second process under the same identity is refused.

mod entry;
mod slot;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tidegate_core::usage::Total;

use crate::names::{GroupName, Identity};
use entry::{Entry, Header};
use slot::{RECORD_BYTES, Record, copy_offset, decode, encode};

/// Most slots in one file, 64 MiB; groups times incarnations not yet reported.
pub(crate) const MAX_SLOTS: u32 = 65_536;
/// The header record is padded to a page, and slots follow it.
const HEADER_BYTES: u64 = 4_096;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The operating system refused.
    #[error("journal {path}: cannot {action}: {error}; check the directory, its permissions and free space")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        error: io::Error,
    },
    /// Another process has it open.
    #[error("journal {path} is in use by another process; stop it or give this one another identity")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else, or of another format.
    #[error("journal {path} is not a tidegate journal of format 1 for node {identity:?}; move the file away")]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// The node that wants it.
        identity: String,
    },
    /// A slot was overwritten by something else.
    #[error(
        "journal {path}: slot {slot} is damaged in both copies; move the file away to start afresh \
         (what it holds and was not reported is lost)"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its number.
        slot: u32,
    },
    /// No slot is free.
    #[error(
        "journal {path} has no room for group {group}: all {MAX_SLOTS} slots wait to be reported; \
             check that the controller can be reached"
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// The group that wanted one.
        group: GroupName,
    },
}

/// Consumption of an earlier incarnation that is not known to be on the controller's disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    pub(crate) incarnation: u64,
    pub(crate) group: GroupName,
    pub(crate) total: Total,
    pub(crate) slot: SlotId,
}

/// Number of a slot in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

/// A slot that one group of this incarnation writes to.
#[derive(Debug)]
pub(crate) struct Slot {
    id: SlotId,
    version: u64,
}

/// An open, locked journal.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    incarnation: u64,
    free: Mutex<FreeSlots>,
}

/// Slots that may be handed out.
#[derive(Debug, Default)]
struct FreeSlots {
    reusable: Vec<u32>,
    next: u32,
}

impl Journal {
    /// Opens `<dir>/<identity>.journal`, begins a new incarnation, and returns what earlier ones left behind.
    ///
    /// The incarnation is `wall_us`, or one more than the last when the wall clock stands before it.
    pub(crate) fn open(
        dir: &Path,
        identity: &Identity,
        wall_us: u64,
    ) -> Result<(Self, Vec<Inherited>), JournalError> {
        let path = dir.join(format!("{identity}.journal"));
        let file = lock(&path)?;
        let fail = |action, error| JournalError::Io { path: path.clone(), action, error };
        let length = file.metadata().map_err(|error| fail("read its length", error))?.len();
        let mut header = [0; RECORD_BYTES];
        let not_ours = || JournalError::NotAJournal { path: path.clone(), identity: identity.to_string() };
        let (version, last) = if length == 0 {
            (0, 0)
        } else {
            file.read_exact_at(&mut header, 0).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => not_ours(),
                _ => fail("read its header", error),
            })?;
            read_header(&header, identity).ok_or_else(not_ours)?
        };
        let incarnation = wall_us.max(last.saturating_add(1));
        let header = Header { incarnation, identity: identity.to_string() };
        let copy = encode(version.saturating_add(1), &header.encode()).ok_or_else(not_ours)?;
        file.write_all_at(&copy, copy_offset(version.saturating_add(1)))
            .and_then(|()| file.sync_data())
            .map_err(|error| fail("write its header", error))?;
        let (inherited, free) = read_slots(&file, &path)?;
        Ok((Self { path, file, incarnation, free: Mutex::new(free) }, inherited))
    }

    /// Number of this start.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// A slot for `group`; nothing is written until the first [`Journal::write`].
    pub(crate) fn claim(&self, group: &GroupName) -> Result<Slot, JournalError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let id = match free.reusable.pop() {
            Some(id) => id,
            None if free.next < MAX_SLOTS => {
                let id = free.next;
                free.next = id.saturating_add(1);
                id
            }
            None => {
                return Err(JournalError::Full { path: self.path.clone(), group: group.clone() });
            }
        };
        Ok(Slot { id: SlotId(id), version: 0 })
    }

    /// Replaces what `slot` says by `total`.
    pub(crate) fn write(
        &self,
        slot: &mut Slot,
        group: &GroupName,
        total: &Total,
    ) -> Result<(), JournalError> {
        let fail = |error| JournalError::Io { path: self.path.clone(), action: "write a slot", error };
        let version = slot.version.saturating_add(1);
        let payload = Entry::encode(self.incarnation, group, total);
        let copy = encode(version, &payload).ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        let at = offset(slot.id).saturating_add(copy_offset(version));
        self.file.write_all_at(&copy, at).map_err(fail)?;
        slot.version = version;
        Ok(())
    }

    /// Empties a slot whose content is on the controller's disk, so that it is not reported again.
    pub(crate) fn empty(&self, slot: SlotId) -> Result<(), JournalError> {
        self.file.write_all_at(&[0; RECORD_BYTES], offset(slot)).map_err(|error| JournalError::Io {
            path: self.path.clone(),
            action: "empty a slot",
            error,
        })
    }

    /// Takes back the slot of a group that is no more, and hands it out again.
    pub(crate) fn release(&self, slot: &Slot) -> Result<(), JournalError> {
        if slot.is_written() {
            return self.drop_slot(slot.id);
        }
        self.hand_out(slot.id);
        Ok(())
    }

    /// Empties a slot of an earlier incarnation and hands it out again.
    pub(crate) fn drop_slot(&self, slot: SlotId) -> Result<(), JournalError> {
        self.empty(slot)?;
        self.hand_out(slot);
        Ok(())
    }

    fn hand_out(&self, slot: SlotId) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).reusable.push(slot.0);
    }
}

impl Slot {
    /// Number of words.
    pub(crate) const WORDS: usize = 2;

    /// Whether it was ever written to.
    pub(crate) fn is_written(&self) -> bool {
        self.version > 0
    }

    /// As numbers that are not all zero.
    pub(crate) fn to_words(&self) -> [u64; Self::WORDS] {
        [u64::from(self.id.0).saturating_add(1), self.version]
    }

    /// The stamp of such numbers; `None` if all are zero.
    pub(crate) fn from_words([id, version]: [u64; Self::WORDS]) -> Option<Self> {
        let id = u32::try_from(id.checked_sub(1)?).ok()?;
        Some(Self { id: SlotId(id), version })
    }

    /// Its number.
    pub(crate) fn id(&self) -> SlotId {
        self.id
    }
}

/// Opens or creates the file and locks it against other processes.
fn lock(path: &Path) -> Result<File, JournalError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| JournalError::Io { path: path.into(), action: "open it", error })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(JournalError::InUse { path: path.into() }),
        Err(TryLockError::Error(error)) => {
            Err(JournalError::Io { path: path.into(), action: "lock it", error })
        }
    }
}

/// Version and incarnation of the header.
fn read_header(record: &[u8], identity: &Identity) -> Option<(u64, u64)> {
    match decode(record) {
        // A failure of power may leave zeros where the first header was not on disk yet.
        Record::Free => Some((0, 0)),
        Record::Whole { version, payload } => {
            let header = Header::decode(payload)?;
            (header.identity == **identity).then_some((version, header.incarnation))
        }
        Record::Damaged => None,
    }
}

/// Reads every slot of an existing file.
fn read_slots(file: &File, path: &Path) -> Result<(Vec<Inherited>, FreeSlots), JournalError> {
    let mut inherited = Vec::new();
    let mut free = FreeSlots::default();
    let mut record = [0; RECORD_BYTES];
    while free.next < MAX_SLOTS {
        let id = free.next;
        let length = read_up_to(file, &mut record, offset(SlotId(id))).map_err(|error| JournalError::Io {
            path: path.into(),
            action: "read a slot",
            error,
        })?;
        if length == 0 {
            break;
        }
        free.next = id.saturating_add(1);
        // The last slot is short when its first write, which goes to the second copy, was itself cut short.
        record.iter_mut().skip(length).for_each(|byte| *byte = 0);
        let damaged = || JournalError::Damaged { path: path.into(), slot: id };
        match decode(&record) {
            Record::Free => free.reusable.push(id),
            Record::Damaged if length < RECORD_BYTES => free.reusable.push(id),
            Record::Damaged => return Err(damaged()),
            Record::Whole { payload, .. } => {
                let Entry { incarnation, group, total } = Entry::decode(payload).ok_or_else(damaged)?;
                inherited.push(Inherited { incarnation, group, total, slot: SlotId(id) });
            }
        }
    }
    Ok((inherited, free))
}

/// Fills `buffer` as far as the file goes.
fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0_usize;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let position = at.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
        match file.read_at(rest, position) {
            Ok(0) => break,
            Ok(length) => filled = filled.saturating_add(length),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Where a slot begins.
const fn offset(slot: SlotId) -> u64 {
    // Both factors are small: 65,536 slots of 1 KiB.
    HEADER_BYTES + (slot.0 as u64) * (RECORD_BYTES as u64)
}

#[cfg(test)]
mod tests;
