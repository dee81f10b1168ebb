//! Reasons to refuse a request that changes or reads the controller's definitions.
//!
//! One enum serves every admin call. Adapters map the variants to gRPC codes and HTTP statuses; the text is the same
//! everywhere: it names the thing, the value and the remedy.

use crate::limits::MAX_NAMES_LISTED;
use crate::name::{GroupName, NameError};
use crate::quantity::QuantityError;
use crate::store::StoreError;

/// A refused admin request.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// A field of the request is malformed or out of range.
    #[error("{field}: {message}")]
    Invalid {
        /// The field, as the API spells it.
        field: String,
        /// The value, the allowed range and what to write instead.
        message: String,
    },
    /// The group does not exist.
    #[error("group {name} does not exist; list the groups to see which do")]
    NoGroup {
        /// The name asked for.
        name: GroupName,
    },
    /// Something else does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// The thing asked for.
        what: String,
    },
    /// The thing exists.
    #[error("{what} exists already, {difference}")]
    AlreadyExists {
        /// The thing to be created.
        what: String,
        /// Fields that differ, and the remedy.
        difference: String,
    },
    /// The group is used and cannot be deleted.
    #[error(
        "group {name} is used by {users}; rebind them, or delete with force_to naming the group that takes them"
    )]
    InUse {
        /// The group.
        name: GroupName,
        /// Its bindings and children.
        users: String,
    },
    /// The request cannot be met in the present state.
    #[error("{message}")]
    Refused {
        /// The obstacle and the remedy.
        message: String,
    },
    /// There is no history that could be replayed.
    #[error(
        "nothing of group {name} is recorded by the {step} in that time; choose another resolution, or an earlier \
         from_unix_s"
    )]
    NothingRecorded {
        /// The group.
        name: GroupName,
        /// The length of the samples.
        step: &'static str,
    },
    /// The group changed since the caller read it.
    #[error("group {name} is at revision {actual}, not {expected}; read it again and repeat the change")]
    Revision {
        /// The group.
        name: GroupName,
        /// The revision that the caller expected.
        expected: u64,
        /// The present revision.
        actual: u64,
    },
    /// A definition changed since the caller made a plan.
    #[error("the definitions are at revision {actual}, not {expected}; somebody changed them, so plan again")]
    Stale {
        /// The revision that the caller expected.
        expected: u64,
        /// The present revision.
        actual: u64,
    },
    /// Several steps of one change failed; nothing was changed.
    #[error("{}", told(.faults, .count))]
    Several {
        /// The first faults.
        faults: Vec<Fault>,
        /// Number of faults.
        count: usize,
    },
    /// A limit of the controller is reached.
    #[error("the limit of {limit} {what} is reached; delete some first")]
    Full {
        /// The thing that is limited.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The store failed; nothing is in force.
    #[error("{what}{0}", what = not_stored(.0))]
    Store(#[from] StoreError),
    /// The engine or the store refused what the controller had checked: a defect of the controller.
    #[error("internal error: {0}")]
    Internal(String),
}

/// What became of a change that the store did not take.
fn not_stored(error: &StoreError) -> &'static str {
    match error {
        // It may have got there before the answer was lost.
        StoreError::Shared { .. } | StoreError::Parted { .. } => {
            "it is not known whether the change was stored; look before you repeat it: "
        }
        _ => "the change was not stored and is not in force: ",
    }
}

/// The kind of an error, which adapters map to the codes of their protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is malformed.
    Invalid,
    /// What the request names does not exist.
    NotFound,
    /// What it creates exists already.
    AlreadyExists,
    /// What it deletes is in use.
    InUse,
    /// The present state does not allow it.
    Refused,
    /// What it was based on has changed.
    Revision,
    /// A limit is reached.
    Full,
    /// The store does not work.
    Unavailable,
    /// A defect of the controller.
    Internal,
}

impl ErrorKind {
    /// A stable word for the kind.
    pub fn code(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::InUse => "in_use",
            Self::Refused => "refused",
            Self::Revision => "revision",
            Self::Full => "full",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }
}

/// An error of one of many steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field, such as `steps[3].group.burst`; without a field, the step.
    pub field: String,
    /// The kind of error.
    pub kind: ErrorKind,
    /// What is wrong and the remedy.
    pub message: String,
}

