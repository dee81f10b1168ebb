//! The group tree: groups, their ancestors, and the sums that change along the way up.
//!
//! Groups are kept in slots: a decision looks a group up by number once, and every step up to the root is an index into
//! a list.

use std::hash::{Hash, Hasher};

use crate::children::Children;
use crate::division::{Entry, Party};
use crate::exchange::Enforcement;
use crate::group::{GroupId, GroupSpec, Priority};
use crate::index::{Index, Slot};
use crate::live::Live;
use crate::parts::Parts;
use crate::pool::Pool;
use crate::quota::Quota;
use crate::units::{Rate, Ru, Time};
use crate::warmth::Warmth;

/// Deepest nesting below the root.
pub const MAX_DEPTH: usize = 8;

/// A group and its ancestors, from the group up to the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    slots: [Slot; MAX_DEPTH + 1],
    len: usize,
    /// The level whose definition has a quota; one on each way has. Found with the chain, since each renewal asks twice.
    quota: Option<Slot>,
}

impl Chain {
    /// From the group up to the root.
    pub(crate) fn up(&self) -> impl DoubleEndedIterator<Item = Slot> + '_ {
        self.slots.iter().take(self.len).copied()
    }

    /// The group.
    pub(crate) fn slot(&self) -> Slot {
        let [slot, ..] = self.slots;
        slot
    }

    /// The level with a quota.
    pub(crate) fn quota(&self) -> Option<Slot> {
        self.quota
    }
}

/// One group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub id: GroupId,
    above: Option<Slot>,
    pub spec: GroupSpec,
    pub pool: Pool,
    /// Deleted while leases are still out, which count until they end.
    pub removed: bool,
    pub children: Children,
    /// Until then, leases from before an unclean start may be out here or below.
    pub recovering_until: Time,
    /// Until then no client keeps more than its share, because one below lacks rate that others hold.
    pub short_until: Time,
    /// Until then rate that is not needed adds up for operations that take lumps, because such came lately.
    pub lumps_until: Time,
    /// The division of its fallback; few groups divide one.
    pub parts: Option<Box<Parts>>,
    /// Its quota in the present window, once one is open.
    pub quota: Option<Box<Quota>>,
    /// How warm it is, if its rate warms up.
    pub warmth: Option<Box<Warmth>>,
    pub live: Live,
}

impl Group {
    pub(crate) fn new(now: Time, id: GroupId, spec: GroupSpec) -> Self {
        let opening = spec.depth().unwrap_or(Ru::ZERO);
        let warmth = Warmth::cold(now, &spec);
        Self {
            id,
            above: None,
            spec,
            pool: Pool::new(now, opening),
            removed: false,
            children: Children::default(),
            recovering_until: Time(0),
            short_until: Time(0),
            lumps_until: Time(0),
            parts: None,
            quota: None,
            warmth,
            live: Live::default(),
        }
    }

    /// The rate that the group and everything below it may use now: the limit, or less while it warms up to that.
    pub(crate) fn limit(&self) -> Option<Rate> {
        self.warmth.as_ref().map_or_else(|| self.spec.limit(), |warmth| Some(warmth.rate()))
    }

    /// Until then, leases that the engine does not know may be out.
    pub(crate) fn recover_until(&mut self, until: Time) {
        self.recovering_until = self.recovering_until.max(until);
        self.pool.suspend_until(self.recovering_until);
    }

    /// RU/s wanted below, as far as the group's limit allows.
    pub(crate) fn demand(&self) -> Rate {
        let live = &*self.live;
        let wanted = if self.children.is_empty() { live.own.demand() } else { live.division.demand() };
        self.limit().map_or(Rate(wanted), |limit| limit.min(Rate(wanted)))
    }

    /// What the group's own clients want beside its children; without children they divide the rate among themselves.
    pub(crate) fn beside_children(&self) -> Option<Entry> {
        let own = Rate(self.live.own.demand());
        Entry::new(own, Rate::ZERO, Priority::Medium, 1).filter(|_| !self.children.is_empty())
    }

