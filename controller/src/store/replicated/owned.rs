//! The store of the controller that owns the log: it commits to the log first, and then to its local store.
//!
//! A segment that nobody answered for is sent again until patience ends. Then the commit has failed, and whether it is
//! in the log stays open until the next commit asks. That one puts an empty batch under the open number: either it
//! gets there, and what was open can never happen; or the open bytes are there already, and are applied. So a change
//! happens at most once, and whatever fills a number ends all other attempts at it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tidegate_consensus::{Guard, Row, Step, Transaction};

use super::super::{Batch, Store, StoreError, Table, Visit, VisitAll, Write};
use super::applied::Applied;
use super::bytes::{LONGEST, put_mark};
use super::calls::{Calls, Put, Settings, Unwritten};
use super::checkpoint::Checkpoint;
use super::follower::{Head, word};
use super::known::Known;
use super::owner::{Owner, beat_value, named};
use super::segment::{FRAME, Segment, pieces};
use super::{scope, writing};

/// The store of the log's owner.
pub struct ReplicatedStore {
    calls: Calls,
    local: Arc<dyn Store>,
    owner: Owner,
    epoch: u64,
    /// Lets one checkpoint be written at a time.
    checkpoints: Mutex<Checkpoints>,
    turn: Mutex<Turn>,
    beats: AtomicU64,
    /// Beats say that it is about to leave the log.
    leaves: AtomicBool,
    /// It has left the log in order.
    left: AtomicBool,
    /// Why nothing may be written any more.
    ended: OnceLock<StoreError>,
    /// The word of the seal that the owner before left behind, if it left the log in order: it is valid once.
    seal: Mutex<Option<String>>,
}

/// The end of the log, which one commit at a time extends.
#[derive(Debug)]
struct Turn {
    head: Head,
    /// The last segment that the local store has.
    applied: u64,
    /// What may be there already, or may yet get there.
    open: Option<Open>,
    /// Rows of counters as the local store has them.
    known: Known,
}

/// A segment whose fate is not known.
#[derive(Debug)]
struct Open {
    value: Vec<u8>,
    second: u64,
    /// What it makes whole, if it is the last part.
    batch: Option<Batch>,
}

#[derive(Debug, Default)]
struct Checkpoints {
    /// The last segment in the last one, bytes of the log up to that, and its own.
    n: u64,
    logged: u64,
    size: u64,
    /// The revision of the store when this owner wrote the last one: by the next, nobody reads anything older.
    revision: Option<u64>,
}

impl fmt::Debug for ReplicatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicatedStore").field("owner", &self.owner).field("epoch", &self.epoch).finish()
    }
}

impl ReplicatedStore {
    pub(super) fn new(
        calls: Calls,
        local: Arc<dyn Store>,
        owner: Owner,
        epoch: u64,
        (head, applied): (Head, u64),
        last: Option<Checkpoint>,
        before: Option<&Owner>,
    ) -> Self {
        let last = last.map_or_else(Checkpoints::default, |last| Checkpoints::after(&last, None));
        let known = Known::new(calls.settings.known);
        Self {
            calls,
            local,
            owner,
            epoch,
            checkpoints: Mutex::new(last),
            turn: Mutex::new(Turn { head, applied, open: None, known }),
            beats: AtomicU64::new(0),
            leaves: AtomicBool::new(false),
            left: AtomicBool::new(false),
            ended: OnceLock::new(),
            seal: Mutex::new(before.filter(|before| before.clean).map(seal_of)),
        }
    }

    /// The revision at which this controller took the log: later owners have higher ones.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether another controller is known to own the log.
    pub fn is_deposed(&self) -> bool {
        matches!(self.ended.get(), Some(StoreError::Deposed { .. }))
    }

    /// Whether this controller may write nothing any more: another one owns the log, or its local store is behind.
    pub fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Whether this controller has left the log in order.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Shows that this owner lives, in one attempt.
    ///
    /// # Errors
    /// The log has another owner, or nobody answered: then the beat counts as none.
    pub fn beat(&self) -> Result<(), StoreError> {
        self.alive()?;
        let count = self.beats.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let value = beat_value(count, self.leaves.load(Ordering::Relaxed));
        let keys = &self.calls.keys;
        let transaction = Transaction {
            when: vec![Guard::Changed(keys.own(), self.epoch)],
            then: vec![Step::Put(keys.beat(), value)],
            otherwise: vec![Step::Get(keys.own())],
        };
        let failed = |error: tidegate_consensus::ConsensusError| StoreError::Shared {
            operation: "take a beat",
            reason: error.to_string(),
        };
        let outcome = self.calls.once(&transaction).map_err(failed)?;
        if outcome.held {
            return Ok(());
        }
        let own = outcome.found.into_iter().next().flatten();
        self.noted(Err(self.gone(own.as_ref())))
    }

