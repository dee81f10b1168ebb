//! What several controllers share: ordered keys with revisions, changed by guarded transactions.
//!
//! [`Consensus`] is what the controller needs of a distributed store, and no more: transactions that compare revisions,
//! reads of ranges, and compaction. Each call is one attempt with a deadline; who makes it decides what an unknown
//! outcome means. Calls block: they are made from threads that may wait for a disk. [`etcd::Etcd`] is it on etcd's v3 API,
//! whose rules these are; `consensus/tests/contract/mod.rs` states each as a test.
//!
//! Keys have at least one byte, and any bytes, as values do; they are ordered by bytes. As the begin of a range, the
//! empty key stands before all. A range whose end is not behind its begin has no keys. The revision of the store grows by
//! one with each transaction that changes something. To set what is there already is a change; to remove what is not
//! there is none.

pub mod etcd;

pub mod model;

use std::fmt;
use std::time::Duration;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of the whole store at which the key was created; above 0.
    pub created: u64,
    /// The revision at which it was last changed.
    pub changed: u64,
}

/// A condition of a transaction, on what was before its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The key was last changed at this revision; 0 is a key that is absent.
    Changed(Vec<u8>, u64),
    /// The key has this value; one that is absent has none, not even the empty one.
    Value(Vec<u8>, Vec<u8>),
}

/// A step of a transaction. Steps see what those before them did. A list of steps sets a key at most once, and none
/// that it also removes: a transaction with one that does is refused, whether or not that list would happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads a key.
    Get(Vec<u8>),
    /// Sets a key.
    Put(Vec<u8>, Vec<u8>),
    /// Removes the keys from the first to before the second.
    Delete(Vec<u8>, Vec<u8>),
}

/// Steps that happen together if all guards hold, and others if one does not. Every store takes 128 guards, 128 steps of
/// either kind, and 1 MiB of keys and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions.
    pub when: Vec<Guard>,
    /// If all hold.
    pub then: Vec<Step>,
    /// If one does not.
    pub otherwise: Vec<Step>,
}

/// What a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether all guards held.
    pub held: bool,
    /// The revision of the store after it.
    pub revision: u64,
    /// What each [`Step::Get`] of the steps that happened found, in order.
    pub found: Vec<Option<Row>>,
}

/// A page of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The rows, in order of the keys.
    pub rows: Vec<Row>,
    /// Whether the range has more.
    pub more: bool,
    /// The revision of the store as read: the one that was asked for, or the newest.
    pub revision: u64,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsensusError {
    /// Nobody answered in time, or the answer was lost: a transaction may or may not have happened, and may yet happen.
    #[error("no answer of {member}: {reason}")]
    Unknown {
        /// Who was asked.
        member: String,
        /// What went wrong.
        reason: String,
    },
    /// The call was refused, and did nothing.
    #[error("{member} refused: {reason}")]
    Refused {
        /// Who was asked.
        member: String,
        /// Its reason.
        reason: String,
    },
    /// There is no room for what was to be written; nothing was.
    #[error("{member} has no space left: {reason}; raise its quota, or compact and defragment it")]
    Full {
        /// Who was asked.
        member: String,
        /// Its reason.
        reason: String,
    },
    /// The revision asked for has been compacted away.
    #[error("revision {0} has been compacted away")]
    Compacted(u64),
}

/// A distributed store.
pub trait Consensus: Send + Sync + fmt::Debug {
    /// Runs a transaction, linearizably.
    ///
    /// # Errors
    /// [`ConsensusError::Unknown`] does not say whether it happened.
    fn transact(&self, transaction: &Transaction, within: Duration) -> Result<Outcome, ConsensusError>;

    /// Reads the keys from `from` to before `to`, at most `most` of them: linearizably, or as of revision `at`, which
    /// keeps the pages of one range consistent. Every store answers 16 rows with values of 512 KiB.
    ///
    /// # Errors
    /// [`ConsensusError::Compacted`] when `at` is too old; one that the store has not reached is refused.
    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        most: usize,
        at: Option<u64>,
        within: Duration,
    ) -> Result<Page, ConsensusError>;

    /// Forgets what keys were before this revision. Where that is done already, there is nothing to do.
    ///
    /// # Errors
    /// A revision that the store has not reached is refused.
    fn compact(&self, revision: u64, within: Duration) -> Result<(), ConsensusError>;
}

/// The end of the range of all keys that begin with `prefix`.
///
/// A prefix of bytes 255 only has no end; keys of a prefix that ends in `/` always have one.
pub fn end_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_lies_behind_every_key_that_begins_with_it() {
        assert_eq!(end_of(b"a/"), Some(b"a0".to_vec()));
        assert_eq!(end_of(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(end_of(&[255, 255]), None);
        assert_eq!(end_of(b""), None);
    }
}
