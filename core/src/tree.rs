//! The group tree with its live state, and the division of each group's rate among those below it.
//!
//! At every group the guarantees of the children with demand are met first (in proportion to the guarantees when
//! they do not fit), then what is left goes to those who may use more, higher priority first, max-min by weight
//! within a priority. Who comes first leaves a sixteenth to those after, so that nobody starves. A group's own
//! clients compete as one more member without a guarantee.

use std::collections::{BTreeMap, BTreeSet};

use crate::fill::WaterFill;
use crate::group::{ClientId, GroupId, GroupSpec, Priority};
use crate::lease::Lease;
use crate::pool::Pool;
use crate::units::{Rate, Ru, Time};

/// Deepest nesting below the root.
pub const MAX_DEPTH: usize = 8;

/// Those who come first (guarantees, then higher priorities) leave one part in this many to each priority after
/// them, so that nobody starves.
const LEFT_FOR_OTHERS: i64 = 16;

/// A group and its ancestors, from the group up to the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    ids: [GroupId; MAX_DEPTH + 1],
    len: usize,
}

impl Chain {
    /// From the group up to the root.
    pub(crate) fn up(&self) -> impl DoubleEndedIterator<Item = GroupId> + '_ {
        self.ids.iter().take(self.len).copied()
    }
}

/// Who divides a group's rate: a child group, or the group's own clients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Party {
    Own,
    Child(GroupId),
}

/// A client waiting for a lump, first come first served.
pub(crate) type QueuePlace = (Time, ClientId, GroupId);

/// Live state of one group.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Group {
    pub spec: GroupSpec,
    pub pool: Pool,
    /// Rate and tokens that the nodes below may be using.
    pub committed: Rate,
    pub held: Ru,
    /// Deleted, but leases are still out; they count until they end.
    pub removed: bool,
    /// A changed definition may leave more out than the new limits allow until leases are renewed or end.
    pub committed_legacy: Rate,
    pub held_legacy: Ru,
    pub children: BTreeSet<GroupId>,
    pub leases: BTreeMap<ClientId, Lease>,
    /// Own leases by committed rate, and child groups by theirs: where rate can be recalled from.
    pub by_rate: BTreeSet<(Rate, ClientId)>,
    pub children_by_rate: BTreeSet<(Rate, GroupId)>,
    pub own: WaterFill<ClientId>,
    guarantees: WaterFill<Party>,
    borrowing: [WaterFill<Party>; 3],
    /// Clients in the subtree that wait for a lump, and clients with a backlog.
    pub queue: BTreeMap<QueuePlace, Ru>,
    pub backlogged: u64,
    /// Someone below lacks rate that others hold; until then nobody keeps more than their share.
    pub short_until: Time,
}

impl Group {
    pub(crate) fn new(now: Time, spec: GroupSpec) -> Self {
        let opening = spec.depth().unwrap_or(Ru::ZERO);
        Self {
            spec,
            pool: Pool::new(now, opening),
            committed: Rate::ZERO,
            held: Ru::ZERO,
            removed: false,
            committed_legacy: Rate::ZERO,
            held_legacy: Ru::ZERO,
            children: BTreeSet::new(),
            leases: BTreeMap::new(),
            by_rate: BTreeSet::new(),
            children_by_rate: BTreeSet::new(),
            own: WaterFill::default(),
            guarantees: WaterFill::default(),
            borrowing: Default::default(),
            queue: BTreeMap::new(),
            backlogged: 0,
            short_until: Time(0),
        }
    }

    /// RU/s wanted below, as far as the group's limit lets it count.
    pub(crate) fn demand(&self) -> Rate {
        let wanted = if self.children.is_empty() {
            self.own.demand()
        } else {
            self.borrowing.iter().fold(self.guarantees.demand(), |sum, f| sum.saturating_add(f.demand()))
        };
        self.spec.limit().map_or(Rate(wanted), |limit| limit.min(Rate(wanted)))
    }

    /// Room for tokens in the pool.
    pub(crate) fn room(&self) -> Ru {
        self.spec.depth().map_or(Ru::ZERO, |depth| (depth - self.held).or_zero())
    }

    /// Brings the pool up to `now`.
    pub(crate) fn advance(&mut self, now: Time) {
        let room = self.room();
        if let Some(limit) = self.spec.limit() {
            self.pool.advance(now, limit, self.committed, room);
        }
    }

    /// Parties with demand.
    pub(crate) fn parties(&self) -> i64 {
        let members = if self.children.is_empty() { self.own.len() } else { self.guarantees.len() };
        i64::try_from(members.max(1)).unwrap_or(i64::MAX)
    }

    /// Tells the division what a party wants. `guarantee` is zero for own clients.
    pub(crate) fn set_party(
        &mut self,
        party: Party,
        want: Rate,
        guarantee: Rate,
        priority: Priority,
        weight: u32,
    ) {
        let sure = want.min(guarantee);
        self.forget_party(party);
        if want.0 == 0 {
            return;
        }
        self.guarantees.set(party, sure.0, guarantee.0.max(1));
        if let Some(fill) = self.borrowing.get_mut(rank(priority)) {
            fill.set(party, (want - sure).0, i64::from(weight));
        }
    }

    /// Takes a party out of the division.
    pub(crate) fn forget_party(&mut self, party: Party) {
        self.guarantees.remove(party);
        self.borrowing.iter_mut().for_each(|fill| fill.remove(party));
    }