    /// The group's entry in the division of its parent.
    pub(crate) fn entry(&self) -> Option<Entry> {
        let guarantee = self.spec.rate.unwrap_or(Rate::ZERO);
        Entry::new(self.demand(), guarantee, self.spec.priority, self.spec.weight)
    }

    /// Room for tokens in the pool.
    pub(crate) fn room(&self) -> Ru {
        self.spec.depth().map_or(Ru::ZERO, |depth| (depth - self.live.held).or_zero())
    }

    /// Brings the pool up to `now` and trims it.
    pub(crate) fn advance(&mut self, now: Time) {
        self.accrue(now);
        self.trim();
    }

    /// Brings the pool up to `now` without trimming it; returns what does not fit.
    pub(crate) fn accrue(&mut self, now: Time) -> Ru {
        let Some(limit) = self.spec.limit() else { return Ru::ZERO };
        self.pool.accrue(now, limit, self.live.committed);
        (self.pool.tokens() - self.room()).or_zero()
    }

    /// Discards what does not fit into the pool.
    pub(crate) fn trim(&mut self) {
        if self.spec.limit().is_some() {
            let room = self.room();
            self.pool.trim(room);
        }
    }

    /// Number of parties with demand.
    pub(crate) fn parties(&self) -> i64 {
        let members = if self.children.is_empty() { self.live.own.len() } else { self.live.division.len() };
        i64::try_from(members.max(1)).unwrap_or(i64::MAX)
    }
}

/// The slot of the parent is left out: where a group is kept says nothing about it.
impl Hash for Group {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            id,
            above: _,
            spec,
            pool,
            removed,
            children,
            recovering_until,
            short_until,
            lumps_until,
            parts,
            quota,
            warmth,
            live,
        } = self;
        (id, spec, pool, removed, children, recovering_until, short_until, lumps_until, parts, quota)
            .hash(state);
        (warmth, live).hash(state);
    }
}

/// All groups; the root is always there.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    index: Index,
    groups: Vec<Option<Group>>,
    free: Vec<Slot>,
}

impl Hash for Tree {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.iter().for_each(|group| group.hash(state));
    }
}

impl Tree {
    pub(crate) fn new(now: Time) -> Self {
        let mut tree = Self { index: Index::default(), groups: Vec::new(), free: Vec::new() };
        tree.insert(Group::new(now, GroupId::ROOT, GroupSpec::unlimited()));
        tree
    }

    pub(crate) fn get(&self, id: GroupId) -> Option<&Group> {
        self.index.get(id).map(|slot| self.at(slot))
    }

