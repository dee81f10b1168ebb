//! PostgreSQL's temporary files: those that a process has open, as `/proc` shows it to the same user and to root. The
//! gateway keeps a file open until its statement has ended, as the file's size then says how much was written to it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use super::backend::process;

/// Files of one session that are followed; a join of more parts than that is followed in part.
const MAX_FILES: usize = 64;
/// The part that the path of each of them has.
const FOLDER: &str = "/pgsql_tmp/";

/// The temporary files that a process has open, by device and inode.
#[derive(Debug, Default)]
pub(super) struct Spills(BTreeMap<(u64, u64), Spill>);

#[derive(Debug)]
struct Spill {
    file: File,
    /// Its size when the statement began.
    before: u64,
}

impl Spills {
    /// Looks for more of them among the files of this process.
    pub(super) fn find(&mut self, pid: u32) {
        let Ok(open) = std::fs::read_dir(process(pid).join("fd")) else { return };
        for path in open.flatten().map(|entry| entry.path()) {
            let is_one = std::fs::read_link(&path).is_ok_and(|link| link.to_string_lossy().contains(FOLDER));
            if self.0.len() >= MAX_FILES || !is_one {
                continue;
            }
            // Opened first, so that what is looked at stays the same file.
            if let Ok(file) = File::open(&path)
                && let Ok(data) = file.metadata()
            {
                self.0.entry((data.dev(), data.ino())).or_insert(Spill { file, before: 0 });
            }
        }
    }

    /// How many bytes they have grown by since the statement began.
    pub(super) fn grown(&self) -> u64 {
        let grown = |spill: &Spill| spill.size().saturating_sub(spill.before);
        self.0.values().map(grown).fold(0, u64::saturating_add)
    }

    /// The statement has ended. Files that are left, such as a cursor's, were its work and not the next one's.
    pub(super) fn end(&mut self) {
        self.0.retain(|_, spill| {
            spill.before = spill.size();
            spill.file.metadata().is_ok_and(|data| data.nlink() > 0)
        });
    }
}

impl Spill {
    fn size(&self) -> u64 {
        self.file.metadata().map_or(self.before, |data| data.len())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Held while the files of this process are looked at, of which all its tests have some.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn temporary_files_of_a_process_are_followed_to_their_ends() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let temporary = folder.path().join("pgsql_tmp");
        std::fs::create_dir(&temporary).unwrap();
        let make = |name: &str| File::create(temporary.join(name)).unwrap();
        let (mut spills, own) = (Spills::default(), std::process::id());
        let (mut one, mut cursor) = (make("pgsql_tmp1.0"), make("pgsql_tmp1.1"));
        let mut table = File::create(folder.path().join("16384")).unwrap();
        table.write_all(&[0; 5_000]).unwrap();
        one.write_all(&[0; 100]).unwrap();
        spills.find(own);
        spills.find(own);
        assert_eq!(spills.grown(), 100);
        one.write_all(&[0; 50]).unwrap();
        cursor.write_all(&[0; 7]).unwrap();
        std::fs::remove_file(temporary.join("pgsql_tmp1.0")).unwrap();
        drop(one);
        assert_eq!(spills.grown(), 157);
        // Files left by a statement do not count for the next one.
        spills.end();
        assert_eq!(spills.grown(), 0);
        cursor.write_all(&[0; 3]).unwrap();
        spills.find(own);
        assert_eq!(spills.grown(), 3);
    }

    /// The files of this process that are open and deleted, of this folder.
    fn deleted(folder: &std::path::Path) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let text = folder.to_str().unwrap();
        links
            .filter(|link| {
                link.to_str().is_some_and(|link| link.contains(text) && link.ends_with("(deleted)"))
            })
            .count()
    }

    /// Their room on the disk is free once the statement has ended, and no number of them takes all descriptors.
    #[test]
    fn deleted_files_are_let_go_when_the_statement_ends_and_not_too_many_are_held() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let temporary = folder.path().join("pgsql_tmp");
        std::fs::create_dir(&temporary).unwrap();
        let files: Vec<_> = (0..MAX_FILES + 2)
            .map(|number| {
                let path = temporary.join(format!("pgsql_tmp1.{number}"));
                let mut file = File::create(&path).unwrap();
                file.write_all(&[0; 10]).unwrap();
                (file, path)
            })
            .collect();
        let mut spills = Spills::default();
        spills.find(std::process::id());
        assert_eq!((spills.0.len(), spills.grown()), (MAX_FILES, 10 * u64::try_from(MAX_FILES).unwrap()));
        spills.end();
        assert_eq!(spills.0.len(), MAX_FILES, "they are there, such as a cursor's");
        for (file, path) in files {
            drop(file);
            std::fs::remove_file(path).unwrap();
        }
        assert_eq!(deleted(folder.path()), MAX_FILES);
        spills.end();
        assert_eq!((spills.0.len(), deleted(folder.path())), (0, 0));
    }
}
