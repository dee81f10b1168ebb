//! Limits in shadow: a lease says so exactly where the group, or one above it, is defined so; only a node with such a
//! lease lets operations pass that it does not cover, and none waits there.
//!
//! What passes over a limit counts in no bound, nor does what a node that was told of the shadow admits past its lease.
//! What the lease covers counts as ever.

use std::collections::BTreeSet;

use tidegate_controller::service::{Answer, EntryOut};
use tidegate_core::exchange::Grant;
use tidegate_core::group::GroupId;

use super::controller::group;
use super::world::World;

impl World {
    /// Whether a group's limit, or one above it, is in shadow by the definitions of now.
    fn is_in_shadow(&self, id: GroupId) -> bool {
        self.chain(id).iter().any(|above| self.specs.get(above).is_some_and(|spec| spec.shadow))
    }

    /// Definitions have changed.
    pub(super) fn count_shadows(&mut self) {
        if self.specs.values().any(|spec| spec.shadow) {
            let ids: BTreeSet<GroupId> =
                self.specs.keys().copied().filter(|id| self.is_in_shadow(*id)).collect();
            self.witness.shadowed.extend(ids);
        }
    }

    /// An answer to a node over this connection: its leases are enforced as is defined now. A controller that another
    /// took over from knows older definitions.
    pub(super) fn judge_enforcement(&mut self, (node, connection): (usize, u64), entry: &EntryOut) {
        let of_old = self.nodes.get(node).is_none_or(|state| connection <= state.old_connection);
        let (Some(id), Answer::Grant(Grant::Leased(terms), _)) = (group(&entry.group), &entry.answer) else {
            return;
        };
        if !self.checked || of_old || self.doubtful.is_some() {
            return;
        }
        let defined = self.is_in_shadow(id);
        if terms.enforcement.shadow != defined {
            self.violate(format!("group {}: in shadow by definition: {defined}, and leased {terms:?}", id.0));
        }
    }

    /// A node let an operation pass that its lease does not cover.
    pub(super) fn passed_over(&mut self, node: usize, id: GroupId) {
        let now = self.clock(node);
        self.judge_holding(node, id, |holding| match holding.is_in_shadow(now) {
            true => Ok(()),
            false => Err(format!("I4: an operation passed a limit that is enforced, by {holding:?}")),
        });
        self.fed(node, id);
    }

    /// An operation waits on a node.
    pub(super) fn judge_waiting(&mut self, node: usize, id: GroupId) {
        let now = self.clock(node);
        self.judge_holding(node, id, |holding| match holding.is_in_shadow(now) {
            true => Err(format!("an operation waits for a limit in shadow, by {holding:?}")),
            false => Ok(()),
        });
    }
}
