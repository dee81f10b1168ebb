//! Calls of the shared store: repeated while their outcome is unknown, for a bounded time.
//!
//! A call may be repeated because each is a read, or a write whose guard lets one of its attempts happen: it compares
//! the revision of `own`, and that of the key that it writes. Where a guard does not hold, the same transaction has read
//! both keys, so its own bytes show an attempt before it that did happen.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_consensus::{Consensus, ConsensusError, Guard, Outcome, Page, Row, Step, Transaction};
use tidegate_core::units::Span;

use super::super::StoreError;
use super::keys::{Keys, Range, head_value, shown};
use super::known;
use crate::clock::Clock;

/// Settings of the log.
#[derive(Clone)]
pub struct Settings {
    /// Reads time.
    pub clock: Clock,
    /// How long one attempt of a call may take.
    pub within: Duration,
    /// How long a call is repeated before its unknown outcome is an error: the fence, after which nobody waits for it.
    pub patience: Span,
    /// Waits between two attempts.
    pub pause: Arc<dyn Fn() + Send + Sync>,
    /// Most bytes of a segment and of a page.
    pub segment: usize,
    /// Most bytes of a segment that is a whole last batch.
    pub last_segment: usize,
    /// Most rows of counters whose newest values are kept in memory.
    pub known: usize,
    /// Bytes of segments before a checkpoint is worth its while, if the last one is not larger.
    pub checkpoint_after: u64,
    /// A follower goes on while it hashes its rows for a comparison. Otherwise it waits for that, so that how fast threads
    /// are decides nothing.
    pub hashes_beside: bool,
}

/// Time between two attempts: a member that refuses connections is not asked without a break, and another one that
/// leads within a second is found at once.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of a segment: etcd takes six times as much in a request, and a tenth of it costs more for each row.
const SEGMENT: usize = 256 << 10;
/// Bytes of the segment with which the log is left: two thirds of what etcd takes in a request, and eight of them fit the
/// answer to a read. Nothing is granted meanwhile, and each further segment waits for the disks of etcd once more.
const LAST_SEGMENT: usize = 1 << 20;
/// Bytes of log that are read again in no time, and that a cell of etcd does not notice.
const CHECKPOINT_AFTER: u64 = 8 << 20;
/// Time for one attempt: a healthy member answers within a tenth of it, and the fence has room for three.
const WITHIN: Duration = Duration::from_millis(300);

impl Settings {
    /// The settings that ship, with calls that are repeated for `patience`.
    pub fn new(clock: Clock, patience: Span) -> Self {
        Self {
            clock,
            within: WITHIN,
            patience,
            pause: Arc::new(|| std::thread::park_timeout(PAUSE)),
            segment: SEGMENT,
            last_segment: LAST_SEGMENT,
            known: known::MOST,
            checkpoint_after: CHECKPOINT_AFTER,
            hashes_beside: true,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("within", &self.within).field("patience", &self.patience).finish()
    }
}

/// A call that did not succeed.
#[derive(Debug)]
pub(super) struct GaveUp {
    /// The error of the last attempt.
    pub(super) error: ConsensusError,
    /// Whether an attempt may have happened, or may yet happen.
    pub(super) uncertain: bool,
}

impl GaveUp {
    pub(super) fn told(&self, operation: &'static str) -> StoreError {
        StoreError::Shared { operation, reason: self.error.to_string() }
    }
}

/// Why a write under the guard of `own` did not happen.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// The record of the log's owner is another one: this.
    Deposed(Option<Row>),
    /// The key has other content than it had when the write was decided.
    Other(Option<Row>),
    /// No attempt is known to have happened.
    Failed(GaveUp),
}

/// What a key is set to, and what must be so.
pub(super) struct Put<'a> {
    pub(super) value: &'a [u8],
    /// The revision at which the key was last changed; 0: it is absent.
    pub(super) seen: u64,
    /// The log gets this number with it, which is one more than it had. That a segment is absent is not enough: a late
    /// attempt at a number that has been removed would find it so.
    pub(super) head: Option<u64>,
    /// The owner leaves the log with it: its record from then on.
    pub(super) leaves: Option<&'a [u8]>,
}

