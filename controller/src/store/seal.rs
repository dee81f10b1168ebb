//! The seal: a file beside a store that was closed cleanly, which no copy of the store carries along.
//!
//! The mark of a clean stop is in the store, so every copy of the store has it, too. A copy that is restored later must
//! not pass for a store that nobody has used since. So the mark names a seal, a small file beside the store, by its
//! content, its inode and the moment it was last changed; a copied, moved or restored seal has another moment, which no
//! tool can set. The next start breaks the seal, durably and before anything is granted: it is valid once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Longest content of a seal that is read; the store writes no longer one.
const MAX_BYTES: u64 = 64;

/// The place of seals, beside a store.
pub trait Seal: Send + Sync {
    /// Puts a new seal in place of any earlier one; returns its word.
    fn set(&self) -> io::Result<String>;

    /// Removes the seal, durably; returns its word, if there was one.
    fn take(&self) -> io::Result<Option<String>>;
}

/// A seal that is a file.
#[derive(Debug)]
pub(crate) struct FileSeal {
    path: PathBuf,
}

impl FileSeal {
    /// The seal of the store at `path`.
    pub(crate) fn of(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(".seal");
        Self { path: PathBuf::from(name) }
    }

    fn remove(&self) -> io::Result<bool> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The word of a seal file: its content, and the properties that a copy of it does not share.
    fn word(&self, file: &File, content: &str) -> io::Result<String> {
        let data = file.metadata()?;
        Ok(format!("{content} {} {}.{:09}", data.ino(), data.ctime(), data.ctime_nsec()))
    }

    /// The word of the seal that is there.
    pub(crate) fn look(&self) -> io::Result<Option<String>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut content = Vec::new();
        (&file).take(MAX_BYTES).read_to_end(&mut content)?;
        self.word(&file, &String::from_utf8_lossy(&content)).map(Some)
    }
}

impl Seal for FileSeal {
    fn set(&self) -> io::Result<String> {
        self.remove()?;
        let content = format!("{:032x}", rand::random::<u128>());
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        sync_folder(&self.path)?;
        self.word(&file, &content)
    }

    fn take(&self) -> io::Result<Option<String>> {
        let Some(word) = self.look()? else { return Ok(None) };
        self.remove()?;
        sync_folder(&self.path)?;
        Ok(Some(word))
    }
}

/// The place of a store that is only inspected, which has no seals.
pub(super) struct NoSeal;

impl Seal for NoSeal {
    fn set(&self) -> io::Result<String> {
        Ok(String::new())
    }

    fn take(&self) -> io::Result<Option<String>> {
        Ok(None)
    }
}

/// Makes changes of names in the folder of `path` durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_good_once_and_no_copy_of_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let seal = FileSeal::of(&folder.path().join("store"));
        assert_eq!(seal.take().unwrap(), None);
        let first = seal.set().unwrap();
        assert_eq!(seal.take().unwrap(), Some(first.clone()));
        assert_eq!(seal.take().unwrap(), None);
        let second = seal.set().unwrap();
        assert_ne!(first, second);
        // As a backup does: it keeps the content and even the times.
        let kept = folder.path().join("kept");
        let times = fs::metadata(&seal.path).unwrap();
        fs::copy(&seal.path, &kept).unwrap();
        seal.take().unwrap();
        fs::copy(&kept, &seal.path).unwrap();
        let file = OpenOptions::new().write(true).open(&seal.path).unwrap();
        let all = fs::FileTimes::new().set_modified(times.modified().unwrap());
        file.set_times(all.set_accessed(times.accessed().unwrap())).unwrap();
        assert_ne!(seal.take().unwrap(), Some(second));
    }

    /// One that passed for none would be there at the next start, which may read it.
    #[test]
    fn a_seal_that_cannot_be_read_or_removed_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let in_circles = FileSeal::of(&folder.path().join("circle"));
        std::os::unix::fs::symlink(&in_circles.path, &in_circles.path).unwrap();
        assert!(in_circles.look().is_err() && in_circles.take().is_err());
        in_circles.set().unwrap();
        assert!(in_circles.take().unwrap().is_some(), "a new one takes its place");
        let foreign = FileSeal::of(&folder.path().join("folder"));
        fs::create_dir(&foreign.path).unwrap();
        assert!(foreign.look().is_err() && foreign.take().is_err() && foreign.set().is_err());
        assert!(foreign.remove().is_err() && foreign.path.exists());
    }

    #[test]
    fn a_seal_that_was_moved_away_and_back_is_not_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let seal = FileSeal::of(&folder.path().join("store"));
        let word = seal.set().unwrap();
        let away = folder.path().join("away");
        // The clock of the file system has ticked.
        while fs::metadata(&seal.path).unwrap().ctime_nsec() == now_of(folder.path()) {}
        fs::rename(&seal.path, &away).unwrap();
        fs::rename(&away, &seal.path).unwrap();
        assert_ne!(seal.take().unwrap(), Some(word));
    }

    fn now_of(folder: &Path) -> i64 {
        let probe = folder.join("probe");
        fs::write(&probe, "x").unwrap();
        fs::metadata(&probe).unwrap().ctime_nsec()
    }
}
