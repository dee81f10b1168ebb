//! Why an operation was not admitted. Each answer names the group; only `Throttled`, `QuotaUsedUp` and `Unavailable`
//! are worth a retry.
//!
//! An answer given at once borrows the name: counting its references would double the cost of a refusal.

use std::borrow::Borrow;
use std::time::Duration;

use tidegate_core::node::Refusal;
use tidegate_core::quota::Unit;
use tidegate_core::units::Ru;

use crate::clock::duration;
use crate::names::GroupName;

/// Why an operation was not admitted. `Refused<&GroupName>` becomes a `Refused` with `?` or [`Refused::into_owned`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused<G = GroupName> {
    /// The group has used its rate. An answer, not a fault.
    #[error("group {group} is throttled; retry in {retry_after:?}")]
    Throttled {
        /// The group.
        group: G,
        /// An attempt before this will be refused, too.
        retry_after: Duration,
    },
    /// The group has used its quota. An answer, not a fault.
    #[error("group {group} has used up its quota of {}; more of it begins in {resets_in:?}", unit.as_str())]
    QuotaUsedUp {
        /// The group.
        group: G,
        /// What the quota counts.
        unit: Unit,
        /// Time to the next window, or until something returns to one that rolls. Before that, nothing of this size is
        /// admitted; it may not be enough.
        resets_in: Duration,
    },
    /// No lease, and the controller did not give one.
    #[error(
        "group {group} has no lease; retry in {retry_after:?}, and check that the controller can be reached"
    )]
    Unavailable {
        /// The group.
        group: G,
        /// A reasonable pause.
        retry_after: Duration,
    },
    /// The controller knows no such group.
    #[error("group {group} does not exist; create it or bind the user to another")]
    UnknownGroup {
        /// The name that was asked for.
        group: G,
    },
    /// Costs more than the group can ever cover.
    #[error(
        "{cost} can never be admitted in group {group}, at most {max}; split the operation or raise the burst"
    )]
    NeverFits {
        /// The group.
        group: G,
        /// What was asked for.
        cost: Ru,
        /// What could be admitted.
        max: Ru,
    },
    /// The queue is full.
    #[error("group {group} already has {limit} operations waiting; shed load before asking again")]
    TooManyWaiters {
        /// The group.
        group: G,
        /// Length of the queue.
        limit: usize,
    },
    /// The cost is negative or above the largest amount.
    #[error("a cost of {cost} is outside 0 RU to {max}; check the estimate for group {group}", max = Ru::MAX)]
    InvalidCost {
        /// The group.
        group: G,
        /// What was asked for.
        cost: Ru,
    },
    /// The client is shutting down.
    #[error("the client is shutting down and admits nothing more in group {group}")]
    ShutDown {
        /// The group.
        group: G,
    },
}

impl<'a> Refused<&'a GroupName> {
    /// The core's answer for `cost` in `group`.
    pub(crate) fn new(group: &'a GroupName, cost: Ru, refusal: Refusal) -> Self {
        match refusal {
            Refusal::Throttled { retry_after } => {
                Self::Throttled { group, retry_after: duration(retry_after) }
            }
            Refusal::QuotaUsedUp { unit, resets_in } => {
                Self::QuotaUsedUp { group, unit, resets_in: duration(resets_in) }
            }
            Refusal::Unavailable { retry_after } => {
                Self::Unavailable { group, retry_after: duration(retry_after) }
            }
            Refusal::UnknownGroup => Self::UnknownGroup { group },
            Refusal::NeverFits { max } => Self::NeverFits { group, cost, max },
            Refusal::TooManyWaiters { limit } => Self::TooManyWaiters { group, limit },
        }
    }

    /// The same without a borrow of the group's handle.
    pub fn into_owned(self) -> Refused {
        let group = self.group().clone();
        match self {
            Self::Throttled { retry_after, .. } => Refused::Throttled { group, retry_after },
            Self::QuotaUsedUp { unit, resets_in, .. } => Refused::QuotaUsedUp { group, unit, resets_in },
            Self::Unavailable { retry_after, .. } => Refused::Unavailable { group, retry_after },
            Self::UnknownGroup { .. } => Refused::UnknownGroup { group },
            Self::NeverFits { cost, max, .. } => Refused::NeverFits { group, cost, max },
            Self::TooManyWaiters { limit, .. } => Refused::TooManyWaiters { group, limit },
            Self::InvalidCost { cost, .. } => Refused::InvalidCost { group, cost },
            Self::ShutDown { .. } => Refused::ShutDown { group },
        }
    }
}

impl From<Refused<&GroupName>> for Refused {
    fn from(refused: Refused<&GroupName>) -> Self {
        refused.into_owned()
    }
}

impl<G: Borrow<GroupName>> Refused<G> {
    /// When another attempt may succeed; `None` when it will not.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. } | Self::Unavailable { retry_after, .. } => Some(*retry_after),
            Self::QuotaUsedUp { resets_in, .. } => Some(*resets_in),
            Self::TooManyWaiters { .. } => Some(Duration::from_secs(1)),
            Self::UnknownGroup { .. }
            | Self::NeverFits { .. }
            | Self::InvalidCost { .. }
            | Self::ShutDown { .. } => None,
        }
    }

    /// The group.
    pub fn group(&self) -> &GroupName {
        match self {
            Self::Throttled { group, .. }
            | Self::QuotaUsedUp { group, .. }
            | Self::Unavailable { group, .. }
            | Self::UnknownGroup { group }
            | Self::NeverFits { group, .. }
            | Self::TooManyWaiters { group, .. }
            | Self::InvalidCost { group, .. }
            | Self::ShutDown { group } => group.borrow(),
        }
    }
}
