//! The charges of nodes, the ledger's totals, and the debts.

use std::hash::{Hash, Hasher};

use tidegate_core::group::GroupId;
use tidegate_core::units::{Ru, RuTotal};
use tidegate_proto::v1;

use super::world::World;

impl World {
    /// What a group would have met under other settings, as the controller answers; the wish needs no name.
    ///
    /// # Errors
    /// The controller is down, or has no answer.
    pub fn what_if(&self, id: GroupId, wish: v1::WhatIfRequest) -> Result<v1::WhatIfReply, String> {
        self.controller.what_if(id, wish)
    }

    /// The most debt any node ever had in the group or below it, summed over node incarnations: the overrun.
    pub fn overrun(&self, id: GroupId) -> Ru {
        let debts = self.nodes.iter().flat_map(|node| {
            let now = node.groups.iter().map(|(group, machine)| (*group, machine.look().worst_debt()));
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

    /// The least and the most that the ledger may have of a group whose name an earlier group had: charges since, and
    /// those that were not counted for the earlier one.
    pub fn books_of_returned(&self, id: GroupId) -> Option<(Ru, Ru)> {
        if self.set_back {
            // Reports confirmed as on disk may have been taken back with the disk; nothing is ever counted twice.
            let honest = self.nodes.iter().enumerate().filter(|(node, _)| !self.lies(*node));
            return Some((Ru::ZERO, honest.map(|(_, node)| node.reports.charged(id)).sum()));
        }
        let before = self.returned.get(&id)?;
        let mut books = (Ru::ZERO, Ru::ZERO);
        for (index, node) in self.nodes.iter().enumerate().filter(|(index, _)| !self.lies(*index)) {
            let charged = node.reports.charged(id);
            books.0 += charged - before.get(index).copied().unwrap_or_default();
            books.1 += charged - self.retired_of(id, index);
        }
        Some(books)
    }

    /// A group is there again: what nodes had charged to the one before.
    pub(super) fn note_return(&mut self, id: GroupId) {
        (0..self.nodes.len()).for_each(|node| self.tally(node));
        let charged = self.nodes.iter().map(|node| node.reports.charged(id)).collect();
        self.returned.insert(id, charged);
    }

    /// The part of a node's charges that counted for removed groups of this name.
    fn retired_of(&self, id: GroupId, node: usize) -> Ru {
        self.retired.get(&id).and_then(|nodes| nodes.get(node)).copied().unwrap_or_default()
    }

    /// A group is removed: what the ledger had of it when that was asked for is counted for good.
    pub(super) fn retire(&mut self, id: GroupId) {
        let Some(counted) = self.retiring.remove(&id) else { return };
        let retired = self.retired.entry(id).or_insert_with(|| vec![Ru::ZERO; counted.len()]);
        retired.iter_mut().zip(counted).for_each(|(sum, more)| *sum += more);
    }

    /// I6 of a group at any moment: the ledger has no more of a node than the node charged and an earlier group did not
    /// count, and no less than the controller confirmed to be on disk.
    pub(super) fn judge_reported(&mut self, id: GroupId) {
        if !self.checked || !self.controller.is_up() || !self.specs.contains_key(&id) {
            return;
        }
        for node in (0..self.nodes.len()).filter(|node| !self.lies(*node)).collect::<Vec<_>>() {
            self.tally(node);
            let Some(reports) = self.nodes.get(node).map(|state| &state.reports) else { continue };
            // Confirmations for the group before it do not count.
            let told = if self.returned.contains_key(&id) { Ru::ZERO } else { reports.durable_of(id) };
            let ledger = self.controller.charged(id, |other| other == node);
            let retired = if self.set_back { Ru::ZERO } else { self.retired_of(id, node) };
            let charged = reports.charged(id) - retired;
            let told = if self.set_back { Ru::ZERO } else { told };
            if ledger < told || ledger > charged {
                self.violate(format!(
                    "I6: group {}: {ledger} in the ledger, node {node} charged {charged}, told {told} is on disk",
                    id.0
                ));
            }
        }
    }

    /// The course of the run until now, and what it left in the books.
    pub fn course(&self) -> u64 {
        let mut digest = self.digest.clone();
        for id in self.groups() {
            (
                id,
                self.totals(id),
                self.controller.quota(id).map(|quota| (quota.window, quota.used, quota.lost)),
            )
                .hash(&mut digest);
        }
        digest.finish()
    }

    /// The ledger's total of a group, and the sum over all nodes.
    pub fn totals(&self, id: GroupId) -> (RuTotal, RuTotal) {
        self.controller.totals(id)
    }

    /// The ledger's total of a group from honest nodes.
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
