//! The definition of a resource group, as the core enforces it.
//!
//! A group's `rate` is its guarantee and, unless it may burst, its cap. `limit()` and `depth()` are the rate and
//! the bucket depth that are enforced for the group and everything below it.

use crate::policy::setting::SettingError;
use crate::policy::warm_up::WarmUp;
use crate::quota::Unit;
use crate::units::{Rate, Ru, Span};

/// Numeric identity of a group, assigned by the controller and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The server itself: the root of the tree, whose limit is the server capacity.
    pub const ROOT: Self = Self(0);
    /// The group of all who are bound to no other.
    pub const DEFAULT: Self = Self(1);
}

/// Numeric identity of one client incarnation, assigned by the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Whether a group may use more than its own rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Burstable {
    /// Capped at its own rate.
    #[default]
    Off,
    /// May borrow what its ancestors have left, up to this total rate.
    Moderated(Rate),
    /// May borrow all that its ancestors have left.
    Unlimited,
}

/// Rank in borrowing, when groups compete for what the guarantees leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Last.
    Low,
    /// Between.
    #[default]
    Medium,
    /// First.
    High,
}

impl Priority {
    /// Rank as a number; the first is served first.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::High => 0,
            Self::Medium => 1,
            Self::Low => 2,
        }
    }
}

/// How the operations of a group follow each other within its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// A token bucket: what was not used may be used at once, up to the burst.
    #[default]
    TokenBucket,
    /// A leaky bucket that shapes: an operation starts when the ones before it have been paid for at the rate. Nothing
    /// is saved up, and the burst is the cost of the largest operation.
    Paced,
    /// The same at a rate that is a `factor` of the limit when cold and reaches it within a `period` of full use.
    WarmUp {
        /// How long full use takes from cold to warm, and idleness back.
        period: Span,
        /// How many times lower the rate is when cold.
        factor: u32,
    },
}

impl Policy {
    /// Whether operations follow each other at the rate.
    pub fn is_paced(self) -> bool {
        self != Self::TokenBucket
    }
}

/// What a node may admit for a group while it has no lease: cut off, or while the controller recovers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// Nothing: waiters fail with `Unavailable`.
    #[default]
    Stop,
    /// This rate on every node that is cut off.
    Rate(Rate),
    /// Everything.
    Unlimited,
    /// This rate, the node's part of the group's fallback, for this long after the last answer of the controller.
    Part(Rate, Span),
}

impl Fallback {
    /// The rate, where there is one.
    pub fn rate(self) -> Option<Rate> {
        match self {
            Self::Stop | Self::Unlimited => None,
            Self::Rate(rate) | Self::Part(rate, _) => Some(rate),
        }
    }

    /// Whether the fallback admits more than a lease on this rate.
    pub(crate) fn outweighs(self, leased: Rate) -> bool {
        self == Self::Unlimited || self.rate().is_some_and(|rate| rate > leased)
    }
}

/// The enforced part of a group's definition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupSpec {
    /// The group above; `None` is the root.
    pub parent: Option<GroupId>,
    /// Guarantee and, with `Burstable::Off`, cap. `None` is unlimited.
    pub rate: Option<Rate>,
    /// Bucket depth. `None` is one second of the limit.
    pub burst: Option<Ru>,
    /// Whether the group may use more than `rate`.
    pub burstable: Burstable,
    /// Rank when borrowing.
    pub priority: Priority,
    /// Share when borrowing within one priority, 1 to [`GroupSpec::MAX_WEIGHT`].
    pub weight: u32,
    /// How long a lease lasts.
    pub ttl: Span,
    /// How often a client renews.
    pub renew_every: Span,
    /// What a node may admit without a lease.
    pub fallback: Fallback,
    /// Rate that all nodes together may admit without leases. The controller assigns each a part, at most `fallback` if
    /// that is a rate.
    pub fallback_total: Option<Rate>,
    /// Debt within which a node is expected to stay when operations cost more than estimated. It is reported, not
    /// enforced.
    pub max_debt: Ru,
    /// The limits are evaluated and not enforced, here and below: operations over them are counted and admitted.
    pub shadow: bool,
    /// How operations follow each other, here and below.
    pub policy: Policy,
    /// What all nodes together may use within each window of the calendar, here and below. The caller opens windows.
    pub quota: Option<Ru>,
    /// What the quota counts.
    pub quota_unit: Unit,
}

