//! The key that cancels a server process's statements: its process id and a secret.
//!
//! The secret has four bytes up to protocol 3.1, and up to 256 from 3.2 on.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Process id and secret, as the server sends them and a request to cancel repeats them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(Arc<[u8]>);

const PID: usize = 4;
/// Bytes of the id and the secret.
const LENGTHS: RangeInclusive<usize> = PID + 4..=PID + 256;

impl Key {
    /// Reads the body of `BackendKeyData`, or what follows the code of a request to cancel.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        LENGTHS.contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    /// The server process.
    pub(super) fn pid(&self) -> u32 {
        self.0.first_chunk::<PID>().map_or(0, |pid| u32::from_be_bytes(*pid))
    }

    /// As it was read.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Without the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key of process {}", self.pid())
    }
}
