//! What files hold, kept in force: the last that could be used, replaced as a whole.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};

use crate::certificate::Certificate;
use crate::files::{Material, TlsError};

/// When a file's certificate ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// `server`, `client_ca` or `upstream_ca`.
    pub role: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Whose certificate it is; of several, the one that ends first.
    pub subject: String,
    /// Its last second, since 1970.
    pub not_after: i64,
}

impl Expiry {
    pub(crate) fn of(role: &'static str, file: &Material, certificate: Certificate) -> Self {
        let Certificate { subject, not_after, .. } = certificate;
        Self { role, path: file.path().into(), subject, not_after }
    }

    /// Of the first that ends.
    pub(crate) fn soonest(role: &'static str, file: &Material) -> Result<Option<Self>, TlsError> {
        let soonest = file.certificates()?.into_iter().min_by_key(|certificate| certificate.not_after);
        Ok(soonest.map(|certificate| Self::of(role, file, certificate)))
    }
}

/// What a look at the files found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing new.
    None,
    /// Renewed files, which are in force for new connections.
    Renewed,
    /// Renewed files that cannot be used; the last good ones stay in force.
    Broken(TlsError),
}

/// Files that may be renewed while a process runs.
pub trait Watched: Send + Sync {
    /// Reads the files again, which blocks, and puts them in force if they changed and can be used. Certificate and key
    /// are replaced one after the other, so that what cannot be used is called broken when it is the same at the next
    /// look, and then once.
    fn look(&self) -> Change;

    /// When the certificates that are in force end.
    fn expiries(&self) -> Vec<Expiry>;
}

/// What the files held; an error where they could not be read.
pub(crate) type Read<F> = Result<F, TlsError>;

/// What is made of files, so that a connection never sees a half of it.
#[derive(Debug)]
pub(crate) struct Kept<T, F> {
    in_force: ArcSwap<T>,
    seen: Mutex<Seen<F>>,
}

/// The files at the last look.
#[derive(Debug)]
struct Seen<F> {
    files: Read<F>,
    /// They are in force, or it was said that they cannot be.
    settled: bool,
}

impl<T, F: PartialEq> Kept<T, F> {
    /// What was made of what was read.
    pub(crate) fn new(read: F, made: T) -> Self {
        let seen = Mutex::new(Seen { files: Ok(read), settled: true });
        Self { in_force: ArcSwap::from_pointee(made), seen }
    }

    pub(crate) fn in_force(&self) -> Guard<Arc<T>> {
        self.in_force.load()
    }

    /// Puts in force what can be made of what was read now.
    pub(crate) fn look(&self, read: Read<F>, make: impl FnOnce(&F) -> Result<T, TlsError>) -> Change {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = seen.files != read;
        if !changed && seen.settled {
            return Change::None;
        }
        let change = match read.as_ref().map_err(Clone::clone).and_then(make) {
            Ok(made) => {
                self.in_force.store(Arc::new(made));
                Change::Renewed
            }
            Err(_) if changed => Change::None,
            Err(error) => Change::Broken(error),
        };
        *seen = Seen { files: read, settled: change != Change::None };
        change
    }
}