    /// What a party gets of `capacity`.
    pub(crate) fn party_share(&mut self, party: Party, capacity: Rate) -> Rate {
        let part = capacity.0 / LEFT_FOR_OTHERS;
        let mut left_after: i64 = self.borrowing.iter().map(|fill| fill.demand().min(part)).sum();
        let mut left = capacity.0;
        let mut share = 0_i64;
        let mut serve = |fill: &mut WaterFill<Party>, left_after: i64| {
            fill.set_capacity(left - left_after);
            share = share.saturating_add(fill.share(party));
            left -= fill.given();
        };
        serve(&mut self.guarantees, left_after);
        for fill in &mut self.borrowing {
            left_after -= fill.demand().min(part);
            serve(fill, left_after);
        }
        Rate(share)
    }
}

/// Index of a priority's borrowers, first served first.
fn rank(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Medium => 1,
        Priority::Low => 2,
    }
}

/// All groups; the root is always there.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Tree {
    groups: BTreeMap<GroupId, Group>,
}

impl Tree {
    pub(crate) fn new(now: Time) -> Self {
        Self { groups: BTreeMap::from([(GroupId::ROOT, Group::new(now, GroupSpec::unlimited()))]) }
    }

    pub(crate) fn get(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.groups.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().map(|(id, group)| (*id, group))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.groups.values_mut()
    }

    pub(crate) fn insert(&mut self, id: GroupId, group: Group) {
        self.groups.insert(id, group);
    }

    pub(crate) fn remove(&mut self, id: GroupId) {
        self.groups.remove(&id);
    }

    pub(crate) fn parent(&self, id: GroupId) -> Option<GroupId> {
        if id == GroupId::ROOT {
            return None;
        }
        self.groups.get(&id).map(|group| group.spec.parent.unwrap_or(GroupId::ROOT))
    }

    /// The group and its ancestors; `None` when it does not exist or is nested too deeply.
    pub(crate) fn chain(&self, id: GroupId) -> Option<Chain> {
        let mut chain = Chain { ids: [GroupId::ROOT; MAX_DEPTH + 1], len: 0 };
        let mut next = Some(id);
        while let Some(id) = next {
            self.groups.get(&id)?;
            *chain.ids.get_mut(chain.len)? = id;
            chain.len += 1;
            next = self.parent(id);
        }
        Some(chain)
    }

    /// Carries a changed demand of `id` up to the root.
    pub(crate) fn propagate_demand(&mut self, id: GroupId) {
        let mut id = id;
        loop {
            let Some(group) = self.groups.get_mut(&id) else {
                return;
            };
            if !group.children.is_empty() {
                let own = Rate(group.own.demand());
                group.set_party(Party::Own, own, Rate::ZERO, Priority::Medium, 1);
            }
            let (want, spec) = (group.demand(), group.spec.clone());
            let Some(parent) = self.parent(id) else { return };
            let Some(above) = self.groups.get_mut(&parent) else {
                return;
            };
            let guarantee = spec.rate.unwrap_or(Rate::ZERO);
            above.set_party(Party::Child(id), want, guarantee, spec.priority, spec.weight);
            id = parent;
        }
    }
}

impl Tree {
    /// Levels from the group down to its deepest descendant, itself included.
    pub(crate) fn height(&self, id: GroupId) -> usize {
        let below = self.groups.get(&id).map_or(0, |group| {
            group.children.iter().map(|child| self.height(*child)).max().unwrap_or_default()
        });
        below + 1
    }

    /// Adds to what nodes may be using and holding, at every level.
    pub(crate) fn add(&mut self, chain: &Chain, committed: Rate, held: Ru) {
        let mut child: Option<(GroupId, Rate, Rate)> = None;
        for id in chain.up() {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let before = group.committed;
            group.committed += committed;
            group.held += held;
            if let Some((child, was, is)) = child {
                group.children_by_rate.remove(&(was, child));
                group.children_by_rate.insert((is, child));
            }
            child = Some((id, before, group.committed));
        }
    }

    /// Takes a group with all that is below it out from under its parent.
    pub(crate) fn detach(&mut self, id: GroupId) {
        let Some((parent, chain)) = self.parent(id).and_then(|p| Some((p, self.chain(p)?))) else {
            return;
        };
        let Some(group) = self.groups.get(&id) else { return };
        let (committed, held) = (group.committed, group.held);
        let (queue, backlogged) = (group.queue.clone(), group.backlogged);
        if let Some(above) = self.groups.get_mut(&parent) {
            above.children.remove(&id);
            above.children_by_rate.remove(&(committed, id));
            above.forget_party(Party::Child(id));
        }
        self.add(&chain, Rate(-committed.0), Ru(-held.0));
        for level in chain.up() {
            if let Some(above) = self.groups.get_mut(&level) {
                above.backlogged -= backlogged;
                above.queue.retain(|place, _| !queue.contains_key(place));
            }
        }
        self.propagate_demand(parent);
    }

    /// Puts a detached group under a parent; its specification names that parent already.
    pub(crate) fn attach(&mut self, id: GroupId, parent: GroupId) {
        let Some(chain) = self.chain(parent) else { return };
        let Some(group) = self.groups.get(&id) else { return };
        let (committed, held) = (group.committed, group.held);
        let (queue, backlogged) = (group.queue.clone(), group.backlogged);
        self.add(&chain, committed, held);
        if let Some(above) = self.groups.get_mut(&parent) {
            above.children.insert(id);
            above.children_by_rate.insert((committed, id));
        }
        for level in chain.up() {
            if let Some(above) = self.groups.get_mut(&level) {
                above.backlogged += backlogged;
                above.queue.extend(queue.iter().map(|(place, need)| (*place, *need)));
            }
        }
    }

    /// After a changed definition: what is out now may exceed the new limits until it is renewed or ends.
    pub(crate) fn excuse(&mut self, chain: &Chain) {
        for id in chain.up() {
            if let Some(group) = self.groups.get_mut(&id) {
                group.committed_legacy = group.committed;
                group.held_legacy = group.held;
            }
        }
    }
}
