//! The outcome of every operation of a run: the one record that all comparisons are computed from.
//!
//! Times are true virtual time, costs what was charged. Entries are in the order of their times.

use std::fmt;

use tidegate_core::units::{Ru, Span, Time};

use super::world::Operation;

/// An operation at one moment of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The moment.
    pub at: Time,
    /// Where.
    pub node: usize,
    /// Index of its load.
    pub load: usize,
    /// Its cost.
    pub cost: Ru,
    /// Time since it arrived.
    pub waited: Span,
}

impl Entry {
    pub(super) fn new(at: Time, node: usize, operation: Operation) -> Self {
        Self { at, node, load: operation.load, cost: operation.cost, waited: at.since(operation.since) }
    }
}

/// The least that was admitted to some loads in any whole second from `from` to `until`.
pub(super) fn floor(log: &Log, counts: impl Fn(usize) -> bool, from: Time, until: Time) -> Ru {
    let seconds = usize::try_from(until.since(from).0 / 1_000_000).unwrap_or_default();
    let mut admitted = vec![Ru::ZERO; seconds];
    for entry in log.admitted.iter().filter(|entry| counts(entry.load) && entry.at >= from) {
        let second = usize::try_from(entry.at.since(from).0 / 1_000_000).unwrap_or(usize::MAX);
        if let Some(sum) = admitted.get_mut(second) {
            *sum += entry.cost;
        }
    }
    admitted.into_iter().min().unwrap_or_default()
}

/// All operations of a run. One that still waits at the end is only in `arrived`.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// When they arrived.
    pub arrived: Vec<Entry>,
    /// When they were admitted, with the cost that was charged.
    pub admitted: Vec<Entry>,
    /// When they were refused or gave up.
    pub refused: Vec<Entry>,
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, entries) in [("admitted", &self.admitted), ("refused", &self.refused)] {
            for Entry { at, node, load, cost, waited } in entries {
                writeln!(f, "{:>9} us  n{node} {what} {cost} of load {load} after {waited}", at.0)?;
            }
        }
        Ok(())
    }
}
