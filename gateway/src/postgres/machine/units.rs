//! The units of a session, in the order in which the server comes to them.

use std::collections::VecDeque;

use super::Unit;
use crate::govern::Progress;

/// Units that have not ended, and what belongs to none that was admitted.
#[derive(Debug)]
pub(super) struct Units<R> {
    units: VecDeque<Unit<R>>,
    /// How many there ever were.
    opened: u64,
    /// Bytes and rows of what belongs to no admitted unit; the next one carries them.
    carried: Progress,
}

impl<R> Units<R> {
    pub(super) fn new() -> Self {
        Self { units: VecDeque::new(), opened: 0, carried: Progress::default() }
    }

    pub(super) fn push(&mut self, simple: bool) {
        self.units.push_back(Unit::new(simple));
        self.opened += 1;
    }

    /// Begins the unit that messages of the extended protocol belong to, unless there is one.
    pub(super) fn open(&mut self) {
        if self.last().is_none_or(|unit| unit.closed) {
            self.push(false);
        }
    }

    /// The number of the last unit.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    /// The number of the unit that the server works on.
    pub(super) fn worked_on(&self) -> u64 {
        self.opened - count(self.units.len().saturating_sub(1))
    }

    /// How many units behind the first end with it when the server reads over its `Sync`: the next of the extended
    /// protocol, and what is before that.
    pub(super) fn behind_first(&self) -> usize {
        let behind = || self.units.iter().skip(1);
        behind().position(|unit| !unit.simple).map_or_else(|| behind().count(), |last| last + 1)
    }

    /// The unit that the server works on.
    pub(super) fn first_mut(&mut self) -> Option<&mut Unit<R>> {
        self.units.front_mut()
    }

    /// The first one that is admitted, and whether the server works on it.
    pub(super) fn first_admitted_mut(&mut self) -> Option<(&mut Unit<R>, bool)> {
        let at = self.units.iter().position(|unit| unit.running.is_some())?;
        Some((self.units.get_mut(at)?, at == 0))
    }

    /// The unit that the client's next message may belong to.
    pub(super) fn last(&self) -> Option<&Unit<R>> {
        self.units.back()
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Unit<R>> {
        self.units.back_mut()
    }

    /// Whether nothing is left to answer.
    pub(super) fn are_quiet(&self) -> bool {
        self.units.iter().all(|unit| unit.running.is_none() && !unit.closed)
    }

    /// Whether there is one to which the client has nothing to add.
    pub(super) fn have_closed(&self) -> bool {
        self.units.iter().any(|unit| unit.closed)
    }

    /// The last unit is admitted, and carries what belonged to none.
    pub(super) fn admit(&mut self, running: R) {
        let carried = std::mem::take(&mut self.carried);
        if let Some(unit) = self.last_mut() {
            unit.running = Some(running);
            unit.progress = unit.progress.plus(&carried);
        }
    }

    /// The first unit has ended.
    pub(super) fn end(&mut self) -> Option<Unit<R>> {
        let unit = self.units.pop_front()?;
        if unit.running.is_none() {
            self.carried = self.carried.plus(&unit.progress);
        }
        Some(unit)
    }

    /// So many bytes have gone to the server.
    pub(super) fn count_in(&mut self, length: usize) {
        let progress = self.units.back_mut().map_or(&mut self.carried, |unit| &mut unit.progress);
        progress.bytes_in = progress.bytes_in.saturating_add(count(length));
    }

    /// So many bytes have come from the server.
    pub(super) fn count_out(&mut self, length: usize) {
        let progress = self.units.front_mut().map_or(&mut self.carried, |unit| &mut unit.progress);
        progress.bytes_out = progress.bytes_out.saturating_add(count(length));
    }

    /// The units that end without an answer when the connection does.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = Unit<R>> + '_ {
        self.units.drain(..)
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
