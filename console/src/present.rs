//! What groups do at this moment, as a tree: a group's figures include those of the groups below it where it says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::quota::{SPENT_PERCENT, reaches};
use tidegate_core::units::{Rate, Ru};
use tidegate_core::waited::Summary;
use tidegate_proto::v1;

use crate::quantity::micro;

/// A group now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNow {
    /// Its definition.
    pub group: Arc<v1::Group>,
    /// RU/s charged to it over the last seconds, without the groups below.
    pub own: Rate,
    /// The same, with all groups below.
    pub used: Rate,
    /// RU/s that nodes may be using, with all groups below.
    pub leased: Rate,
    /// RU/s that its operations ask for, with all groups below.
    pub demand: Rate,
    /// Tokens that no node holds.
    pub pool: Ru,
    /// RU that operations wait for.
    pub backlog: Ru,
    /// RU that its nodes owe.
    pub debt: Ru,
    /// Operations that wait.
    pub waiting: u64,
    /// Waits that ended within the last minute, without those of the groups below.
    pub waits: Option<Summary>,
    /// Its leases.
    pub leases: usize,
    /// Its quota in the present window.
    pub quota: Option<v1::QuotaState>,
    /// Operations settled, and refused or timed out, since it was created.
    pub operations: u128,
    /// See `operations`.
    pub throttled: u128,
    /// RU charged since it was created.
    pub total: u128,
}

impl GroupNow {
    /// A group of which no more is known than its definition.
    pub fn idle(group: Arc<v1::Group>) -> Self {
        Self {
            group,
            own: Rate::ZERO,
            used: Rate::ZERO,
            leased: Rate::ZERO,
            demand: Rate::ZERO,
            pool: Ru::ZERO,
            backlog: Ru::ZERO,
            debt: Ru::ZERO,
            waiting: 0,
            waits: None,
            leases: 0,
            quota: None,
            operations: 0,
            throttled: 0,
            total: 0,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.group.name
    }

    /// The most RU/s that it and all below it may use by its own definition; `None` is no limit of its own.
    pub fn limit(&self) -> Option<Rate> {
        limit(&self.group)
    }

    /// Whether operations wait.
    pub fn is_throttled(&self) -> bool {
        self.waiting > 0 || self.backlog.is_positive()
    }

    /// The wait that 99 of 100 of its operations that waited in the last minute did not exceed, in microseconds.
    pub fn p99_wait_us(&self) -> Option<u64> {
        self.waits.map(|waits| waits.p99_us)
    }

    /// Whether its quota is spent, as alarms see it.
    pub fn has_spent_its_quota(&self) -> bool {
        let ru = |text: &str| Some(Ru(i64::try_from(micro(text)?).ok()?));
        let taken = |quota: &v1::QuotaState| {
            let (amount, left) = (ru(&quota.amount)?, ru(&quota.left)?);
            Some(reaches(amount - left, amount, SPENT_PERCENT))
        };
        self.quota.as_ref().and_then(taken).unwrap_or_default()
    }
}

/// The most RU/s of a definition; `None` is no limit.
pub fn limit(group: &v1::Group) -> Option<Rate> {
    let rate = |text: &str| micro(text).map(|micro| Rate(i64::try_from(micro).unwrap_or(i64::MAX)));
    let base = rate(&group.ru_per_sec)?;
    match group.burstable.as_str() {
        "unlimited" => None,
        // Left open, it is twice the rate.
        "moderated" => Some(rate(&group.burst_ru_per_sec).unwrap_or_else(|| base.scale(2, 1))),
        _ => Some(base),
    }
}

/// All groups of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// When it was, in Unix milliseconds.
    pub unix_ms: u64,
    /// By name.
    groups: BTreeMap<String, GroupNow>,
    /// The names of groups by the name of the group above; the empty name is the top.
    below: BTreeMap<String, Vec<String>>,
    /// Not all leases were looked at: there are more than one answer holds.
    pub is_partial: bool,
}

impl Present {
    /// These groups as a tree.
    pub fn of(unix_ms: u64, groups: impl IntoIterator<Item = GroupNow>, is_partial: bool) -> Self {
        let groups: BTreeMap<String, GroupNow> =
            groups.into_iter().map(|group| (group.name().to_owned(), group)).collect();
        let mut below: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for group in groups.values() {
            // A tenant does not see each group above its own.
            let above = &group.group.parent;
            let above = if groups.contains_key(above) { above.clone() } else { String::new() };
            below.entry(above).or_default().push(group.name().to_owned());
        }
        let mut present = Self { unix_ms, groups, below, is_partial };
        let top = present.children("").to_vec();
        top.iter().for_each(|name| {
            present.sum_up(name, 0);
        });
        present
    }

