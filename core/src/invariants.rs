//! Invariants I1 to I3, checked after every change in debug builds and in every simulation.

use crate::engine::Engine;
use crate::tree::Group;
use crate::units::{Rate, Ru};

impl Engine {
    /// Checks the invariants of every group; cheap enough for tests, absent from release builds.
    ///
    /// # Panics
    /// When one does not hold, which is a defect of this crate and never of an input.
    pub(crate) fn assert_invariants(&mut self) {
        let broken = if cfg!(debug_assertions) { self.check().err() } else { None };
        if let Some(broken) = broken {
            #[expect(clippy::panic, reason = "a broken invariant must stop a test at the step that broke it")]
            {
                panic!("{broken}");
            }
        }
    }

    /// Checks the invariants of every group.
    ///
    /// # Errors
    /// Says which invariant does not hold, for which group, with the numbers.
    pub fn check(&mut self) -> Result<(), String> {
        let ids: Vec<_> = self.tree.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.check_sums(id)?;
            if let Some(group) = self.tree.get_mut(id) {
                check_group(group).map_err(|broken| format!("group {}: {broken}", id.0))?;
            }
        }
        Ok(())
    }

    /// The running sums equal the sums of the leases below.
    fn check_sums(&self, id: crate::group::GroupId) -> Result<(), String> {
        let Some(group) = self.tree.get(id) else {
            return Ok(());
        };
        let below = |pick: fn(&Group) -> i64| -> i64 {
            group.children.iter().filter_map(|child| self.tree.get(*child)).map(pick).sum()
        };
        let committed: i64 =
            group.leases.values().map(|lease| lease.committed().0).sum::<i64>() + below(|g| g.committed.0);
        let held: i64 = group.leases.values().map(|lease| lease.hold().0).sum::<i64>() + below(|g| g.held.0);
        if (committed, held) != (group.committed.0, group.held.0) {
            return Err(format!(
                "group {}: sums drifted: committed {} is {committed}, held {} is {held}",
                id.0, group.committed.0, group.held.0
            ));
        }
        Ok(())
    }
}

fn check_group(group: &mut Group) -> Result<(), String> {
    group.committed_legacy = group.committed_legacy.min(group.committed);
    group.held_legacy = group.held_legacy.min(group.held);
    let (Some(limit), Some(depth)) = (group.spec.limit(), group.spec.depth()) else {
        return Ok(());
    };
    if group.committed > limit.max(group.committed_legacy) || group.committed < Rate::ZERO {
        return Err(format!("I1: committed {} is above the limit {limit}", group.committed));
    }
    let held = group.pool.tokens() + group.held;
    if held > depth.max(group.held_legacy) || group.pool.tokens() < Ru::ZERO {
        return Err(format!("I2: pool and held {held} are above the depth {depth}"));
    }
    if !group.pool.balances() {
        return Err(format!("I3: the books do not balance: {:?}", group.pool));
    }
    Ok(())
}
