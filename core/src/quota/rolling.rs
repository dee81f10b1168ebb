//! What callers of the grant engine say and ask of a quota that rolls.

use super::cells::Cells;
use super::{narrow, wide};
use crate::engine::Engine;
use crate::group::GroupId;
use crate::units::{Ru, Span, Time};

impl Engine {
    /// What was charged to a group's quota that rolls, or lost, before the controller started, and leaves after this
    /// time. It was granted, and the mark on disk is above it.
    pub fn charge_quota(&mut self, now: Time, group: GroupId, leaves_in: Span, charged: Ru) {
        let quota = self.tree.get_mut(group).and_then(|group| group.quota.as_deref_mut());
        let Some((quota, amount)) = quota.map(|quota| (quota, wide(charged.or_zero().min(Ru::MAX)))) else {
            return;
        };
        if let Some(cells) = &mut quota.cells {
            cells.restore(now, leaves_in, amount);
            quota.granted += amount;
            quota.durable = narrow(wide(quota.durable) + amount);
        }
    }

    /// What is charged to a group's quota that rolls, or lost, and after which time each part of it leaves.
    pub fn quota_cells(&self, group: GroupId, now: Time) -> Vec<(Span, Ru)> {
        let quota = self.tree.get(group).and_then(|group| group.quota.as_deref());
        let cells = quota.and_then(|quota| quota.at(now).cells);
        let parts = cells.iter().flat_map(Cells::parts);
        parts.map(|(leaves, amount)| (leaves.since(now), narrow(amount))).collect()
    }

    /// Whether the quota that a group counts in rolls.
    pub fn quota_rolls(&self, group: GroupId) -> bool {
        let level = self.tree.chain(group).and_then(|chain| chain.quota());
        level.and_then(|slot| self.tree.at(slot).quota.as_deref()).is_some_and(|quota| quota.cells.is_some())
    }
}