    /// Adds what is below a group to it; returns its RU/s: used, leased and asked for.
    fn sum_up(&mut self, name: &str, depth: usize) -> [Rate; 3] {
        // Definitions never form a ring; an answer that says so must not hold anyone up.
        let below = if depth > self.groups.len() { Vec::new() } else { self.children(name).to_vec() };
        let mut sums = [Rate::ZERO; 3];
        for child in below {
            let of_child = self.sum_up(&child, depth.saturating_add(1));
            sums.iter_mut().zip(of_child).for_each(|(sum, rate)| *sum = Rate(sum.0.saturating_add(rate.0)));
        }
        let Some(group) = self.groups.get_mut(name) else { return sums };
        let [used, leased, demand] = sums;
        group.used = Rate(group.own.0.saturating_add(used.0));
        // The controller's figures of a group with leases include those of the groups below it already.
        (group.leased, group.demand) = (group.leased.max(leased), group.demand.max(demand));
        [group.used, group.leased, group.demand]
    }

    /// The group of this name.
    pub fn get(&self, name: &str) -> Option<&GroupNow> {
        self.groups.get(name)
    }

    /// All groups, by name.
    pub fn all(&self) -> impl Iterator<Item = &GroupNow> {
        self.groups.values()
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The names of the groups right below one; of the top without a name.
    pub fn children(&self, name: &str) -> &[String] {
        self.below.get(name).map_or(&[], Vec::as_slice)
    }

    /// A group and those above it, from itself up.
    pub fn way_up<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a GroupNow> {
        let above = |group: &&'a GroupNow| self.groups.get(&group.group.parent);
        std::iter::successors(self.groups.get(name), above).take(self.groups.len())
    }

    /// All groups as a walk through the tree, each with its depth.
    pub fn tree(&self) -> Vec<(usize, &GroupNow)> {
        let mut walk = Vec::with_capacity(self.groups.len());
        let mut open: Vec<(usize, &String)> = self.children("").iter().rev().map(|name| (0, name)).collect();
        while let Some((depth, name)) = open.pop() {
            let Some(group) = self.groups.get(name) else { continue };
            walk.push((depth, group));
            open.extend(self.children(name).iter().rev().map(|child| (depth.saturating_add(1), child)));
        }
        walk
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A group under another with a limit and what it uses, in whole RU/s; a limit of 0 is none.
    pub(crate) fn group(name: &str, parent: &str, limit: i64, own: i64) -> GroupNow {
        let ru_per_sec = if limit == 0 { "unlimited".to_owned() } else { limit.to_string() };
        let group = v1::Group {
            name: name.to_owned(),
            parent: parent.to_owned(),
            ru_per_sec,
            ..v1::Group::default()
        };
        GroupNow { own: Rate::whole(own), leased: Rate::whole(own), ..GroupNow::idle(Arc::new(group)) }
    }

    #[test]
    fn a_group_has_what_is_below_it_and_a_tree_its_order() {
        let groups =
            [group("c", "b", 0, 3), group("a", "", 9, 1), group("b", "a", 0, 2), group("d", "hidden", 0, 4)];
        let present = Present::of(7, groups, false);
        let used = |name: &str| present.get(name).unwrap().used;
        assert_eq!((used("a"), used("b"), used("d")), (Rate::whole(6), Rate::whole(5), Rate::whole(4)));
        assert_eq!(present.get("a").unwrap().leased, Rate::whole(3), "the most that is known: what c has");
        let tree: Vec<_> = present.tree().into_iter().map(|(depth, group)| (depth, group.name())).collect();
        assert_eq!(tree, [(0, "a"), (1, "b"), (2, "c"), (0, "d")]);
        let up: Vec<_> = present.way_up("c").map(GroupNow::name).collect();
        assert_eq!(up, ["c", "b", "a"]);
    }

    #[test]
    fn groups_in_a_ring_hold_nobody_up() {
        let present =
            Present::of(7, [group("a", "b", 0, 1), group("b", "a", 0, 1), group("c", "c", 0, 1)], false);
        assert!(present.tree().is_empty());
        assert_eq!(present.way_up("a").count(), 3);
    }

    #[test]
    fn a_limit_is_the_most_that_a_definition_allows() {
        let of = |burstable: &str, burst: &str| {
            let text = |text: &str| text.to_owned();
            limit(&v1::Group {
                ru_per_sec: text("100"),
                burstable: text(burstable),
                burst_ru_per_sec: text(burst),
                ..v1::Group::default()
            })
        };
        assert_eq!(of("off", "").unwrap(), Rate::whole(100));
        assert_eq!(of("moderated", "150").unwrap(), Rate::whole(150));
        assert_eq!(of("moderated", "default").unwrap(), Rate::whole(200));
        assert_eq!(of("unlimited", ""), None);
        assert_eq!(limit(&v1::Group { ru_per_sec: "unlimited".to_owned(), ..v1::Group::default() }), None);
    }
}
