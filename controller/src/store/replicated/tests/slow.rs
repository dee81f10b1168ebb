//! A place in memory whose store counts what it is asked for, and whose next copy waits when a test wants it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::super::{Store, StoreError, Table, Visit, VisitAll, Write};
use super::super::place::{Fresh, Place};
use super::memory::{Memory, Rows};

/// The place.
pub(super) struct Slow {
    pub(super) memory: Arc<Memory>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    asked: AtomicUsize,
    visited: AtomicUsize,
    gate: Mutex<Option<Receiver<()>>>,
}

impl Slow {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { memory: Memory::new(), counts: Arc::default() })
    }

    /// Rows that were asked for by their keys.
    pub(super) fn asked(&self) -> usize {
        self.counts.asked.load(Ordering::SeqCst)
    }

    /// Rows that were visited by copies.
    pub(super) fn visited(&self) -> usize {
        self.counts.visited.load(Ordering::SeqCst)
    }

    /// Lets the next copy wait behind its first row until something is sent.
    pub(super) fn gate(&self) -> Sender<()> {
        let (go, gate) = channel();
        *self.counts.gate.lock().unwrap() = Some(gate);
        go
    }
}

impl Place for Slow {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(Opened { rows: self.memory.store(), counts: Arc::clone(&self.counts) }))
    }

    fn fresh(&self) -> Result<Box<dyn Fresh>, StoreError> {
        self.memory.fresh()
    }
}

struct Opened {
    rows: Arc<Rows>,
    counts: Arc<Counts>,
}

impl Store for Opened {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        self.rows.commit(batch)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.rows.scan(table, from, visit)
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.counts.asked.fetch_add(keys.len(), Ordering::SeqCst);
        self.rows.get(table, keys)
    }

    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        let mut gate = self.counts.gate.lock().unwrap().take();
        self.rows.copy(&mut |table, key, value| {
            let goes_on = visit(table, key, value)?;
            self.counts.visited.fetch_add(1, Ordering::SeqCst);
            // Who waits for this copy before it opens the gate waits in vain, and is to hear of that.
            if gate.take().is_some_and(|gate| gate.recv_timeout(Duration::from_secs(30)).is_err()) {
                return Err(StoreError::Failed { operation: "copy", reason: "nobody came".to_owned() });
            }
            Ok(goes_on)
        })
    }

    fn seal(&self) -> Result<String, StoreError> {
        self.rows.seal()
    }

    fn break_seal(&self) -> Result<Option<String>, StoreError> {
        self.rows.break_seal()
    }
}
