//! The tree of groups: names to ids, parents to children, and the rules that hold between groups.
//!
//! Pure: checks return whether a change is allowed, and warnings; `put` and `remove` carry out what was checked. Ids
//! are assigned once and never reused.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::MAX_DEPTH;
use tidegate_core::group::{Fallback, GroupId};
use tidegate_core::units::Rate;
use tidegate_proto::NOT_GIVEN;

use crate::definitions::definition::Definition;
use crate::definitions::demotion::{self, Demoting};
use crate::definitions::limited::Limited;
use crate::definitions::quota_rules;
use crate::error::AdminError;
use crate::limits::MAX_GROUPS;
use crate::name::{GroupName, NameError};

/// All groups.
#[derive(Debug, Default, PartialEq)]
pub struct Catalog {
    /// Boxed, because a map keeps room for almost as many entries as it holds.
    entries: BTreeMap<GroupId, Box<Entry>>,
    ids: BTreeMap<GroupName, GroupId>,
    children: BTreeMap<GroupId, BTreeSet<GroupId>>,
    /// Sum of the guarantees below each group, in micro-RU/s; `None` is the top. Wide enough never to saturate.
    guaranteed: BTreeMap<Option<GroupId>, i128>,
    limited: Limited,
    /// The index of groups that demote.
    pub(crate) demoting: Demoting,
    next_id: u32,
    capacity: Option<Rate>,
}

/// What groups are promised together.
#[derive(Clone, Copy)]
pub struct Guarantees<'c>(pub &'c Catalog);

impl<'c> Guarantees<'c> {
    /// Groups, or the top, with guarantees right below.
    pub fn parents(self) -> impl Iterator<Item = Option<GroupId>> + 'c {
        self.0.guaranteed.keys().copied()
    }

    /// The sum of the guarantees below one group, or of the top, and its limit, if the sum is more.
    pub fn oversubscription(self, parent: Option<GroupId>) -> Option<(Rate, Rate)> {
        let limit = parent.map_or(self.0.capacity, |parent| self.0.effective_limit(parent))?;
        let sum = *self.0.guaranteed.get(&parent)?;
        (sum > i128::from(limit.0)).then(|| (Rate(i64::try_from(sum).unwrap_or(i64::MAX)), limit))
    }
}

#[derive(Debug, PartialEq)]
struct Entry {
    definition: Definition,
    parent: Option<GroupId>,
}

impl Catalog {
    /// An empty catalog of a server with this capacity; its first new group gets `next_id` or a later id.
    pub fn new(capacity: Option<Rate>, next_id: u32) -> Self {
        Self { capacity, next_id: next_id.max(GroupId::DEFAULT.0 + 1), ..Self::default() }
    }

    /// Builds a catalog from a store's definitions, in any order. The error names what is wrong with them. Each map is
    /// built at once: insertion one by one in order would leave it little more than half full.
    pub fn load(
        capacity: Option<Rate>,
        next_id: u32,
        definitions: Vec<(GroupId, Definition)>,
    ) -> Result<Self, String> {
        let mut catalog = Self::new(capacity, next_id);
        let count = definitions.len();
        catalog.ids = definitions.iter().map(|(id, definition)| (definition.name.clone(), *id)).collect();
        let twice = |(id, definition): &&(GroupId, Definition)| catalog.id(&definition.name) != Some(*id);
        if let Some((_, definition)) = definitions.iter().find(twice) {
            return Err(format!("group {} is there twice", definition.name));
        }
        let entries = definitions.into_iter().map(|(id, definition)| {
            let parent = definition.parent.as_ref().map(|name| {
                catalog.id(name).ok_or_else(|| format!("the parent {name} of {} is missing", definition.name))
            });
            if let Some(target) = definition.switch_group().filter(|target| catalog.id(target).is_none()) {
                return Err(format!("the switch_group {target} of {} is missing", definition.name));
            }
            if let Some(target) = definition.demote_to.as_ref().filter(|target| catalog.id(target).is_none())
            {
                return Err(format!("the demote_to {target} of {} is missing", definition.name));
            }
            Ok((id, Box::new(Entry { parent: parent.transpose()?, definition })))
        });
        catalog.entries = entries.collect::<Result<_, String>>()?;
        if catalog.entries.len() != count {
            return Err("a group has the id of another".to_owned());
        }
        for (id, entry) in &catalog.entries {
            catalog.limited.insert(*id, &entry.definition);
            catalog.demoting.insert(*id, &entry.definition);
        }
        let rows: Vec<_> =
            catalog.entries.iter().map(|(id, entry)| (*id, entry.parent, entry.definition.rate)).collect();
        for (id, parent, rate) in rows {
            catalog.next_id = catalog.next_id.max(id.0.saturating_add(1));
            catalog.guarantee(parent, rate, 1);
            if let Some(parent) = parent {
                catalog.children.entry(parent).or_default().insert(id);
            }
        }
        Ok(catalog)
    }

