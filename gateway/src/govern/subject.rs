//! Who pays for a session: the group its login is bound to, or one it has chosen.

use std::sync::Arc;

use tidegate_client::{Group, Resolved};

/// A login at a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Login {
    /// The database.
    pub(crate) tenant: String,
    pub(crate) user: String,
}

/// A session's side of the governor.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) login: Arc<Login>,
    /// Follows the bindings, so that a live session is moved at its next statement.
    pub(crate) bound: Resolved,
    /// By `SET RESOURCE GROUP`.
    pub(crate) chosen: Option<Group>,
    pub(crate) is_admin: bool,
    pub(crate) may_switch: bool,
}

impl Subject {
    /// The group that pays for the next statement without a hint.
    pub(crate) fn group(&self) -> Group {
        self.chosen.clone().unwrap_or_else(|| self.bound.group())
    }
}
