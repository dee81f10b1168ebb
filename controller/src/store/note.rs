//! The number of the last commit, kept beside the store, which shows that redb's repair has dropped a commit.
//!
//! When the newest commit is unreadable after a crash, redb goes back to the one before, which is right for a commit
//! that was cut off and wrong for one that was acknowledged. So each commit carries its number and the opening of the
//! file that made it, and once it is on disk both are noted here, in a small file that is written in place. The note is
//! not synced: a killed process leaves it as it was written, and a power cut leaves an older one at worst, so it is
//! never ahead of what the disk must hold, and a crash is never taken for damage. A store without the noted commit has
//! lost it.
//!
//! An opening that made no commit but its first has acknowledged nothing: the mark of a clean stop and the nodes show
//! if it is gone, or if an older copy lies there (`seal`).

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::records::bad;
use super::seal::sync_folder;
use super::{StoreError, Table};

/// Longest content of a note that is read; the store writes no longer one.
const MAX_BYTES: u64 = 128;

/// A commit: the opening of the file that made it, and its number over all openings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommitMark {
    /// Random, new with each opening of the file.
    opening: u64,
    number: u64,
}

impl CommitMark {
    /// The mark before the first commit of a new opening.
    pub(super) fn begin(last: Option<Self>) -> Self {
        Self { opening: rand::random(), number: last.map_or(0, |last| last.number) }
    }

    /// The mark of the next commit.
    pub(super) fn next(self) -> Self {
        Self { number: self.number.saturating_add(1), ..self }
    }

    /// Whether a store with the mark `self` has lost a commit: the same opening made `noted` later.
    pub(super) fn lacks(self, noted: Self) -> bool {
        self.opening == noted.opening && self.number < noted.number
    }

    /// Names the commits between the two.
    pub(super) fn told(self, noted: Self) -> String {
        format!(
            "its last commit is number {}, but number {} was acknowledged: its newest page was damaged, or a copy that was \
             made while it was in use lies in its place",
            self.number, noted.number
        )
    }

    /// The row of the store.
    pub(super) fn text(self) -> String {
        format!("{:016x} {:020}", self.opening, self.number)
    }

    /// Reads what [`Self::text`] wrote.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (opening, number) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Self { opening: u64::from_str_radix(opening, 16).ok()?, number: number.parse().ok()? })
    }
}

/// Removes the note of the store at `path`, which another store replaces: that one has commits of its own.
pub(crate) fn forget(path: &Path) -> io::Result<()> {
    let note = Note::of(path);
    match std::fs::remove_file(&note.path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => sync_folder(path),
    }
}

/// Checks the row of the last commit.
pub(crate) fn read_row(row: &[u8]) -> Result<(), StoreError> {
    let mark = CommitMark::parse(row);
    mark.map(drop).ok_or_else(|| bad(Table::Meta, "the number of the last commit does not read"))
}

/// The file beside the store.
#[derive(Debug)]
pub(super) struct Note {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl Note {
    /// The note of the store at `path`.
    pub(super) fn of(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(".commit");
        Self { path: PathBuf::from(name), file: Mutex::new(None) }
    }

    /// Reads the note. An unreadable note proves nothing about the store, and the next commit replaces it.
    pub(super) fn read(&self) -> io::Result<Option<CommitMark>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut content = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut content)?;
        let mark = content.strip_suffix(b"\n").and_then(|line| {
            let (text, sum) = line.split_last_chunk::<9>()?;
            let sum = sum.strip_prefix(b" ")?;
            (sum == format!("{:08x}", crc32fast::hash(text)).as_bytes()).then(|| CommitMark::parse(text))?
        });
        if mark.is_none() {
            tracing::warn!(path = %self.path.display(), "the note of the last commit does not read and is written again");
        }
        Ok(mark)
    }

    /// Writes the mark of the newest commit.
    pub(super) fn write(&self, mark: CommitMark) -> io::Result<()> {
        let text = mark.text();
        let line = format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()));
        let mut open = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*open {
            return file.write_all_at(line.as_bytes(), 0);
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        file.write_all_at(line.as_bytes(), 0)?;
        file.set_len(line.len() as u64)?;
        // The name and the length of the file must be durable; its content need not.
        file.sync_all()?;
        sync_folder(&self.path)?;
        *open = Some(file);
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_note_says_what_was_written_last_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let note = Note::of(&folder.path().join("store"));
        assert_eq!(note.read().unwrap(), None);
        let first = CommitMark::begin(None).next();
        note.write(first).unwrap();
        assert_eq!(note.read().unwrap(), Some(first));
        note.write(first.next()).unwrap();
        assert_eq!(note.read().unwrap(), Some(first.next()));
        let mode = std::fs::metadata(note.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let whole = std::fs::read(note.path()).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut turned = whole.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(note.path(), &turned).unwrap();
            assert_eq!(note.read().unwrap(), None, "bit {bit}");
        }
        forget(&folder.path().join("store")).unwrap();
        forget(&folder.path().join("store")).unwrap();
        assert_eq!(note.read().unwrap(), None);
    }

    #[test]
    fn only_an_acknowledged_commit_of_the_same_opening_is_missed() {
        let one = CommitMark::begin(None).next();
        let two = CommitMark::begin(Some(one)).next();
        assert!(one.lacks(one.next()) && !one.next().lacks(one) && !one.lacks(one));
        assert!(!one.lacks(two), "the first commit of an opening, or an older copy");
        assert!(!two.lacks(one), "a crash between the commit and the note");
        assert_eq!(CommitMark::parse(one.text().as_bytes()), Some(one));
        assert_eq!(CommitMark::parse(b"one 2"), None);
    }
}