    /// Makes it that of a server with this capacity, whose next new group gets `next_id`, or the id behind the last: ids
    /// of groups that were dropped before anyone saw them are taken back.
    pub(crate) fn begin(&mut self, capacity: Option<Rate>, next_id: u32) {
        let last = self.entries.last_key_value().map_or(GroupId::DEFAULT.0, |(id, _)| id.0);
        self.next_id = next_id.max(last.max(GroupId::DEFAULT.0).saturating_add(1));
        self.capacity = capacity;
    }

    /// Number of groups.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// RU/s of the whole server, if limited.
    pub fn capacity(&self) -> Option<Rate> {
        self.capacity
    }

    /// The id of a name.
    pub fn id(&self, name: &GroupName) -> Option<GroupId> {
        self.ids.get(name).copied()
    }

    /// The id of a name as written: first as it stands, so that the usual spelling costs no copy.
    pub fn id_of(&self, text: &str) -> Result<Option<GroupId>, NameError> {
        match self.ids.get(text) {
            Some(id) => Ok(Some(*id)),
            None => GroupName::parse(text).map(|name| self.id(&name)),
        }
    }

    /// The id of a name, or the error that it is unknown.
    pub fn require(&self, name: &GroupName) -> Result<GroupId, AdminError> {
        self.id(name).ok_or_else(|| AdminError::NoGroup { name: name.clone() })
    }

    /// The definition of a group.
    pub fn get(&self, id: GroupId) -> Option<&Definition> {
        self.entries.get(&id).map(|entry| &entry.definition)
    }

    /// The name of a group.
    pub fn name(&self, id: GroupId) -> Option<&GroupName> {
        self.get(id).map(|definition| &definition.name)
    }

    /// The group above.
    pub fn parent(&self, id: GroupId) -> Option<GroupId> {
        self.entries.get(&id).and_then(|entry| entry.parent)
    }

    /// The groups directly below, in order of their ids.
    pub fn children(&self, id: GroupId) -> impl Iterator<Item = GroupId> {
        self.children.get(&id).into_iter().flatten().copied()
    }

