//! Whether the log has what a local store has: it may have been set back, by a restore of the shared store.

use std::sync::Arc;

use tidegate_consensus::Consensus;

use super::super::{Store, StoreError};
use super::applied::{Applied, bound};
use super::calls::{Calls, Settings, unfit};
use super::members::Members;
use super::restore::newest;
use super::segment::Segment;

/// How a local store stands to the log under a prefix. Numbers are those of the last segment that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Footing {
    /// It follows no log.
    OfNoLog,
    /// There is no log.
    NoLog,
    /// It follows another log.
    OfAnother {
        /// The word of that log.
        theirs: String,
        /// The word of the one under the prefix.
        ours: String,
    },
    /// The log has all that it has.
    Within(u64),
    /// It has changes that the log does not have.
    Ahead(u64),
}

impl Footing {
    /// Compares a local store with the log, and changes neither.
    ///
    /// # Errors
    /// Nobody answered, or one of them does not read.
    pub fn of(
        local: &dyn Store,
        consensus: Arc<dyn Consensus>,
        prefix: &str,
        settings: Settings,
    ) -> Result<Self, StoreError> {
        let Some((theirs, applied)) = bound(local)? else { return Ok(Self::OfNoLog) };
        let ours = Members::new(Arc::clone(&consensus), prefix, settings.clone())?.cluster()?;
        let Some(ours) = ours else { return Ok(Self::NoLog) };
        if ours != theirs {
            return Ok(Self::OfAnother { theirs, ours });
        }
        let has = has(&Calls::new(consensus, prefix, settings)?, applied)?;
        Ok(if has { Self::Within(applied.n) } else { Self::Ahead(applied.n) })
    }
}

/// Whether a place in the log is one that it has.
pub(super) fn has(calls: &Calls, Applied { n, epoch, .. }: Applied) -> Result<bool, StoreError> {
    if n == 0 {
        return Ok(true);
    }
    let key = calls.keys.segment(n);
    let read = calls.get(std::slice::from_ref(&key)).map_err(|error| error.told("read the log"))?;
    match read.found.into_iter().next().flatten() {
        Some(row) => Ok(Segment::decode(&row.value).map_err(|reason| unfit(&key, reason))?.epoch == epoch),
        None => Ok(newest(calls)?.is_some_and(|(of, _)| of.n > n || (of.n == n && of.epoch == epoch))),
    }
}