fn told(faults: &[Fault], count: &usize) -> String {
    let listed =
        faults.iter().take(MAX_NAMES_LISTED).map(|fault| format!("{}: {}", fault.field, fault.message));
    let mut text = listed.collect::<Vec<_>>().join("; ");
    if *count > faults.len().min(MAX_NAMES_LISTED) {
        text.push_str(&format!("; and {} more", count - faults.len().min(MAX_NAMES_LISTED)));
    }
    text
}

impl AdminError {
    /// An error about a field that is malformed or out of range.
    pub fn invalid(field: impl Into<String>, message: impl ToString) -> Self {
        Self::Invalid { field: field.into(), message: message.to_string() }
    }

    /// The kind of error; of many steps, that of the first fault.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::NoGroup { .. } | Self::NotFound { .. } => ErrorKind::NotFound,
            Self::AlreadyExists { .. } => ErrorKind::AlreadyExists,
            Self::InUse { .. } => ErrorKind::InUse,
            Self::Refused { .. } | Self::NothingRecorded { .. } => ErrorKind::Refused,
            Self::Revision { .. } | Self::Stale { .. } => ErrorKind::Revision,
            Self::Several { faults, .. } => faults.first().map_or(ErrorKind::Invalid, |fault| fault.kind),
            Self::Full { .. } => ErrorKind::Full,
            Self::Store(_) => ErrorKind::Unavailable,
            Self::Internal(_) => ErrorKind::Internal,
        }
    }

    /// A stable word for the kind of error.
    pub fn code(&self) -> &'static str {
        self.kind().code()
    }

    /// The field at fault, if one is.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Invalid { field, .. } => Some(field),
            Self::Several { faults, .. } => faults.first().map(|fault| fault.field.as_str()),
            _ => None,
        }
    }

    /// The faults of many steps.
    pub fn faults(&self) -> &[Fault] {
        match self {
            Self::Several { faults, .. } => faults,
            _ => &[],
        }
    }
}

/// Attaches the name of a field to an error about its value.
pub trait InField<T> {
    /// The error, naming `field`.
    fn in_field(self, field: &str) -> Result<T, AdminError>;
}

impl<T> InField<T> for Result<T, NameError> {
    fn in_field(self, field: &str) -> Result<T, AdminError> {
        self.map_err(|error| AdminError::invalid(field, error))
    }
}

impl<T> InField<T> for Result<T, QuantityError> {
    fn in_field(self, field: &str) -> Result<T, AdminError> {
        self.map_err(|error| AdminError::invalid(field, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many faults, of which these are kept.
    fn several(kept: usize, count: usize) -> AdminError {
        let fault =
            |at| Fault { field: format!("steps[{at}]"), kind: ErrorKind::InUse, message: "m".to_owned() };
        AdminError::Several { faults: (0..kept).map(fault).collect(), count }
    }

    /// Who repeats a change that is stored may do it twice.
    #[test]
    fn a_change_that_may_be_stored_is_not_said_to_have_failed() {
        let reason = || "no answer".to_owned();
        let known = StoreError::Failed { operation: "commit", reason: reason() };
        let shared = StoreError::Shared { operation: "append", reason: reason() };
        for (error, may_be) in
            [(known, false), (shared, true), (StoreError::Parted { reason: reason() }, true)]
        {
            let said = AdminError::from(error).to_string();
            assert_eq!(
                said.starts_with("it is not known whether the change was stored; look before"),
                may_be
            );
            assert_eq!(
                said.starts_with("the change was not stored and is not in force: "),
                !may_be,
                "{said}"
            );
        }
    }

    #[test]
    fn many_faults_are_of_the_kind_of_the_first_and_say_how_many_are_left_out() {
        let listed = MAX_NAMES_LISTED;
        for (kept, count, more) in [
            (2, 2, None),
            (listed, listed, None),
            (listed + 1, listed + 1, Some(1)),
            (listed, 500, Some(480)),
        ] {
            let (error, more) = (several(kept, count), more.map(|more| format!("; and {more} more")));
            let text = error.to_string();
            assert_eq!(text.split_once("; and ").map(|(_, more)| format!("; and {more}")), more, "{text}");
            assert_eq!((error.kind(), error.field()), (ErrorKind::InUse, Some("steps[0]")));
        }
    }
}
