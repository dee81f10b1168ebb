//! Shrinking a failing plan to what it takes.

use tidegate_core::group::{Fallback, GroupId};
use tidegate_core::node::NodeConfig;

use super::Plan;
use crate::network::Faults;
use crate::settling::Settling;

impl Plan {
    /// The smallest plan found that still fails, by leaving out what is not needed.
    #[must_use]
    pub fn shrink(&self) -> Self {
        let mut smallest = self.clone();
        loop {
            let Some(smaller) = smallest.reductions().into_iter().find(|plan| plan.run().is_err()) else {
                return smallest;
            };
            smallest = smaller;
        }
    }

    fn reductions(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        let half = self.actions.len() / 2;
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            plans.push(plan);
        };
        if half > 0 {
            with(&|plan| drop(plan.actions.drain(..half)));
            with(&|plan| plan.actions.truncate(half));
        }
        for index in 0..self.actions.len() {
            with(&|plan| {
                plan.actions.remove(index);
            });
        }
        if self.loads.len() > 1 {
            for index in 0..self.loads.len() {
                with(&|plan| {
                    plan.loads.remove(index);
                });
            }
        }
        if self.faults.lost + self.faults.repeated + self.faults.late > 0 || self.faults.unordered {
            with(&|plan| plan.faults = Faults::default());
            for clear in [
                (|faults: &mut Faults| faults.lost = 0) as fn(&mut Faults),
                |faults| faults.repeated = 0,
                |faults| faults.late = 0,
                |faults| faults.unordered = false,
            ] {
                let mut faults = self.faults;
                clear(&mut faults);
                if faults != self.faults {
                    with(&|plan| plan.faults = faults);
                }
            }
        }
        if self.loads.iter().any(|load| load.settling != Settling::default()) {
            with(&|plan| plan.loads.iter_mut().for_each(|load| load.settling = Settling::default()));
        }
        if self.idle_after != NodeConfig::default().idle_after {
            with(&|plan| plan.idle_after = NodeConfig::default().idle_after);
        }
        if self.drifts.len() > 1 {
            with(&|plan| plan.drop_last_node());
        }
        for (id, _) in self.groups.iter().filter(|_| self.groups.len() > 1) {
            with(&|plan| plan.drop_group(*id));
        }
        if self.groups.iter().any(|(_, spec)| spec.quota.is_some()) {
            with(&|plan| plan.groups.iter_mut().for_each(|(_, spec)| spec.quota = None));
        }
        if self.fence.is_some() {
            with(&|plan| plan.fence = None);
        }
        if self.groups.iter().any(|(_, spec)| spec.fallback != Fallback::Stop) {
            with(&|plan| plan.groups.iter_mut().for_each(|(_, spec)| spec.fallback = Fallback::Stop));
        }
        if self.groups.iter().any(|(_, spec)| spec.fallback_total.is_some()) {
            with(&|plan| plan.groups.iter_mut().for_each(|(_, spec)| spec.fallback_total = None));
        }
        if self.drifts.iter().any(|drift| *drift != 0) {
            with(&|plan| plan.drifts.fill(0));
        }
        plans
    }
    /// The last node goes, with what happens to it; loads go on with those before it.
    fn drop_last_node(&mut self) {
        self.drifts.pop();
        let nodes = self.drifts.len();
        self.loads.retain(|load| load.nodes.0 < nodes);
        self.loads.iter_mut().for_each(|load| load.nodes.1 = load.nodes.1.min(nodes - 1));
        self.actions.retain(|(_, action)| action.node() != Some(nodes));
    }

    /// A group goes, with its loads and changes; those below it come under its parent.
    fn drop_group(&mut self, id: GroupId) {
        let parent = self.groups.iter().find(|(known, _)| *known == id).and_then(|(_, spec)| spec.parent);
        self.groups.retain(|(known, _)| *known != id);
        self.rolls.remove(&id);
        for (_, spec) in &mut self.groups {
            if spec.parent == Some(id) {
                spec.parent = parent;
            }
        }
        self.loads.retain(|load| load.group != id);
        self.actions.retain(|(_, action)| action.group() != Some(id));
    }
}
