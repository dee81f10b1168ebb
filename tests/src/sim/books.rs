//! What was charged and what is in the ledger, and what was owed.

use tidegate_core::group::GroupId;
use tidegate_core::units::Ru;

use super::world::World;

impl World {
    /// The most debt any node ever had in the group or below it, summed over node incarnations: the overrun.
    pub fn overrun(&self, id: GroupId) -> Ru {
        let debts = self.nodes.iter().flat_map(|node| {
            let now = node.groups.iter().map(|(group, machine)| (*group, machine.worst_debt()));
            now.chain(node.past_debt.iter().map(|(group, debt)| (*group, *debt)))
        });
        debts
            .filter(|(group, _)| *group == id || self.was_below.contains(&(*group, id)))
            .map(|(_, debt)| debt)
            .sum()
    }

    /// What nodes owe in a group now.
    pub fn owed(&self, id: GroupId) -> Ru {
        let machines =
            self.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.groups.get(&id)?)));
        machines.map(|(index, machine)| machine.clone().state(self.clock(index)).debt).sum()
    }

    /// After the last reports, by group: what the ledger has, and what the nodes charged (killed incarnations
    /// included). Nodes that lie are not asked.
    pub fn books(&mut self, groups: &[GroupId]) -> Vec<(GroupId, (Ru, Ru))> {
        let honest: Vec<usize> = (0..self.nodes.len()).filter(|node| !self.lies(*node)).collect();
        for index in &honest {
            self.tally(*index);
            if let Some(node) = self.nodes.get_mut(*index) {
                let last = node.reports.send(u64::MAX);
                self.controller.report(*index, node.incarnation, last);
            }
        }
        let charged =
            |id| honest.iter().filter_map(|node| Some(self.nodes.get(*node)?.reports.charged(id))).sum();
        groups.iter().map(|id| (*id, (self.ledger(*id), charged(*id)))).collect()
    }

    /// What the ledger has of a group in all, and the sum over all nodes.
    pub fn totals(&self, id: GroupId) -> (Ru, Ru) {
        self.controller.totals(id)
    }

    /// What the ledger has of a group from nodes that do not lie.
    pub fn ledger(&self, id: GroupId) -> Ru {
        self.controller.charged(id, |node| !self.lies(node))
    }

    /// Brings the totals of a node up to what its machines have counted.
    pub(super) fn tally(&mut self, node: usize) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        for (group, machine) in &state.groups {
            let total = state.before.get(group).copied().unwrap_or_default().plus(machine.consumption());
            state.reports.set(state.incarnation, *group, total);
        }
    }
}
