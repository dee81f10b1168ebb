//! The clocks of nodes, which run fast or slow.

use tidegate_core::units::Time;

use super::world::World;

impl World {
    /// What a node's clock says.
    pub(super) fn clock(&self, node: usize) -> Time {
        self.clock_at(node, self.now)
    }

    /// What a node's clock says at a moment.
    pub(super) fn clock_at(&self, node: usize, at: Time) -> Time {
        let drift = self.nodes.get(node).map_or(0, |state| state.drift_ppm);
        let read = i128::from(at.0) * i128::from(1_000_000 + drift) / 1_000_000;
        Time(u64::try_from(read).unwrap_or(u64::MAX))
    }

    /// When a node's clock will say so.
    pub(super) fn true_time(&self, node: usize, at: Time) -> Time {
        let drift = self.nodes.get(node).map_or(0, |state| state.drift_ppm);
        if drift == 0 {
            return at;
        }
        let time = i128::from(at.0) * 1_000_000 / i128::from(1_000_000 + drift) + 1;
        Time(u64::try_from(time).unwrap_or(u64::MAX))
    }
}
