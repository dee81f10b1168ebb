//! What groups do at this moment, as a tree: a group's figures include those of the groups below it where it says so.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru};
use tidegate_core::waited::Summary;
use tidegate_proto::v1;

use crate::quantity::micro;

/// A group now. What few groups have is boxed: all of them are made once a second for those who look.
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
    pub quota: Option<Box<v1::QuotaState>>,
    /// How warm it is, if its rate warms up.
    pub warmth: Option<Box<v1::Warmth>>,
    /// What was charged since it was created.
    pub total: Charged,
    /// Operations refused or timed out since then.
    pub throttled: u128,
}

/// What was charged to a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// Operations settled.
    pub operations: u128,
    /// Micro-RU.
    pub micro_ru: u128,
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
            backlog: Ru::ZERO,
            debt: Ru::ZERO,
            waiting: 0,
            waits: None,
            leases: 0,
            quota: None,
            warmth: None,
            total: Charged::default(),
            throttled: 0,
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

    /// The RU/s that it may use now while it warms up; `None` when it is warm, or does not warm up at all.
    pub fn warms_up_at(&self) -> Option<Rate> {
        let now = micro(&self.warmth.as_ref()?.rate)?;
        let rate = Rate(i64::try_from(now).unwrap_or(i64::MAX));
        self.limit().is_none_or(|limit| rate < limit).then_some(rate)
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
            let unit = if quota.unit == Unit::Requests.as_str() { Unit::Requests } else { Unit::Ru };
            Some(unit.is_spent(amount - left, amount))
        };
        self.quota.as_deref().and_then(taken).unwrap_or_default()
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

/// The definitions of groups as a tree, which is the same at all moments between two changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    groups: Vec<Arc<v1::Group>>,
    /// The place of a name in `groups`; so are all numbers below.
    places: HashMap<String, usize>,
    above: Vec<Option<usize>>,
    below: Vec<Vec<usize>>,
    /// All that hang from the top, as a walk, each with its depth.
    walk: Vec<(usize, usize)>,
}

impl Tree {
    /// The tree of these definitions.
    pub fn of(groups: impl IntoIterator<Item = Arc<v1::Group>>) -> Self {
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|one, other| one.name.cmp(&other.name));
        let places: HashMap<String, usize> =
            groups.iter().enumerate().map(|(at, group)| (group.name.clone(), at)).collect();
        // A tenant does not see each group above its own.
        let above: Vec<_> = groups.iter().map(|group| places.get(&group.parent).copied()).collect();
        let (mut below, mut top) = (vec![Vec::new(); groups.len()], Vec::new());
        for (at, above) in above.iter().enumerate() {
            above.and_then(|above| below.get_mut(above)).unwrap_or(&mut top).push(at);
        }
        // Definitions never form a ring; those of an answer that says so hang from nowhere, and are not walked.
        let mut walk = Vec::with_capacity(groups.len());
        let mut open: Vec<(usize, usize)> = top.iter().rev().map(|at| (0, *at)).collect();
        while let Some((depth, at)) = open.pop() {
            walk.push((depth, at));
            let children = below.get(at).into_iter().flatten();
            open.extend(children.rev().map(|child| (depth.saturating_add(1), *child)));
        }
        Self { groups, places, above, below, walk }
    }
}

/// All groups of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// When it was, in Unix milliseconds.
    pub unix_ms: u64,
    /// Figures of groups of later names are missing: more are in use than one answer holds.
    pub is_partial: bool,
    tree: Arc<Tree>,
    /// In the order of the tree's.
    groups: Vec<GroupNow>,
}

