//! I7 beyond "someone goes on": over a window without faults, at the end of a run, every client with work that waits is
//! served, nodes that want the same get about the same, and a client that is sure of a rate and has work for it gets
//! it.
//!
//! Judged are groups whose workers never rest and never lose patience, while no node lies. A client must have been let
//! in at all. A guarantee counts when all that stand beside it, at every level, leave room for it, with the sixteenths
//! that each priority leaves to those after it; then half of it must have been used. Half, since what is missing is
//! earned by nodes that just gave it back, lies on the way, or was rounded away among clients; a guarantee that counts
//! for nothing leaves a sixteenth. Half of an equal share must be used, too: the least of 83 such windows was 0.62.

use std::collections::BTreeMap;

use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span};

use super::{CALM, Plan};
use crate::load::{Load, Pattern};
use crate::settling::Settling;
use crate::world::World;

/// The window that is judged.
pub(super) const WINDOW: Span = Span(CALM.0 / 2);

/// Served operations and RU, by group and node.
pub(super) struct Served(BTreeMap<(GroupId, usize), (u64, Ru)>);

impl Served {
    pub(super) fn of(loads: &[Load], world: &World) -> Self {
        let mut served: BTreeMap<(GroupId, usize), (u64, Ru)> = BTreeMap::new();
        for load in loads {
            let Some(waits) = world.waits(&load.label) else { continue };
            for (node, count) in &waits.count_by_node {
                let (operations, ru) = served.entry((load.group, *node)).or_default();
                *operations += count;
                *ru += waits.by_node.get(node).copied().unwrap_or_default();
            }
        }
        Self(served)
    }

    fn client(&self, group: GroupId, node: usize) -> u64 {
        self.0.get(&(group, node)).map_or(0, |(operations, _)| *operations)
    }

    fn ru(&self, group: GroupId, node: usize) -> Ru {
        self.0.get(&(group, node)).map_or(Ru::ZERO, |(_, ru)| *ru)
    }

    fn group(&self, group: GroupId) -> Ru {
        self.0.iter().filter(|((id, _), _)| *id == group).map(|(_, (_, ru))| *ru).sum()
    }
}

impl Plan {
    /// I7 of clients and guarantees, given what was served before the window.
    pub(super) fn judge_shares(&self, world: &World, before: &Served) -> Result<(), String> {
        if (0..self.drifts.len()).any(|node| world.lies(node)) {
            return Ok(());
        }
        let now = Served::of(&self.loads, world);
        for load in self.loads.iter().filter(|load| self.never_rests(load)) {
            let Some(spec) = world.spec(load.group) else { continue };
            let clients = self.clients(load.group);
            if !self.hopeless_among(world, load, 2 * clients) && !world.owed(load.group).is_positive() {
                let starved = (load.nodes.0..=load.nodes.1)
                    .find(|node| now.client(load.group, *node) == before.client(load.group, *node));
                if let Some(node) = starved {
                    return Err(format!("I7: node {node} starves in group {} for {WINDOW}", load.group.0));
                }
            }
            let sure = spec.rate.unwrap_or_default();
            let used = now.group(load.group) - before.group(load.group);
            if world.quota_above(load.group).is_some() {
                // What is left of a quota decides who gets what.
                continue;
            }
            if self.is_even(load, clients, used) && self.hears_in_time(spec) {
                let got = |node: usize| now.ru(load.group, node) - before.ru(load.group, node);
                let fair = used.scale(1, i64::try_from(clients).unwrap_or(i64::MAX));
                if let Some(node) = (load.nodes.0..=load.nodes.1).find(|node| got(*node) < fair.scale(1, 2)) {
                    return Err(format!(
                        "I7: node {node} got {} in group {} in {WINDOW}, where {clients} equal nodes got {fair} each",
                        got(node),
                        load.group.0
                    ));
                }
            }
            if self.is_sure(world, load, clients) && used < sure.over(WINDOW).scale(1, 2) {
                return Err(format!(
                    "I7: group {} is sure of {sure} and used {used} in {WINDOW}, with work waiting",
                    load.group.0
                ));
            }
        }
        Ok(())
    }

    /// Nodes with work for a group.
    fn clients(&self, group: GroupId) -> u64 {
        let of_group = self.loads.iter().filter(|load| load.group == group);
        of_group.map(|load| (load.nodes.1 - load.nodes.0 + 1) as u64).sum::<u64>().max(1)
    }

    /// Its nodes always have an operation waiting or running, and so have those that share its group.
    fn never_rests(&self, load: &Load) -> bool {
        let patient = |load: &Load| load.max_wait >= Span::secs(5);
        let steady = matches!(load.pattern, Pattern::Closed(_)) && load.turns.0 == 0 && load.moves.0 == 0;
        let at_once = load.settling == Settling::default() && load.settle_tenths == 10;
        let mut beside = self.loads.iter().filter(|other| other.group == load.group);
        steady && at_once && beside.all(|other| patient(other) && other.settling == Settling::default())
    }

    /// Whether all nodes with work for its group want the same, in operations small enough to be cut out of their shares
    /// of what they `used`.
    fn is_even(&self, load: &Load, clients: u64, used: Ru) -> bool {
        let alone = self.loads.iter().filter(|other| other.group == load.group).count() == 1;
        let large = load.dearest().scale(i64::try_from(8 * clients).unwrap_or(i64::MAX), 1);
        alone && clients > 1 && Rate(large.0).over(WINDOW) <= used
    }

    /// Whether a lease of the group is so long that answers come while it lasts.
    fn hears_in_time(&self, spec: &GroupSpec) -> bool {
        spec.ttl.0 >= self.delay.1.0 * super::trouble::LEASE_IN_DELAYS
    }

    /// Whether its group gets its rate whatever the others want, in operations small enough to be cut out of it.
    fn is_sure(&self, world: &World, load: &Load, clients: u64) -> bool {
        let Some(spec) = world.spec(load.group) else { return false };
        let Some(sure) = spec.rate else { return false };
        // The own charges of a group with others below it compete with theirs, and are sure of nothing.
        if world
            .groups()
            .into_iter()
            .filter_map(|id| world.spec(id))
            .any(|child| child.parent == Some(load.group))
        {
            return false;
        }
        let large = load.dearest().scale(i64::try_from(8 * clients).unwrap_or(i64::MAX), 1);
        if large > sure.over(Span::secs(1)) || world.owed(load.group).is_positive() {
            return false;
        }
        let mut level = Some((load.group, spec));
        while let Some((id, spec)) = level {
            // A client whose lease is shorter than the way, or whose bucket is too shallow, cannot use what it is sure
            // of.
            let depth = spec.depth().unwrap_or(Ru::MAX);
            if !self.hears_in_time(spec) || depth < large {
                return false;
            }
            let above = spec.parent.and_then(|parent| Some((parent, world.spec(parent)?)));
            if let Some((parent, above)) = above {
                let Some(limit) = above.rate else { return false };
                let sum = guarantees(world, parent);
                if sum.scale(16, 13) > limit {
                    return false;
                }
            }
            if spec.limit().is_some_and(|limit| limit < sure) || id == GroupId::ROOT {
                return false;
            }
            level = above;
        }
        true
    }
}

/// The sum of what the children of a group are sure of.
fn guarantees(world: &World, parent: GroupId) -> Rate {
    let children = world.groups().into_iter().filter_map(|id| world.spec(id));
    let of_parent = children.filter(|child: &&GroupSpec| child.parent == Some(parent));
    of_parent.filter_map(|child| child.rate).sum()
}
