//! The log over a model of the shared store, with faults from seeds, judged by a plain list of what was asked for.

mod begins;
mod beside;
mod broken;
mod counting;
mod ends;
mod kept;
pub(crate) mod memory;
mod refused;
mod rules;
mod slow;
pub(crate) mod way;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_consensus::Consensus;
use tidegate_core::units::Span;
use tidegate_core::usage::Total;

use super::super::records::{Narrow, narrow_bytes};
use super::super::{Store, Table, Write};
use super::*;
use crate::clock::Clock;

/// Where all logs are.
const PREFIX: &str = "t/";

/// Rows that are in a log, by table and key.
type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// Small segments, and time that passes while a caller waits.
fn settings(patience_ms: u64) -> Settings {
    let now = Arc::new(AtomicU64::new(0));
    let clock = Clock::driven(Arc::clone(&now));
    let pause = Arc::new(move || {
        now.fetch_add(20_000, Ordering::Relaxed);
    });
    let patience = Span(patience_ms * 1_000);
    Settings {
        clock,
        within: Duration::from_millis(10),
        patience,
        pause,
        segment: 160,
        last_segment: 300,
        known: 4,
        checkpoint_after: 2_000,
        // A seed is to run the same course each time.
        hashes_beside: false,
    }
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner { controller: name.to_owned(), instance: 1, addresses: Vec::new(), fence_ms: 1_000, clean: false }
}

fn follow(
    consensus: Arc<dyn Consensus>,
    place: &Arc<memory::Memory>,
) -> Result<Follower, super::super::StoreError> {
    Follower::follow(consensus, PREFIX, Arc::<memory::Memory>::clone(place), settings(30), false)
}

fn put(table: Table, key: &[u8], value: &[u8]) -> Write {
    Write::Put(table, key.to_vec(), value.to_vec())
}

/// A row whose last counters are these.
fn counters<const N: usize>(last: [u64; N]) -> Vec<u8> {
    let mut words = Narrow::default();
    words[Total::WORDS - N..].copy_from_slice(&last);
    narrow_bytes(&words).unwrap()
}

/// Makes the changes of a batch that are in a log.
fn change(rows: &mut Rows, batch: &[Write]) {
    for write in batch.iter().cloned() {
        match write {
            Write::Put(table, key, value) => drop(rows.insert((table, key), value)),
            Write::Delete(table, key) => drop(rows.remove(&(table, key))),
            Write::DeleteBelow(table, below) => rows.retain(|(of, key), _| *of != table || *key >= below),
        }
    }
}

/// What a store has of the log.
fn rows(store: &dyn Store) -> Rows {
    let mut rows = Rows::new();
    let visited = store.copy(&mut |table, key, value| {
        if !scope::is_local(table, key) {
            rows.insert((table, key.to_vec()), value.to_vec());
        }
        Ok(std::ops::ControlFlow::Continue(()))
    });
    visited.unwrap();
    rows
}