impl Present {
    /// These groups, each with what it does by itself.
    pub fn of(unix_ms: u64, groups: impl IntoIterator<Item = GroupNow>) -> Self {
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|one, other| one.name().cmp(other.name()));
        let tree = Arc::new(Tree::of(groups.iter().map(|group| Arc::clone(&group.group))));
        Self { unix_ms, is_partial: false, tree, groups }.summed()
    }

    /// The groups of a tree, of which no more is known yet.
    pub fn idle(unix_ms: u64, tree: Arc<Tree>) -> Self {
        let groups = tree.groups.iter().map(|group| GroupNow::idle(Arc::clone(group))).collect();
        Self { unix_ms, is_partial: false, tree, groups }
    }

    /// The group of this name, to say what it does by itself; [`Self::summed`] follows.
    pub fn group_mut(&mut self, name: &str) -> Option<&mut GroupNow> {
        self.groups.get_mut(*self.tree.places.get(name)?)
    }

    /// With what is below each group added to it.
    pub fn summed(mut self) -> Self {
        // RU/s of what is below a group: used, leased and asked for.
        let mut below = vec![[Rate::ZERO; 3]; self.groups.len()];
        for &(_, at) in self.tree.walk.iter().rev() {
            let (Some(group), Some(&[used, leased, demand])) = (self.groups.get_mut(at), below.get(at))
            else {
                continue;
            };
            group.used = Rate(group.own.0.saturating_add(used.0));
            // The controller's figures of a group with leases include those of the groups below it already.
            (group.leased, group.demand) = (group.leased.max(leased), group.demand.max(demand));
            let sums = self.tree.above.get(at).copied().flatten().and_then(|above| below.get_mut(above));
            let rates = [group.used, group.leased, group.demand];
            sums.into_iter()
                .flatten()
                .zip(rates)
                .for_each(|(sum, rate)| *sum = Rate(sum.0.saturating_add(rate.0)));
        }
        self
    }

    /// The group of this name.
    pub fn get(&self, name: &str) -> Option<&GroupNow> {
        self.groups.get(*self.tree.places.get(name)?)
    }

    /// All groups, by name.
    pub fn all(&self) -> impl Iterator<Item = &GroupNow> {
        self.groups.iter()
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The groups right below one, by name.
    pub fn children(&self, name: &str) -> impl Iterator<Item = &GroupNow> {
        let below = self.tree.places.get(name).and_then(|at| self.tree.below.get(*at));
        below.into_iter().flatten().filter_map(|at| self.groups.get(*at))
    }

    /// A group and those above it, from itself up.
    pub fn way_up(&self, name: &str) -> impl Iterator<Item = &GroupNow> {
        let above = |at: &usize| self.tree.above.get(*at).copied().flatten();
        let up = std::iter::successors(self.tree.places.get(name).copied(), above).take(self.groups.len());
        up.filter_map(|at| self.groups.get(at))
    }

    /// All groups as a walk through the tree, each with its depth.
    pub fn tree(&self) -> Vec<(usize, &GroupNow)> {
        self.tree.walk.iter().filter_map(|(depth, at)| Some((*depth, self.groups.get(*at)?))).collect()
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
        let present = Present::of(7, groups);
        let used = |name: &str| present.get(name).unwrap().used;
        assert_eq!((used("a"), used("b"), used("d")), (Rate::whole(6), Rate::whole(5), Rate::whole(4)));
        assert_eq!(present.get("a").unwrap().leased, Rate::whole(3), "the most that is known: what c has");
        let tree: Vec<_> = present.tree().into_iter().map(|(depth, group)| (depth, group.name())).collect();
        assert_eq!(tree, [(0, "a"), (1, "b"), (2, "c"), (0, "d")]);
        let up: Vec<_> = present.way_up("c").map(GroupNow::name).collect();
        assert_eq!(up, ["c", "b", "a"]);
        let below = |name| present.children(name).map(GroupNow::name).collect::<Vec<_>>();
        assert_eq!((below("a"), below("c"), below("none")), (vec!["b"], vec![], vec![]));
        // What nodes hold of a group has what they hold below it in it already, and what they ask for, too.
        let asks = |demand, group| GroupNow { demand: Rate::whole(demand), ..group };
        let groups =
            [asks(9, group("a", "", 0, 8)), asks(2, group("b", "a", 0, 2)), asks(4, group("c", "a", 0, 3))];
        let present = Present::of(7, groups);
        let a = present.get("a").unwrap();
        assert_eq!((a.own, a.used), (Rate::whole(8), Rate::whole(13)));
        assert_eq!((a.leased, a.demand), (Rate::whole(8), Rate::whole(9)));
    }

    #[test]
    fn a_quota_of_requests_lasts_until_the_last_one_and_one_of_ru_as_long_as_alarms_say() {
        let spent = |amount: &str, left: &str, unit: &str| {
            let [amount, left, unit] = [amount, left, unit].map(str::to_owned);
            let quota = v1::QuotaState { amount, left, unit, ..v1::QuotaState::default() };
            GroupNow { quota: Some(Box::new(quota)), ..group("a", "", 10, 1) }.has_spent_its_quota()
        };
        for (amount, left, unit, is_spent) in [
            ("1000", "5", "requests", false),
            ("1000", "1", "requests", false),
            ("1000", "0.999999", "requests", true),
            ("1000", "0", "requests", true),
            ("1000", "-3", "requests", true),
            ("1000", "10.000001", "RU", false),
            ("1000", "10", "RU", true),
            ("1000", "10", "", true),
            ("1000", "1000", "", false),
            // What is not said is not spent.
            ("1000", "", "RU", false),
            ("", "0", "RU", false),
        ] {
            assert_eq!(spent(amount, left, unit), is_spent, "{left} of {amount} {unit}");
        }
        assert!(!group("a", "", 10, 1).has_spent_its_quota());
    }

    #[test]
    fn groups_in_a_ring_hold_nobody_up() {
        let present = Present::of(7, [group("a", "b", 0, 1), group("b", "a", 0, 1), group("c", "c", 0, 1)]);
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
        assert_eq!(of("unlimited", "150"), None);
        assert_eq!(limit(&v1::Group { ru_per_sec: "unlimited".to_owned(), ..v1::Group::default() }), None);
    }
}
