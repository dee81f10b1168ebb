//! What waits, group by group, for alarms.

use tidegate_core::group::GroupId;
use tidegate_core::quota::QuotaView;
use tidegate_core::units::{Rate, Ru, Time};
use tidegate_core::view::GroupView;
use tidegate_core::warmth::WarmthView;

use super::Leasing;

/// The nodes' words of what waits for a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Operations.
    pub(crate) waiting: u64,
    /// RU that they wait for.
    pub(crate) backlog: Ru,
    /// RU that nodes owe.
    pub(crate) debt: Ru,
    /// RU/s offered, whatever the limit.
    pub(crate) demand: Rate,
}

/// Reads what waits.
#[derive(Clone, Copy)]
pub(crate) struct Waits<'l>(pub(crate) &'l Leasing);

impl<'l> Waits<'l> {
    /// Groups that have, or lately had, leases.
    pub(crate) fn groups(self) -> impl Iterator<Item = GroupId> + 'l {
        self.0.active.iter().copied()
    }

    /// Groups with a quota.
    pub(crate) fn with_quota(self) -> impl Iterator<Item = GroupId> + 'l {
        self.0.quotas.groups()
    }

    /// What waits for a group.
    pub(crate) fn of(self, id: GroupId) -> Waiting {
        self.0.engine.leases(id).fold(Waiting::default(), |sum, lease| Waiting {
            waiting: sum.waiting.saturating_add(lease.waiting),
            backlog: sum.backlog + lease.backlog,
            debt: sum.debt + lease.debt,
            demand: sum.demand + lease.demand,
        })
    }

    /// A group in the engine.
    pub(crate) fn view(self, id: GroupId) -> Option<GroupView> {
        self.0.engine.group_view(id)
    }

    /// The quota of a group in the present window.
    pub(crate) fn quota(self, id: GroupId, now: Time) -> Option<QuotaView> {
        self.0.engine.quota_view(id, now)
    }

    /// How warm a group is.
    pub(crate) fn warmth(self, id: GroupId, now: Time) -> Option<WarmthView> {
        self.0.engine.warmth(id, now)
    }
}
