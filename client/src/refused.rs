//! Why an operation was not admitted. Each answer names the group; only those with a [`Refused::retry_after`] are worth
//! a retry.
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

#[cfg(test)]
mod tests {
    use tidegate_core::units::Span;

    use super::*;

    #[test]
    fn a_refusal_says_all_that_the_core_does_with_and_without_a_borrow() {
        let pause = Span::millis(1_500);
        let (unit, limit) = (Unit::Requests, 7);
        let says = [
            (Refusal::Throttled { retry_after: pause }, "group g is throttled; retry in 1.5s", Some(pause)),
            (
                Refusal::QuotaUsedUp { unit, resets_in: pause },
                "group g has used up its quota of requests; more of it begins in 1.5s",
                Some(pause),
            ),
            (
                Refusal::Unavailable { retry_after: pause },
                "group g has no lease; retry in 1.5s, and check that the controller can be reached",
                Some(pause),
            ),
            (Refusal::UnknownGroup, "group g does not exist; create it or bind the user to another", None),
            (
                Refusal::NeverFits { max: Ru::whole(5) },
                "9 RU can never be admitted in group g, at most 5 RU; split the operation or raise the burst",
                None,
            ),
            (
                Refusal::TooManyWaiters { limit },
                "group g already has 7 operations waiting; shed load before asking again",
                Some(Span::secs(1)),
            ),
        ];
        let group = GroupName::new("g").unwrap();
        for (refusal, text, retry_after) in says {
            let borrowed = Refused::new(&group, Ru::whole(9), refusal);
            let owned = borrowed.clone().into_owned();
            assert_eq!([borrowed.to_string(), owned.to_string()], [text, text]);
            let retry_after = retry_after.map(duration);
            assert_eq!([borrowed.retry_after(), owned.retry_after()], [retry_after; 2], "{text}");
            assert_eq!([borrowed.group(), owned.group()], [&group; 2], "{text}");
        }
    }

    #[test]
    fn what_the_client_itself_refuses_keeps_its_figures_too() {
        let group = GroupName::new("g").unwrap();
        let invalid = Refused::InvalidCost { group: &group, cost: Ru(-1) }.into_owned();
        assert_eq!(invalid, Refused::InvalidCost { group: group.clone(), cost: Ru(-1) });
        let ended = Refused::ShutDown { group: &group }.into_owned();
        assert_eq!(
            [&invalid, &ended].map(|refused| (refused.group(), refused.retry_after())),
            [(&group, None); 2]
        );
        let texts = [
            "a cost of -0.000001 RU is outside 0 RU to 1000000000000 RU; check the estimate for group g",
            "the client is shutting down and admits nothing more in group g",
        ];
        assert_eq!([invalid, ended].map(|refused| refused.to_string()), texts);
    }
}