    pub(crate) fn get_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.index.get(id).map(|slot| self.at_mut(slot))
    }

    /// The group in a slot. A chain is used before any group of it is removed, so that its slots lead to groups.
    ///
    /// # Panics
    /// When there is none: a defect of this crate, never caused by an input, after which sums would drift.
    #[inline]
    #[expect(
        clippy::expect_used,
        reason = "a group that is missing from its chain is a defect, and must be loud"
    )]
    pub(crate) fn at(&self, slot: Slot) -> &Group {
        self.groups.get(slot.place()).and_then(Option::as_ref).expect("a slot leads to a group")
    }

    /// The same, to change it.
    ///
    /// # Panics
    /// As `at`.
    #[inline]
    #[expect(
        clippy::expect_used,
        reason = "a group that is missing from its chain is a defect, and must be loud"
    )]
    pub(crate) fn at_mut(&mut self, slot: Slot) -> &mut Group {
        self.groups.get_mut(slot.place()).and_then(Option::as_mut).expect("a slot leads to a group")
    }

    /// The groups of a chain, from the group up.
    pub(crate) fn up(&self, chain: &Chain) -> impl DoubleEndedIterator<Item = &Group> {
        chain.up().map(|slot| self.at(slot))
    }

    /// The largest operation that the group and its ancestors can ever cover.
    pub(crate) fn max_fit(&self, chain: &Chain) -> Ru {
        self.up(chain).filter_map(|group| group.spec.largest()).min().unwrap_or(Ru::MAX)
    }

    /// Whether any group of a chain has a limit.
    pub(crate) fn is_limited(&self, chain: &Chain) -> bool {
        self.up(chain).any(|group| group.spec.limit().is_some())
    }

    /// How nodes hold operations to the limits of a chain: as every group of it says. In one walk, because each decision
    /// takes it.
    pub(crate) fn enforcement(&self, chain: &Chain) -> Enforcement {
        let mut all = Enforcement::default();
        for group in self.up(chain) {
            all.shadow |= group.spec.shadow;
            all.paced |= group.spec.policy.is_paced();
        }
        all
    }

    /// When every group of a chain that has a limit has recovered.
    pub(crate) fn recovering_until(&self, chain: &Chain) -> Time {
        let limited = self.up(chain).filter(|group| group.spec.limit().is_some());
        limited.map(|group| group.recovering_until).max().unwrap_or_default()
    }

    /// All groups, in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.index.iter().map(|slot| self.at(slot))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.groups.iter_mut().flatten()
    }

    /// Adds a group, and to its parent's children if that exists.
    pub(crate) fn insert(&mut self, mut group: Group) {
        let id = group.id;
        let parent = group.spec.parent.unwrap_or(GroupId::ROOT);
        group.above = if id == GroupId::ROOT { None } else { self.index.get(parent) };
        if let Some(above) = group.above {
            self.at_mut(above).children.insert(id);
        }
        let free = self.index.get(id).or_else(|| self.free.pop());
        let Some(slot) = free.or_else(|| Slot::at(self.groups.len())) else { return };
        match self.groups.get_mut(slot.place()) {
            Some(place) => *place = Some(group),
            None => self.groups.push(Some(group)),
        }
        self.index.insert(id, slot);
    }

    pub(crate) fn remove(&mut self, id: GroupId) {
        let Some(slot) = self.index.remove(id) else { return };
        if let Some(place) = self.groups.get_mut(slot.place()) {
            *place = None;
        }
        self.free.push(slot);
    }

    pub(crate) fn parent(&self, id: GroupId) -> Option<GroupId> {
        if id == GroupId::ROOT {
            return None;
        }
        self.get(id).map(|group| group.spec.parent.unwrap_or(GroupId::ROOT))
    }

    /// The group and its ancestors; `None` when it does not exist or is nested too deeply.
    pub(crate) fn chain(&self, id: GroupId) -> Option<Chain> {
        let slot = self.index.get(id)?;
        let group = self.at(slot);
        let quota = group.spec.quota.map(|_| slot);
        let mut chain = Chain { slots: [slot; MAX_DEPTH + 1], len: 1, quota };
        let mut above = group.above;
        while let Some(slot) = above {
            *chain.slots.get_mut(chain.len)? = slot;
            chain.len += 1;
            let group = self.at(slot);
            if group.spec.quota.is_some() {
                chain.quota = Some(slot);
            }
            above = group.above;
        }
        Some(chain)
    }

    /// Carries a changed demand up a chain, as far as it changes entries.
    pub(crate) fn propagate_demand(&mut self, chain: &Chain) {
        for slot in chain.up() {
            let group = self.at_mut(slot);
            if group.live.is_awake() {
                let beside = group.beside_children();
                group.live.division.change_own(beside);
            }
            let entry = group.entry();
            let (above, party) = (group.above, Party::Child(group.id));
            if group.live.entered == entry || above.is_none() {
                return;
            }
            let before = std::mem::replace(&mut group.live.entered, entry);
            if let Some(above) = above {
                self.at_mut(above).live.division.change(party, before, entry);
            }
        }
    }

    /// Drops the live parts of idle groups.
    pub(crate) fn rest(&mut self, chain: &Chain) {
        for slot in chain.up() {
            self.at_mut(slot).live.rest();
        }
    }
}

impl Tree {
    /// Levels from the group down to its deepest descendant, itself included.
    pub(crate) fn height(&self, id: GroupId) -> usize {
        let below = self.get(id).map_or(0, |group| {
            group.children.iter().map(|child| self.height(*child)).max().unwrap_or_default()
        });
        below + 1
    }

