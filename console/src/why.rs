//! Why operations of a group wait.

use std::fmt;

use tidegate_core::units::Rate;

use crate::present::{GroupNow, Present};

/// Percent of a limit from which on it is what holds operations up. Leases move between nodes all the time, so a limit
/// that is used up is never leased to the last RU; at 90, groups with room are shown as full.
const FULL_PERCENT: i64 = 95;

/// A reason, the first one that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The controller recovers: nodes get no more than they prove to hold.
    Recovering,
    /// The quota of this group is used up.
    Quota(String),
    /// Its nodes owe more than a second brings.
    Debt,
    /// This group warms up, and its rate of the moment is used.
    WarmingUp(String),
    /// The group uses its own rate.
    Rate,
    /// A group above uses its rate.
    Above(String),
    /// No node has a lease.
    NoLease,
    /// There is room, which the next renewals bring.
    Renewing,
}

impl Why {
    /// Why operations of this group wait; `None` when none do.
    pub fn of(present: &Present, group: &GroupNow, is_recovering: bool) -> Option<Self> {
        if !group.is_throttled() {
            return None;
        }
        if is_recovering {
            return Some(Self::Recovering);
        }
        if let Some(of) = present.way_up(group.name()).find(|group| group.has_spent_its_quota()) {
            return Some(Self::Quota(of.name().to_owned()));
        }
        if group.limit().is_some_and(|limit| group.debt.0 > limit.0) {
            return Some(Self::Debt);
        }
        if let Some(full) = present.way_up(group.name()).find(|group| is_full(group)) {
            let name = || full.name().to_owned();
            return Some(match full.warms_up_at() {
                Some(_) => Self::WarmingUp(name()),
                None if full.name() == group.name() => Self::Rate,
                None => Self::Above(name()),
            });
        }
        Some(if group.leases == 0 { Self::NoLease } else { Self::Renewing })
    }
}

fn is_full(group: &GroupNow) -> bool {
    let held = Rate(group.leased.0.max(group.used.0));
    let limit = group.warms_up_at().or_else(|| group.limit());
    limit.is_some_and(|limit| held >= limit.scale(FULL_PERCENT, 100))
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recovering => f.write_str("the controller recovers from an unclean stop"),
            Self::Quota(of) => write!(f, "the quota of {of} is used up"),
            Self::Debt => f.write_str("operations cost more than estimated, and the debt is paid first"),
            Self::WarmingUp(of) => write!(f, "{of} is warming up, and uses what it may so far"),
            Self::Rate => f.write_str("it uses its own rate"),
            Self::Above(of) => write!(f, "the rate of {of}, above it, is used"),
            Self::NoLease => f.write_str("no node has a lease"),
            Self::Renewing => f.write_str("the next renewal brings more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Ru;
    use tidegate_proto::v1;

    use super::*;
    use crate::present::tests::group;

    fn waits(group: GroupNow) -> GroupNow {
        GroupNow { waiting: 1, leases: 1, ..group }
    }

    fn why(groups: impl IntoIterator<Item = GroupNow>, of: &str) -> Option<Why> {
        let present = Present::of(1, groups);
        Why::of(&present, present.get(of).unwrap(), false)
    }

    #[test]
    fn the_reason_is_the_first_limit_on_the_way_up_that_is_used() {
        let top = || group("top", "", 100, 60);
        assert_eq!(why([top(), group("a", "top", 50, 49)], "a"), None, "nothing waits");
        assert_eq!(why([top(), waits(group("a", "top", 50, 49))], "a"), Some(Why::Rate));
        let above = Some(Why::Above("top".to_owned()));
        assert_eq!(why([top(), waits(group("a", "top", 80, 40))], "a"), above);
        assert_eq!(why([top(), waits(group("a", "top", 0, 40))], "a"), above, "no limit of its own");
        assert_eq!(why([top(), waits(group("a", "top", 80, 20))], "a"), Some(Why::Renewing));
        let none = GroupNow { leases: 0, ..waits(group("a", "top", 80, 20)) };
        assert_eq!(why([top(), none], "a"), Some(Why::NoLease));
    }

    #[test]
    fn a_group_that_warms_up_is_full_at_its_rate_of_the_moment() {
        let warm = |group: GroupNow, rate: &str| {
            let warmth = Some(Box::new(v1::Warmth { rate: rate.to_owned(), warm_ppm: 1 }));
            GroupNow { warmth, ..group }
        };
        let top = || group("top", "", 100, 20);
        let a = || waits(group("a", "top", 90, 20));
        let warms = |of: &str| Some(Why::WarmingUp(of.to_owned()));
        assert_eq!(why([top(), warm(a(), "21")], "a"), warms("a"));
        assert_eq!(why([warm(top(), "21"), a()], "a"), warms("top"));
        assert_eq!(why([top(), warm(a(), "30")], "a"), Some(Why::Renewing), "it has room");
        let full = || waits(group("a", "top", 90, 90));
        assert_eq!(why([top(), warm(full(), "90")], "a"), Some(Why::Rate), "it is warm");
    }

    #[test]
    fn quotas_debts_and_recoveries_come_before_rates() {
        let quota = |left: &str| {
            let (left, amount) = (left.to_owned(), "50".to_owned());
            Some(Box::new(v1::QuotaState { left, amount, ..v1::QuotaState::default() }))
        };
        let top = |left| GroupNow { quota: quota(left), ..group("top", "", 100, 60) };
        let full = || waits(group("a", "top", 50, 50));
        // Nodes leave the last of a quota: it is less than an operation costs.
        for left in ["0", "0.000001", "0.5"] {
            assert_eq!(why([top(left), full()], "a"), Some(Why::Quota("top".to_owned())), "{left}");
        }
        assert_eq!(why([top("0.500001"), full()], "a"), Some(Why::Rate));
        let owes = GroupNow { debt: Ru::whole(51), ..full() };
        assert_eq!(why([top("1"), owes], "a"), Some(Why::Debt));
        let present = Present::of(1, [full()]);
        assert_eq!(Why::of(&present, present.get("a").unwrap(), true), Some(Why::Recovering));
    }
}
