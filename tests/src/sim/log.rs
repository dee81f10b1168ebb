//! What became of every operation of a run: the one record that all comparisons are computed from.
//!
//! Times are true virtual time, costs what was charged. Entries are in the order of their times.

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