    /// Why the record of the log's owner is not that of this one any more.
    fn gone(&self, own: Option<&Row>) -> StoreError {
        let last = Owner { clean: true, ..self.owner.clone() };
        if own.is_some_and(|row| Owner::read(&row.value).is_ok_and(|owner| owner == last)) {
            // The last batch is stored, and its commit is about to hear of it, or has lost the answer.
            self.leaves_behind();
            return StoreError::Left;
        }
        StoreError::Deposed { by: named(own) }
    }

    /// Shows with a beat, and with all further ones, that this owner is about to leave the log: followers look for that
    /// more often from now on.
    ///
    /// # Errors
    /// As of [`Self::beat`].
    pub fn announce(&self) -> Result<(), StoreError> {
        self.leaves.store(true, Ordering::Relaxed);
        self.beat()
    }

    /// Marks the log as left in order: nobody needs to wait for this owner, which writes no more.
    ///
    /// # Errors
    /// The log has another owner, or nobody answered.
    pub fn leave(&self) -> Result<(), StoreError> {
        let _turn = lock(&self.turn);
        if self.has_left() {
            return Ok(());
        }
        self.alive()?;
        let record = self.last_record();
        let put = Put { value: &record, seen: self.epoch, head: None, leaves: None };
        match self.calls.put(self.epoch, &self.calls.keys.own(), &put) {
            Ok(_) => {}
            Err(Unwritten::Failed(error)) => return Err(error.told("leave the log")),
            Err(error) => match self.unwritten(error) {
                StoreError::Left => {}
                error => return self.noted(Err(error)),
            },
        }
        self.leaves_behind();
        Ok(())
    }

    /// The record of this owner as it leaves the log.
    fn last_record(&self) -> Vec<u8> {
        Owner { clean: true, ..self.owner.clone() }.record(rand::random())
    }

    /// Notes that the log is left in order.
    fn leaves_behind(&self) {
        self.left.store(true, Ordering::Release);
        // A beat may have heard of it first.
        let _ = self.ended.set(StoreError::Left);
    }

    /// Gives the log another word, and returns it: local stores that follow it until now are of another log then, and are
    /// built again.
    ///
    /// # Errors
    /// The log has another owner, or nobody answered.
    pub fn rename(&self) -> Result<String, StoreError> {
        let _turn = lock(&self.turn);
        self.alive()?;
        let (key, word) = (self.calls.keys.cluster(), word());
        let read =
            self.calls.get(std::slice::from_ref(&key)).map_err(|error| error.told("read which log it is"))?;
        let seen = read.found.into_iter().next().flatten().map_or(0, |row| row.changed);
        let put = Put { value: word.as_bytes(), seen, head: None, leaves: None };
        match self.calls.put(self.epoch, &key, &put) {
            Ok(_) => Ok(word),
            Err(Unwritten::Failed(error)) => Err(error.told("give the log another word")),
            Err(error) => self.noted(Err(self.unwritten(error))),
        }
    }

    /// Writes a checkpoint if the log has grown enough since the last, and removes what it makes needless. Returns
    /// whether it did. Commits go on meanwhile.
    ///
    /// # Errors
    /// The log has another owner, or a store failed. The next call goes on.
    pub fn checkpoint_if_due(&self) -> Result<bool, StoreError> {
        let mut last = lock(&self.checkpoints);
        self.alive()?;
        let mut turn = lock(&self.turn);
        let logged = turn.head.logged.saturating_sub(last.logged);
        // First parts of batches without an end are no change.
        if turn.applied <= last.n || logged <= last.size.max(self.calls.settings.checkpoint_after) {
            return Ok(false);
        }
        self.noted(self.mark(&mut turn))?;
        // What follows the mark is not in the checkpoint.
        let mut turn = Some(turn);
        let begun = &mut || drop(turn.take());
        let written = self.noted(writing::write(&self.calls, self.epoch, &*self.local, None, begun))?;
        let older = last.revision;
        *last = Checkpoints::after(&written.checkpoint, Some(written.revision));
        self.noted(writing::remove(&self.calls, self.epoch, &written))?;
        if let Some(older) = older
            && let Err(error) = self.calls.compact(older)
        {
            // The next one does.
            tracing::warn!(%error, "the shared store was not compacted");
        }
        Ok(true)
    }

