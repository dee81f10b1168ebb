//! The groups of one client: by name, those that are awake, and which of them the driver or the session turns to when.

mod awake;
#[cfg(all(test, not(shuttle)))]
mod beside;
mod cell;
pub(crate) mod driver;
mod registry;
mod schedule;
#[cfg(all(test, not(shuttle)))]
mod stress;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::sync::Arc;

use tidegate_core::units::Time;

use crate::sync::Notify;
use awake::Awake;
use schedule::{DueSet, Schedule};

pub(crate) use cell::GroupCell;
pub(crate) use registry::Registry;

/// What the tasks of a client have to turn to. The lists name groups by number; only the one of those that are awake has
/// the groups themselves, and a group on another list is awake.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    pub(crate) awake: Awake,
    pub(crate) schedule: Schedule,
    pub(crate) due: DueSet,
    /// Notified when a group's last permit was settled while closing.
    pub(crate) settled: Notify,
}

impl Agenda {
    /// Takes the groups that the driver looks at by `now`.
    pub(crate) fn take_scheduled(&self, now: Time) -> Vec<Arc<GroupCell>> {
        self.awake.those(self.schedule.take_due(now))
    }

    /// Takes at most `limit` of the groups whose renewal is due, first come, first asked.
    pub(crate) fn take_due(&self, limit: usize) -> Vec<Arc<GroupCell>> {
        self.awake.those(self.due.take(limit))
    }
}