    /// Adds to what nodes may use and hold, and to what they use of it, at every level.
    pub(crate) fn add(&mut self, chain: &Chain, committed: Rate, held: Ru, used: Rate) {
        if committed == Rate::ZERO && held == Ru::ZERO && used == Rate::ZERO {
            return;
        }
        for slot in chain.up() {
            let live = &mut *self.at_mut(slot).live;
            live.committed += committed;
            live.held += held;
            live.used += used;
        }
    }

    /// Lists every group of a chain by its present rate.
    pub(crate) fn list(&mut self, chain: &Chain) {
        let mut moved: Option<(GroupId, Rate, Rate)> = None;
        for slot in chain.up() {
            let group = self.at_mut(slot);
            if let Some((child, was, is)) = moved.take() {
                group.live.children_by_rate.remove(&(was, child));
                if is != Rate::ZERO {
                    group.live.children_by_rate.insert((is, child));
                }
            }
            let (was, is) = (group.live.listed, group.live.committed);
            if was != is && group.above.is_some() {
                group.live.listed = is;
                moved = Some((group.id, was, is));
            }
        }
    }

    /// Removes a group, with all below it, from its parent.
    pub(crate) fn detach(&mut self, id: GroupId) {
        let Some((parent, chain)) = self.parent(id).and_then(|p| Some((p, self.chain(p)?))) else {
            return;
        };
        let Some(group) = self.get_mut(id) else { return };
        let (committed, held, used) = (group.live.committed, group.live.held, group.live.used);
        let (queue, backlogged) = (group.live.queue.clone(), group.live.backlogged);
        let (listed, entered) = (group.live.listed, group.live.entered);
        if group.live.is_awake() {
            (group.live.listed, group.live.entered) = (Rate::ZERO, None);
        }
        group.above = None;
        if let Some(above) = self.get_mut(parent) {
            above.children.remove(id);
            if above.live.is_awake() {
                above.live.children_by_rate.remove(&(listed, id));
                above.live.division.change(Party::Child(id), entered, None);
            }
        }
        self.add(&chain, Rate(-committed.0), Ru(-held.0), Rate(-used.0));
        self.list(&chain);
        for slot in chain.up() {
            let above = self.at_mut(slot);
            if above.live.is_awake() {
                above.live.backlogged -= backlogged;
                above.live.queue.retain(|place, _| !queue.contains_key(place));
            }
        }
        self.propagate_demand(&chain);
        self.rest(&chain);
    }

    /// Adds a detached group to a parent; its specification names that parent already.
    pub(crate) fn attach(&mut self, id: GroupId, parent: GroupId) {
        let Some(chain) = self.chain(parent) else { return };
        let Some(group) = self.get_mut(id) else { return };
        let (committed, held, used) = (group.live.committed, group.live.held, group.live.used);
        let (queue, backlogged) = (group.live.queue.clone(), group.live.backlogged);
        group.above = Some(chain.slot());
        self.add(&chain, committed, held, used);
        if let Some(above) = self.get_mut(parent) {
            above.children.insert(id);
        }
        if let Some(whole) = self.chain(id) {
            self.list(&whole);
        }
        if backlogged > 0 {
            // A client in the queue has a backlog.
            for slot in chain.up() {
                let live = &mut *self.at_mut(slot).live;
                live.backlogged += backlogged;
                live.queue.extend(queue.iter().map(|(place, need)| (*place, *need)));
            }
        }
        // With its first child, the parent's own clients become one party among others.
        self.propagate_demand(&chain);
    }

    /// After a changed definition, leases may exceed the new limits until they are renewed or end.
    pub(crate) fn excuse(&mut self, chain: &Chain) {
        for slot in chain.up() {
            let group = self.at_mut(slot);
            if group.live.is_awake() {
                group.pool.excuse();
                let live = &mut *group.live;
                live.legacy = (live.committed, live.held);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_removed_group_is_used_again() {
        let mut tree = Tree::new(Time(0));
        for id in 2..50 {
            tree.insert(Group::new(Time(0), GroupId(id), GroupSpec::unlimited()));
            tree.detach(GroupId(id));
            tree.remove(GroupId(id));
            assert!(tree.get(GroupId(id)).is_none());
        }
        assert_eq!(tree.groups.len(), 2);
    }
}
