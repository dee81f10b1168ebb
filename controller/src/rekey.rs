//! Another key in a store that no controller uses: what the old one has signed is worth nothing then.
//!
//! Only a store that was stopped cleanly gets one. Any other may be a copy, or set back, and learns that from what nodes
//! bring with signatures of the old key. After a clean stop the leases are in the store, and no node has to prove any.

use std::path::Path;

use crate::leasing::proof::KEY_BYTES;
use crate::restore::{CopyError, whole};
use crate::service::meta::Meta;
use crate::store::records::META_PROOF_KEY;
use crate::store::{FileSeal, RedbStore, Store as _, StoreError, Table, Write};

/// Gives the store at `path` another key.
///
/// # Errors
/// It is damaged, in use, was not stopped cleanly, or cannot be written. It has its old key then.
pub fn rekey(path: &Path) -> Result<(), CopyError> {
    whole(path, path)?;
    let store = RedbStore::open(path)?;
    let saved = Meta::load(&store)?.saved()?;
    let seal = FileSeal::of(path)
        .look()
        .map_err(|error| StoreError::Failed { operation: "read its seal", reason: error.to_string() })?;
    if !saved.is_some_and(|saved| saved.is_sealed_by(seal.as_deref())) {
        return Err(CopyError::NotStopped { path: path.to_owned() });
    }
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key);
    store.commit(&[Write::Put(Table::Meta, META_PROOF_KEY.to_vec(), key.to_vec())])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::clock::Clock;
    use crate::service::{Service, ServiceConfig};

    fn key(path: &Path) -> Option<Vec<u8>> {
        let store = RedbStore::peek(path).unwrap();
        store.get(Table::Meta, &[META_PROOF_KEY.to_vec()]).unwrap().remove(0)
    }

    #[test]
    fn only_a_store_whose_seal_is_there_gets_another_key_and_what_is_in_the_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let store = Arc::new(RedbStore::open(&path).unwrap());
        Service::load(store, ServiceConfig::default(), Clock::start()).unwrap().shut_down().unwrap();
        let (seal, away) = (folder.path().join("store.seal"), folder.path().join("away"));
        let first = key(&path).unwrap();
        rekey(&path).unwrap();
        let second = key(&path).unwrap();
        assert!(first != second && second.len() == KEY_BYTES);
        fs::rename(&seal, &away).unwrap();
        let refused = rekey(&path).unwrap_err().to_string();
        let named = format!("{} was not stopped cleanly, or is a copy", path.display());
        assert!(refused.starts_with(&named), "{refused}");
        std::os::unix::fs::symlink(&seal, &seal).unwrap();
        let failed = rekey(&path).unwrap_err().to_string();
        assert!(failed.contains("read its seal"), "{failed}");
        assert_eq!(key(&path), Some(second), "it has its key still");
    }
}
