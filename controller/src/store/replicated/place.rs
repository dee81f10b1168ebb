//! Where a controller keeps its copy of what the log says: a file, or memory in tests.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::file::failed;
use super::super::seal::Seal as _;
use super::super::{Draft, FileSeal, RedbStore, Row, Store, StoreError, forget_last_commit};

/// The place of a local store.
pub trait Place: Send + Sync {
    /// Its name in messages.
    fn name(&self) -> String;

    /// Opens the store that is there, or creates an empty one.
    ///
    /// # Errors
    /// It is in use, damaged, or no store.
    fn open(&self) -> Result<Arc<dyn Store>, StoreError>;

    /// Begins a store that takes the place once it is whole.
    ///
    /// # Errors
    /// There is no room.
    fn fresh(&self) -> Result<Box<dyn Fresh>, StoreError>;
}

/// A store that is being built.
pub trait Fresh {
    /// Adds rows.
    ///
    /// # Errors
    /// There is no room.
    fn put(&mut self, rows: &[Row]) -> Result<(), StoreError>;

    /// Gives it its place. With `aside`, what was there is kept beside it.
    ///
    /// # Errors
    /// The place cannot be written.
    fn finish(self: Box<Self>, aside: bool) -> Result<(), StoreError>;
}

/// A file.
#[derive(Clone, Debug)]
pub struct FilePlace(PathBuf);

impl FilePlace {
    /// The file at `path`.
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

impl Place for FilePlace {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(RedbStore::open(&self.0)?))
    }

    fn fresh(&self) -> Result<Box<dyn Fresh>, StoreError> {
        Ok(Box::new(FreshFile { draft: Draft::beside(&self.0, true)?, path: self.0.clone() }))
    }
}

struct FreshFile {
    draft: Draft,
    path: PathBuf,
}

impl Fresh for FreshFile {
    fn put(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        self.draft.put_all(rows)
    }

    fn finish(self: Box<Self>, aside: bool) -> Result<(), StoreError> {
        let Self { draft, path } = *self;
        draft.finish(|_| {
            // A seal of the store that was there says nothing of this one, nor does the note of its last commit.
            FileSeal::of(&path).take().map_err(failed("take the seal of a replaced store away"))?;
            if aside {
                let mut replaced = path.clone().into_os_string();
                replaced.push(".replaced");
                match fs::rename(&path, &replaced) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        return Err(failed("put a replaced store aside")(error));
                    }
                    _ => {}
                }
            }
            forget_last_commit(&path).map_err(failed("forget the last commit of a replaced store"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_the_place_of_a_store_that_is_built_again_stays_beside_it_if_anything_was() {
        let folder = tempfile::tempdir().unwrap();
        let [path, replaced] = ["store", "store.replaced"].map(|name| folder.path().join(name));
        let place = FilePlace::new(&path);
        place.fresh().unwrap().finish(true).unwrap();
        assert!(path.exists() && !replaced.exists());
        fs::write(&path, "what was there").unwrap();
        place.fresh().unwrap().finish(true).unwrap();
        assert_eq!(fs::read(&replaced).unwrap(), b"what was there");
        fs::remove_file(&replaced).unwrap();
        fs::create_dir(&replaced).unwrap();
        fs::write(&path, "what cannot be put aside").unwrap();
        let failed = place.fresh().unwrap().finish(true).unwrap_err().to_string();
        assert!(failed.contains("put a replaced store aside"), "{failed}");
        assert_eq!(fs::read(&path).unwrap(), b"what cannot be put aside");
        place.fresh().unwrap().finish(false).unwrap();
        assert_ne!(fs::read(&path).unwrap(), b"what cannot be put aside");
    }
}