    /// Groups by name, after `after`.
    pub fn page(&self, after: Option<&GroupName>) -> impl Iterator<Item = &Definition> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.ids.range::<GroupName, _>((from, Unbounded)).filter_map(|(_, id)| self.get(*id))
    }

    /// Ids and definitions, in order of the ids.
    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Definition)> {
        self.entries.iter().map(|(id, entry)| (*id, &entry.definition))
    }

    /// The index of groups with a rule against runaways, and of the groups they switch to.
    pub fn limited(&self) -> &Limited {
        &self.limited
    }

    /// The id that the next new group would get, if there is room for one.
    pub fn next_id(&self) -> Result<GroupId, AdminError> {
        if self.count() >= MAX_GROUPS || self.next_id == u32::MAX {
            return Err(AdminError::Full { what: "groups", limit: MAX_GROUPS });
        }
        Ok(GroupId(self.next_id))
    }

    /// Checks `definition` for group `id`, which may be new; returns the parent's id if it has one.
    pub fn check(&self, id: GroupId, definition: &Definition) -> Result<Option<GroupId>, AdminError> {
        if let Some(target) = definition.switch_group() {
            self.check_switch("query_limit.switch_group", &definition.name, target)?;
        }
        let parent = self.check_place(id, definition)?;
        demotion::check(self, id, definition, self.get(id))?;
        Ok(parent)
    }

    /// Checks the place of `definition` as group `id`; returns the parent's id if it has one.
    pub fn check_place(&self, id: GroupId, definition: &Definition) -> Result<Option<GroupId>, AdminError> {
        if definition.name.as_str() == NOT_GIVEN {
            let message =
                format!("{NOT_GIVEN} stands for the groups that a node was not given; take another name");
            return Err(AdminError::invalid("name", message));
        }
        let Some(parent_name) = &definition.parent else {
            return quota_rules::check(self, id, definition, None).map(|()| None);
        };
        let refuse = |message: String| Err(AdminError::invalid("parent", message));
        if id == GroupId::DEFAULT {
            return refuse(format!("{parent_name}: group default cannot be a child of another group"));
        }
        if *parent_name == definition.name {
            return refuse(format!("{parent_name} cannot be its own parent"));
        }
        let Some(parent) = self.id(parent_name) else {
            return refuse(format!("group {parent_name} does not exist; create it first"));
        };
        let path = self.path(parent);
        if path.contains(&id) {
            let below = path.iter().take_while(|step| **step != id).filter_map(|step| self.name(*step));
            let names: Vec<_> = below.map(GroupName::as_str).collect();
            let cycle = format!("{} -> {} -> {}", definition.name, names.join(" -> "), definition.name);
            return refuse(format!("{parent_name} is below this group; the cycle would be {cycle}"));
        }
        let depth = path.len() + self.height(id, |_| 0);
        if depth > MAX_DEPTH {
            return refuse(format!(
                "{parent_name} would make the tree {depth} groups deep; at most {MAX_DEPTH}"
            ));
        }
        quota_rules::check(self, id, definition, Some(parent))?;
        Ok(Some(parent))
    }

    /// Checks that deleted groups that still have leases leave a group room below `parent`, where it may stand
    /// otherwise. `deleted_below` returns how many levels of them are directly below a group.
    pub fn check_room(
        &self,
        id: GroupId,
        parent: GroupId,
        deleted_below: impl Fn(GroupId) -> usize,
    ) -> Result<(), AdminError> {
        let depth = self.path(parent).len() + self.height(id, deleted_below);
        if depth <= MAX_DEPTH {
            return Ok(());
        }
        let parent = self.name(parent).map_or("/", GroupName::as_str);
        let message = format!(
            "{parent} would make the tree {depth} groups deep with deleted groups whose leases have not ended; at most \
             {MAX_DEPTH}: try again when they have, which takes one length of a lease"
        );
        Err(AdminError::invalid("parent", message))
    }

    /// Checks that runaways of group `from` may be switched to `target`, the value of `field`.
    pub fn check_switch(&self, field: &str, from: &GroupName, target: &GroupName) -> Result<(), AdminError> {
        if target == from {
            let message = format!("{target} is the group itself; name another, or use action \"cooldown\"");
            return Err(AdminError::invalid(field, message));
        }
        if self.id(target).is_none() {
            let message = format!("group {target} does not exist; create it first");
            return Err(AdminError::invalid(field, message));
        }
        Ok(())
    }

    /// The group and its ancestors, from the group up.
    pub fn path(&self, id: GroupId) -> Vec<GroupId> {
        let above = std::iter::successors(Some(id), |step| self.parent(*step));
        above.take(MAX_DEPTH + 1).collect()
    }

    /// Levels of the subtree of a group, itself included, with the removed levels that `beside` returns for a group; 1
    /// for a new one.
    fn height(&self, id: GroupId, beside: impl Fn(GroupId) -> usize) -> usize {
        let mut level: Vec<GroupId> = vec![id];
        let (mut above, mut height) = (0, 0);
        while !level.is_empty() && above <= MAX_DEPTH {
            above += 1;
            let deepest = level.iter().map(|group| beside(*group)).max().unwrap_or_default();
            height = height.max(above + deepest);
            level = level.iter().flat_map(|group| self.children(*group)).collect();
        }
        height
    }

    /// The lowest limit of a group and everything above it; `None` when nothing limits it.
    pub fn effective_limit(&self, id: GroupId) -> Option<Rate> {
        let own = self.path(id).into_iter().filter_map(|step| self.get(step)?.limit());
        own.chain(self.capacity).min()
    }

    /// Warnings about a definition that is allowed. `nodes` are connected now.
    pub fn warnings(&self, id: GroupId, definition: &Definition, nodes: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        let name = &definition.name;
        let parent = definition.parent.as_ref().and_then(|parent| self.id(parent));
        let spec = definition.spec(parent);
        let above = parent.map_or(self.capacity, |parent| self.effective_limit(parent));
        let above_name = definition.parent.as_ref().map_or("the server capacity", GroupName::as_str);
        if let (Some(rate), Some(limit)) = (definition.rate, above) {
            if rate > limit {
                warnings.push(format!("group {name}: {rate} cannot be guaranteed below {above_name}, which is limited to {limit}"));
            } else {
                warnings.extend(self.oversubscribed(id, parent, rate, limit, above_name));
            }
        }
        match (spec.fallback, definition.limit()) {
            (_, Some(limit)) if spec.fallback_total.is_some() => {
                let total = spec.fallback_total.unwrap_or_default();
                warnings.push(format!(
                    "group {name}: with a fallback of {total} for all nodes, {} may be used while nodes are cut off or \
                     the controller recovers: the limit {limit} and {total} more, however many nodes there are",
                    limit + total
                ));
            }
            (Fallback::Rate(each), Some(limit)) => {
                let now = match nodes {
                    0 => "no node is connected now".to_owned(),
                    _ => {
                        let bound = limit + each.scale(i64::try_from(nodes).unwrap_or(i64::MAX), 1);
                        format!("{bound} with the {nodes} connected now")
                    }
                };
                warnings.push(format!(
                    "group {name}: with fallback {each} per node, the limit {limit} and {each} more for each node may be \
                     used while nodes are cut off or the controller recovers ({now}); fallback_total bounds it for all"
                ));
            }
            (Fallback::Unlimited, Some(limit)) => warnings.push(format!(
                "group {name}: with fallback unlimited, the limit {limit} does not bind nodes that are cut off"
            )),
            _ => {}
        }
        warnings.extend(quota_rules::warning(self, definition, parent));
        warnings
    }

    /// Whether the guarantees below one group add up to more than it has.
    fn oversubscribed(
        &self,
        id: GroupId,
        parent: Option<GroupId>,
        rate: Rate,
        limit: Rate,
        above: &str,
    ) -> Option<String> {
        let own = self.entries.get(&id).filter(|entry| entry.parent == parent);
        let own = own.and_then(|entry| entry.definition.rate).map_or(0, |rate| i128::from(rate.0));
        let sum = self.guaranteed.get(&parent).copied().unwrap_or(0) - own + i128::from(rate.0);
        (sum > i128::from(limit.0)).then(|| {
            let sum = Rate(i64::try_from(sum).unwrap_or(i64::MAX));
            format!(
                "guarantees below {above} add up to {sum}, above its limit of {limit}; they are met in proportion only"
            )
        })
    }

    /// Puts a checked `definition` as group `id`, in place of any earlier one.
    pub fn put(&mut self, id: GroupId, definition: Definition) {
        let parent = definition.parent.as_ref().and_then(|name| self.id(name));
        self.detach(id);
        if let Some(parent) = parent {
            self.children.entry(parent).or_default().insert(id);
        }
        self.next_id = self.next_id.max(id.0.saturating_add(1));
        self.guarantee(parent, definition.rate, 1);
        self.limited.insert(id, &definition);
        self.demoting.insert(id, &definition);
        self.ids.insert(definition.name.clone(), id);
        self.entries.insert(id, Box::new(Entry { definition, parent }));
    }

    /// Removes a group without children.
    pub fn remove(&mut self, id: GroupId) {
        self.detach(id);
        if let Some(entry) = self.entries.remove(&id) {
            self.ids.remove(&entry.definition.name);
        }
    }

    /// The id of the next new group, whether or not there is room for one.
    pub(crate) fn upcoming(&self) -> u32 {
        self.next_id
    }

    /// Adds to the sum of guarantees, or subtracts from it.
    fn guarantee(&mut self, parent: Option<GroupId>, rate: Option<Rate>, sign: i128) {
        let sum = self.guaranteed.entry(parent).or_default();
        *sum += sign * i128::from(rate.unwrap_or_default().0);
        if *sum == 0 {
            self.guaranteed.remove(&parent);
        }
    }

    /// Removes a group from its parent's children and guarantees, and from the index of rules.
    fn detach(&mut self, id: GroupId) {
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        let (parent, rate) = (entry.parent, entry.definition.rate);
        self.limited.remove(id, &entry.definition);
        self.demoting.remove(id, &entry.definition);
        self.guarantee(parent, rate, -1);
        let Some(parent) = parent else { return };
        if let Some(children) = self.children.get_mut(&parent) {
            children.remove(&id);
            if children.is_empty() {
                self.children.remove(&parent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_proto::v1;

    use super::*;

    fn definition(name: &str, parent: &str, rate: &str) -> Definition {
        let text = v1::Group {
            name: name.into(),
            parent: parent.into(),
            ru_per_sec: rate.into(),
            ..v1::Group::default()
        };
        Definition::parse(&text).unwrap()
    }

    fn with(groups: &[(&str, &str, &str)], capacity: Option<i64>) -> Catalog {
        let mut catalog = Catalog::new(capacity.map(Rate::whole), 0);
        catalog.put(GroupId::DEFAULT, Definition::default_group());
        for (name, parent, rate) in groups {
            let id = catalog.next_id().unwrap();
            let definition = definition(name, parent, rate);
            catalog.check(id, &definition).unwrap();
            catalog.put(id, definition);
        }
        catalog
    }

    #[test]
    fn where_no_number_is_left_there_is_no_room_for_a_group() {
        let mut catalog = with(&[("web", "", "5")], None);
        catalog.begin(None, u32::MAX - 1);
        assert_eq!(catalog.next_id().unwrap(), GroupId(u32::MAX - 1));
        catalog.put(GroupId(u32::MAX - 1), definition("last", "", "5"));
        let refused = catalog.next_id().unwrap_err();
        assert_eq!((refused.code(), refused.to_string().contains("groups")), ("full", true), "{refused}");
    }

    fn id(catalog: &Catalog, name: &str) -> GroupId {
        catalog.id(&GroupName::parse(name).unwrap()).unwrap()
    }

    #[test]
    fn guarantees_are_held_to_the_least_limit_above_them() {
        let below = [("top", "", "100"), ("mid", "top", "unlimited"), ("x", "mid", "80"), ("y", "mid", "70")];
        let catalog = with(&below, Some(500));
        let oversubscribed = |name| Guarantees(&catalog).oversubscription(Some(id(&catalog, name)));
        assert_eq!(oversubscribed("mid"), Some((Rate::whole(150), Rate::whole(100))));
        assert_eq!((oversubscribed("top"), Guarantees(&catalog).oversubscription(None)), (None, None));
    }

    #[test]
    fn cycles_are_refused_and_named() {
        let catalog = with(&[("a", "", "9"), ("b", "a", "5"), ("c", "b", "3")], None);
        let error = catalog.check(id(&catalog, "a"), &definition("a", "c", "9")).unwrap_err().to_string();
        assert!(error.contains("a -> c -> b -> a"), "{error}");
        let error = catalog.check(id(&catalog, "a"), &definition("a", "a", "9")).unwrap_err().to_string();
        assert!(error.contains("own parent"), "{error}");
        assert!(catalog.check(GroupId::DEFAULT, &definition("default", "a", "")).is_err());
        assert!(catalog.check(GroupId(99), &definition("d", "nobody", "")).is_err());
    }

    #[test]
    fn the_tree_has_a_greatest_depth() {
        let mut catalog = with(&[("g0", "", "")], None);
        for level in 1..MAX_DEPTH {
            let id = catalog.next_id().unwrap();
            let definition = definition(&format!("g{level}"), &format!("g{}", level - 1), "");
            catalog.check(id, &definition).unwrap();
            catalog.put(id, definition);
        }
        let deep = definition("deep", &format!("g{}", MAX_DEPTH - 1), "");
        assert!(catalog.check(catalog.next_id().unwrap(), &deep).is_err());
    }

    #[test]
    fn limits_come_from_above() {
        let catalog = with(&[("a", "", "9"), ("b", "a", "unlimited"), ("c", "b", "30")], Some(100));
        assert_eq!(catalog.effective_limit(id(&catalog, "c")), Some(Rate::whole(9)));
        assert_eq!(catalog.effective_limit(GroupId::DEFAULT), Some(Rate::whole(100)));
    }

    #[test]
    fn doubtful_definitions_are_warned_of() {
        let catalog = with(&[("a", "", "9"), ("b", "a", "5"), ("c", "a", "30"), ("d", "", "95")], Some(100));
        let warned = |name: &str| {
            let id = id(&catalog, name);
            catalog.warnings(id, catalog.get(id).unwrap(), 3).join("; ")
        };
        assert!(warned("c").contains("cannot be guaranteed below a"), "{}", warned("c"));
        assert!(warned("b").contains("add up to 35 RU/s"), "{}", warned("b"));
        assert!(warned("d").contains("add up to 104 RU/s"), "{}", warned("d"));
        let mut fallback = definition("e", "", "1");
        fallback.fallback = Fallback::Rate(Rate::whole(2));
        let text = catalog.warnings(GroupId(77), &fallback, 3).join("; ");
        assert!(text.contains("7 RU/s with the 3 connected now"), "{text}");
        let text = catalog.warnings(GroupId(77), &fallback, 0).join("; ");
        assert!(
            text.contains("2 RU/s more for each node") && text.contains("no node is connected"),
            "{text}"
        );
        fallback.fallback_total = Some(Rate::whole(5));
        let text = catalog.warnings(GroupId(77), &fallback, 3).join("; ");
        assert!(text.contains("6 RU/s may be used") && text.contains("however many"), "{text}");
    }

    #[test]
    fn a_group_that_moves_counts_whole_among_the_guarantees_of_its_new_place() {
        let catalog = with(&[("a", "", "9"), ("b", "a", "5"), ("c", "", "20"), ("d", "c", "5")], None);
        let warned = |parent: &str, rate: &str| {
            catalog.warnings(id(&catalog, "d"), &definition("d", parent, rate), 0).join("; ")
        };
        assert!(warned("a", "5").contains("below a add up to 10 RU/s"), "{}", warned("a", "5"));
        assert_eq!(warned("a", "4"), "");
        assert_eq!(warned("c", "20"), "", "in its own place it counts once");
    }

    #[test]
    fn ids_are_not_used_again() {
        let mut catalog = with(&[("a", "", "9"), ("b", "a", "5")], None);
        let b = id(&catalog, "b");
        catalog.remove(b);
        assert_eq!(catalog.children(id(&catalog, "a")).count(), 0);
        assert_eq!(catalog.next_id().unwrap(), GroupId(b.0 + 1));
    }

    #[test]
    fn who_switches_to_whom_is_checked_and_known() {
        let mut catalog = with(&[("a", "", "9"), ("b", "", "5")], None);
        let (a, b) = (id(&catalog, "a"), GroupName::parse("b").unwrap());
        let switching = |target: &str| {
            let limit = v1::QueryLimit {
                rows: 1,
                action: "switch_group".into(),
                switch_group: target.into(),
                ..v1::QueryLimit::default()
            };
            let text = v1::Group { name: "a".into(), query_limit: Some(limit), ..v1::Group::default() };
            Definition::parse(&text).unwrap()
        };
        for target in ["a", "nobody"] {
            let error = catalog.check(a, &switching(target)).unwrap_err();
            assert_eq!(error.field(), Some("query_limit.switch_group"), "{error}");
        }
        catalog.check(a, &switching("b")).unwrap();
        catalog.put(a, switching("b"));
        assert_eq!(catalog.limited().switching_to(&b).collect::<Vec<_>>(), [a]);
        assert_eq!(catalog.limited().groups_after(None).collect::<Vec<_>>(), [a]);
        catalog.put(a, definition("a", "", "9"));
        assert_eq!(
            catalog.limited().switching_to(&b).count() + catalog.limited().groups_after(None).count(),
            0
        );
        let dangling = vec![(GroupId::DEFAULT, Definition::default_group()), (a, switching("b"))];
        assert!(Catalog::load(None, 0, dangling).unwrap_err().contains("switch_group b of a is missing"));
    }
}
