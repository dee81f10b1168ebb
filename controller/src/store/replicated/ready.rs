//! What a follower has read of the log, as rows for its local store.

use super::super::{Batch, Store, StoreError};
use super::applied::Applied;
use super::bytes::{Entry, entries};
use super::calls::unfit;
use super::known::Known;

/// Batches that were read, and are not in the local store yet.
pub(super) struct Ready {
    pub(super) batch: Batch,
    /// Bytes of their entries.
    pub(super) bytes: usize,
    /// The place behind them.
    pub(super) applied: Applied,
    /// Rows of counters as these batches leave them.
    pub(super) known: Known,
}

impl Ready {
    /// Begins at a place, with rows as they are there.
    pub(super) fn new(known: Known, applied: Applied) -> Self {
        Self { batch: Batch::new(), bytes: 0, applied, known }
    }

    /// Takes the entries of a whole batch, whose last segment has this key; returns whether its place is marked.
    pub(super) fn take(&mut self, whole: &[u8], local: &dyn Store, key: &[u8]) -> Result<bool, StoreError> {
        self.bytes += whole.len();
        let mut is_marked = false;
        for entry in entries(whole).map_err(|reason| unfit(key, reason))? {
            match entry {
                Entry::Write(write) => {
                    self.known.note(&write);
                    self.batch.push(write);
                }
                Entry::Grown(table, grown) => {
                    self.known.grow((table, &grown), local, key, &mut self.batch)?;
                }
                Entry::Mark => is_marked = true,
            }
        }
        Ok(is_marked)
    }
}