    fn alive(&self) -> Result<(), StoreError> {
        self.ended.get().map_or(Ok(()), |ended| Err(ended.clone()))
    }

    /// What was committed can be read, unless the log has more.
    fn whole(&self) -> Result<(), StoreError> {
        match self.ended.get() {
            Some(error @ StoreError::Parted { .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Notes an error after which nothing may be written.
    fn noted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error @ (StoreError::Deposed { .. } | StoreError::Parted { .. } | StoreError::Belated)) =
            &result
            && self.ended.set(error.clone()).is_ok()
        {
            tracing::error!(%error, epoch = self.epoch, "the log is no longer written");
        }
        result
    }

    /// The entries of a batch that is to be logged next.
    fn entries(&self, turn: &mut Turn, batch: &[Write]) -> Result<Vec<u8>, StoreError> {
        self.noted(self.settle(turn))?;
        // Only now the local store has all that the log may have before this batch.
        let entries = turn.known.encode(batch, &*self.local)?;
        if entries.len() > LONGEST {
            let reason = format!("it has {} bytes, at most {LONGEST} go into the log", entries.len());
            return Err(StoreError::Failed { operation: "log a change", reason });
        }
        Ok(entries)
    }

    /// Puts a segment at the end of the log, and leaves that with it under this record, if there is one.
    fn append(&self, turn: &mut Turn, value: &[u8], leaves: Option<&[u8]>) -> Result<(), Unwritten> {
        let n = turn.head.next;
        let put = Put { value, seen: 0, head: Some(n), leaves };
        self.calls.put(self.epoch, &self.calls.keys.segment(n), &put)?;
        turn.head.advance(value.len());
        Ok(())
    }

    /// Learns the fate of a segment that was left open.
    fn settle(&self, turn: &mut Turn) -> Result<(), StoreError> {
        let Some(open) = turn.open.take() else { return Ok(()) };
        let Head { next: n, logged: before } = turn.head;
        let empty = Segment { n, epoch: self.epoch, part: 0, of: 1, second: open.second, before, piece: &[] };
        match self.append(turn, &empty.encode(), None) {
            Ok(()) => Ok(()),
            Err(Unwritten::Other(Some(row))) if row.value == open.value => {
                turn.head.advance(open.value.len());
                let Some(batch) = open.batch else { return Ok(()) };
                self.apply(turn, &batch)?;
                // What was told to have failed is stored after all. Consumption is stored as totals, newer ones over it;
                // but the rooms that define do not know of these.
                if batch.iter().any(scope::defines) {
                    return Err(StoreError::Belated);
                }
                Ok(())
            }
            Err(error) => {
                turn.open = Some(open);
                Err(self.unwritten(error))
            }
        }
    }

    /// Says in the log that a checkpoint is made of what is there so far: followers compare theirs with it.
    fn mark(&self, turn: &mut Turn) -> Result<(), StoreError> {
        self.settle(turn)?;
        let mut entries = Vec::new();
        put_mark(&mut entries);
        self.log(turn, &entries, self.calls.settings.segment, &[], None)?;
        self.apply(turn, &[])
    }

    fn unwritten(&self, error: Unwritten) -> StoreError {
        match error {
            Unwritten::Deposed(own) => self.gone(own.as_ref()),
            Unwritten::Failed(error) => error.told("log a change"),
            Unwritten::Other(_) => StoreError::Parted {
                reason: format!("a segment of epoch {} is not what this controller wrote", self.epoch),
            },
        }
    }

    /// Logs the entries of a batch, in as many segments of at most so many bytes as it takes; with a record, the log is left
    /// with the last of them.
    fn log(
        &self,
        turn: &mut Turn,
        entries: &[u8],
        most: usize,
        batch: &[Write],
        record: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let second = self.calls.settings.clock.unix_ms() / 1_000;
        let pieces = pieces(entries, most);
        let of = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        for (part, piece) in (0..of).zip(pieces) {
            let Head { next: n, logged: before } = turn.head;
            let value = Segment { n, epoch: self.epoch, part, of, second, before, piece }.encode();
            let leaves = record.filter(|_| part + 1 == of);
            if let Err(error) = self.append(turn, &value, leaves) {
                if matches!(&error, Unwritten::Failed(error) if error.uncertain) {
                    let batch = (part + 1 == of).then(|| batch.to_vec());
                    turn.open = Some(Open { value, second, batch });
                }
                return Err(self.unwritten(error));
            }
        }
        Ok(())
    }

    /// Logs the last entries, and leaves the log with them: in one segment if that may be, since each waits for the disks
    /// of the shared store. One that takes no request of that length gets shorter ones.
    fn log_last(&self, turn: &mut Turn, entries: &[u8], batch: &[Write]) -> Result<(), StoreError> {
        let (Settings { segment, last_segment, .. }, record) = (&self.calls.settings, self.last_record());
        let most = *segment.max(last_segment);
        if entries.len().saturating_add(FRAME) <= most {
            match self.log(turn, entries, most, batch, Some(&record)) {
                Err(error @ StoreError::Shared { .. }) if turn.open.is_none() => {
                    tracing::warn!(%error, "the last batch is logged in shorter segments");
                }
                logged => return logged,
            }
        }
        self.log(turn, entries, *segment, batch, Some(&record))
    }

    /// Commits what is in the log to the local store.
    fn apply(&self, turn: &mut Turn, batch: &[Write]) -> Result<(), StoreError> {
        let n = turn.head.next.saturating_sub(1);
        let applied = Applied { n, epoch: self.epoch, logged: turn.head.logged };
        let all: Batch = batch.iter().cloned().chain([applied.row()]).collect();
        self.local.commit(&all).map_err(|error| StoreError::Parted { reason: error.to_string() })?;
        batch.iter().for_each(|write| turn.known.note(write));
        turn.known.committed();
        turn.applied = n;
        Ok(())
    }
}

impl Checkpoints {
    fn after(last: &Checkpoint, revision: Option<u64>) -> Self {
        Self { n: last.n, logged: last.logged, size: last.content.size, revision }
    }
}

impl Head {
    /// Goes behind a segment of so many bytes.
    fn advance(&mut self, bytes: usize) {
        self.next = self.next.saturating_add(1);
        self.logged = self.logged.saturating_add(bytes as u64);
    }
}

/// The word of the seal of an owner.
fn seal_of(owner: &Owner) -> String {
    format!("left by {:016x}", owner.instance)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for ReplicatedStore {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let mut turn = lock(&self.turn);
        self.alive()?;
        if scope::shared(batch)?.is_empty() {
            return self.local.commit(batch);
        }
        let entries = self.entries(&mut turn, batch)?;
        self.noted(self.log(&mut turn, &entries, self.calls.settings.segment, batch, None))?;
        self.noted(self.apply(&mut turn, batch))
    }

    /// The record that leaves the log is in the transaction of the last segment, so the next owner waits for nothing that
    /// this one does afterwards.
    fn commit_last(&self, batch: &[Write]) -> Result<(), StoreError> {
        let mut turn = lock(&self.turn);
        self.alive()?;
        let entries = self.entries(&mut turn, batch)?;
        tracing::debug!(bytes = entries.len(), writes = batch.len(), "the last batch is encoded");
        self.noted(self.log_last(&mut turn, &entries, batch))?;
        self.leaves_behind();
        tracing::debug!("the log is left");
        if let Err(error) = self.apply(&mut turn, batch) {
            // The log has it, from which this file is brought up to date.
            tracing::warn!(%error, "the last batch is in the log, and not in the local store");
        }
        Ok(())
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.whole()?;
        self.local.scan(table, from, &mut |key, value| {
            if scope::is_content(table, key) {
                visit(key, value)
            } else {
                Ok(std::ops::ControlFlow::Continue(()))
            }
        })
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.whole()?;
        self.local.get(table, keys)
    }

    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        self.whole()?;
        self.local.copy(&mut |table, key, value| {
            if scope::is_content(table, key) {
                visit(table, key, value)
            } else {
                Ok(std::ops::ControlFlow::Continue(()))
            }
        })
    }

    /// The record of an owner that leaves the log is the seal: the next owner replaces it as it takes the log.
    fn seal(&self) -> Result<String, StoreError> {
        Ok(seal_of(&self.owner))
    }

    fn break_seal(&self) -> Result<Option<String>, StoreError> {
        Ok(lock(&self.seal).take())
    }
}
