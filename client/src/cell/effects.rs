//! What follows from changes of a group, outside of it.

use tidegate_core::units::Time;

/// What a group's client does after changes, while the group's lock is held: so it does it in the order of the changes.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Effects {
    /// Operations that were admitted without waiting, queued, and refused at once or after waiting: to be counted.
    pub(crate) admitted: u64,
    pub(crate) queued: u64,
    pub(crate) refused: u64,
    /// The last open permit was settled.
    pub(crate) settled: bool,
    /// The session is to ask for the group.
    pub(crate) due: Option<Contact>,
    /// The driver is to look at the group.
    pub(crate) look: Option<Look>,
}

/// Whether the controller was asked for a group before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// Its operations wait for the first answer.
    First,
    Again,
}

/// When the driver is to look at a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) at: Time,
    /// No longer then.
    pub(crate) before: Option<Time>,
}