/// The shared store, the keys in it, and how patiently it is asked.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    consensus: Arc<dyn Consensus>,
    pub(super) keys: Keys,
    pub(super) settings: Settings,
}

impl Calls {
    pub(super) fn new(
        consensus: Arc<dyn Consensus>,
        prefix: &str,
        settings: Settings,
    ) -> Result<Self, StoreError> {
        Ok(Self { consensus, keys: Keys::new(prefix)?, settings })
    }

    /// One attempt.
    pub(super) fn once(&self, transaction: &Transaction) -> Result<Outcome, ConsensusError> {
        self.consensus.transact(transaction, self.settings.within)
    }

    /// Attempts until one has a known outcome, or patience ends.
    pub(super) fn patiently<T>(&self, attempt: impl Fn() -> Result<T, ConsensusError>) -> Result<T, GaveUp> {
        let begun = self.settings.clock.now();
        let mut uncertain = false;
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(error @ ConsensusError::Unknown { .. }) => {
                    uncertain = true;
                    if self.settings.clock.now().since(begun) >= self.settings.patience {
                        return Err(GaveUp { error, uncertain });
                    }
                    (self.settings.pause)();
                }
                Err(error) => return Err(GaveUp { error, uncertain }),
            }
        }
    }

    /// Runs a transaction that may be repeated.
    pub(super) fn transact(&self, transaction: &Transaction) -> Result<Outcome, GaveUp> {
        self.patiently(|| self.once(transaction))
    }

    /// Reads keys at one moment.
    pub(super) fn get(&self, keys: &[Vec<u8>]) -> Result<Outcome, GaveUp> {
        let then = keys.iter().cloned().map(Step::Get).collect();
        self.transact(&Transaction { then, ..Transaction::default() })
    }

    /// Reads the first rows of a range.
    pub(super) fn rows(&self, (from, to): &Range, most: usize) -> Result<Page, GaveUp> {
        self.patiently(|| self.consensus.range(from, to, most, None, self.settings.within))
    }

    /// Asks for compaction; what is gone already needs none.
    pub(super) fn compact(&self, revision: u64) -> Result<(), ConsensusError> {
        match self.consensus.compact(revision, self.settings.within) {
            Err(ConsensusError::Compacted(_)) => Ok(()),
            done => done,
        }
    }

    /// Sets a key as the owner of this epoch; returns the revision.
    pub(super) fn put(&self, epoch: u64, key: &[u8], put: &Put<'_>) -> Result<u64, Unwritten> {
        let own = self.keys.own();
        let mut transaction = Transaction {
            when: vec![Guard::Changed(own.clone(), epoch), Guard::Changed(key.to_vec(), put.seen)],
            then: vec![Step::Put(key.to_vec(), put.value.to_vec())],
            otherwise: vec![Step::Get(own), Step::Get(key.to_vec())],
        };
        if let Some(n) = put.head {
            let before = head_value(n.saturating_sub(1));
            transaction.when.push(Guard::Value(self.keys.head(), before));
            transaction.then.push(Step::Put(self.keys.head(), head_value(n)));
        }
        if let Some(record) = put.leaves {
            transaction.then.push(Step::Put(self.keys.own(), record.to_vec()));
        }
        let outcome = self.transact(&transaction).map_err(Unwritten::Failed)?;
        if outcome.held {
            return Ok(outcome.revision);
        }
        let mut found = outcome.found.into_iter();
        let (own, row) = (found.next().flatten(), found.next().flatten());
        match row {
            // An attempt before this one happened, even if the log has another owner by now.
            Some(row) if row.value == put.value => Ok(row.changed),
            _ if own.as_ref().map_or(0, |own| own.changed) != epoch => Err(Unwritten::Deposed(own)),
            row => Err(Unwritten::Other(row)),
        }
    }
}

/// The error of a key whose content is none that this version writes.
pub(super) fn unfit(key: &[u8], reason: impl Into<String>) -> StoreError {
    StoreError::Unfit { key: shown(key), reason: reason.into() }
}