impl GroupSpec {
    /// Largest weight.
    pub const MAX_WEIGHT: u32 = 10_000;
    /// Shortest and longest lease.
    pub const TTL_RANGE: (Span, Span) = (Span::millis(500), Span::secs(60));

    /// A top-level group capped at `rate`, everything else at its default.
    pub fn capped(rate: Rate) -> Self {
        Self { rate: Some(rate), ..Self::unlimited() }
    }

    /// A top-level group that is metered and not throttled.
    pub fn unlimited() -> Self {
        Self {
            parent: None,
            rate: None,
            burst: None,
            burstable: Burstable::Off,
            priority: Priority::Medium,
            weight: 1,
            ttl: Span::secs(5),
            renew_every: Span::secs(1),
            fallback: Fallback::Stop,
            fallback_total: None,
            max_debt: Ru::whole(1_000),
            shadow: false,
            policy: Policy::TokenBucket,
            quota: None,
            quota_unit: Unit::Ru,
        }
    }

    /// The rate that the group and everything below it never exceed; `None`: the group has no limit of its own. A quota
    /// may be used up within a second, and not faster: so its nodes have leases, by which they count what they use. Requests
    /// may cost any RU.
    pub fn limit(&self) -> Option<Rate> {
        let by_rate = match (self.rate, self.burstable) {
            (None, _) | (_, Burstable::Unlimited) => None,
            (Some(rate), Burstable::Off) => Some(rate),
            (Some(rate), Burstable::Moderated(cap)) => Some(rate.max(cap)),
        };
        by_rate.or_else(|| {
            self.quota.map(|quota| match self.quota_unit {
                Unit::Ru => Rate(quota.0).min(Rate::MAX),
                Unit::Requests => Rate::MAX,
            })
        })
    }

    /// When a client renews if nothing happens: often enough that one lost message does not cost the lease.
    pub fn renew_after(&self) -> Span {
        self.renew_every.min(Span(self.ttl.0 / 3))
    }

    /// Depth of the group's bucket; `None` when the group has no limit of its own.
    pub fn depth(&self) -> Option<Ru> {
        let limit = self.limit()?;
        Some(self.burst.unwrap_or_else(|| limit.over(Span::secs(1)).max(Ru(1))))
    }

    /// The curve of a rate that warms up to the limit; `None` with another policy, or without a limit.
    ///
    /// # Errors
    /// [`SettingError`] names what of it cannot be.
    pub fn curve(&self) -> Result<Option<WarmUp>, SettingError> {
        match (self.policy, self.limit()) {
            (Policy::WarmUp { period, factor }, Some(limit)) => WarmUp::new(limit, period, factor).map(Some),
            _ => Ok(None),
        }
    }

    /// The largest operation that the group can ever cover; `None` when any.
    pub(crate) fn largest(&self) -> Option<Ru> {
        let quota = self.quota.filter(|_| self.quota_unit == Unit::Ru);
        self.depth().into_iter().chain(quota).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lost_renewal_does_not_cost_the_lease() {
        let spec = |ttl, renew_every| GroupSpec { ttl, renew_every, ..GroupSpec::unlimited() };
        let (shortest, longest) = GroupSpec::TTL_RANGE;
        for ttl in [shortest, Span::secs(1), Span::secs(5), longest] {
            for renew_every in [Span::millis(100), Span::secs(1), Span::secs(60)] {
                let renew_after = spec(ttl, renew_every).renew_after();
                assert!(renew_after + renew_after < ttl, "{renew_after} of {ttl}");
                assert!(
                    renew_after == renew_every || renew_after + renew_after + renew_after >= ttl - Span(2)
                );
            }
        }
    }
}
