//! Operations: they arrive at nodes in turns, are admitted, and end with what they cost.

use tidegate_core::units::{Ru, Span};

use super::groups::KINDS;
use super::node::Operation;
use super::nodes::{Event, Nodes};
use super::world::{Draws, MS, SECOND, World};

/// How operations of a group arrive at a node.
#[derive(Clone, Copy)]
pub(super) struct Load {
    gap: u64,
    is_on: bool,
}

impl Load {
    pub(super) fn drawn(draws: &Draws) -> Self {
        Self { gap: draws.among(&[300 * MS, 600 * MS, 2 * SECOND]), is_on: true }
    }
}

impl Operation {
    fn drawn(draws: &Draws, group: usize) -> Self {
        let rate = KINDS[group].rate();
        // Some need a lump, and some most of a burst.
        let part = draws.among(&[20, 20, 10, 10, 5, 2]);
        let most = rate.over(Span::secs(1)).scale(1, part).0;
        let estimate = Ru(1 + i64::try_from(draws.below(most.unsigned_abs())).unwrap());
        let actual = match draws.below(4) {
            0 => estimate.scale(1, 3),
            1 => estimate.scale(3, 2),
            _ => estimate,
        };
        let lasts = if draws.below(4) == 0 { draws.below(2 * SECOND) } else { 0 };
        Self { group, estimate, actual, lasts, waits: draws.among(&[0, 300 * MS, 2 * SECOND]) }
    }
}

impl Nodes {
    pub(super) fn arrive(&mut self, world: &World, node: usize, group: usize) {
        if self.is_over {
            return;
        }
        let draws = &world.draws;
        let load = self.loads.get_mut(&(node, group)).unwrap();
        if draws.below(24) == 0 {
            load.is_on = !load.is_on;
        }
        let (Load { gap, is_on }, now) = (*load, world.now());
        self.at(now + gap / 2 + draws.below(gap), Event::Arrive { node, group });
        if !is_on || !self.all[node].is_up {
            return;
        }
        for _ in 0..=draws.below(4) {
            let operation = Operation::drawn(draws, group);
            if self.all[node].arrive(now, operation) {
                self.start(world, node, operation);
            }
        }
        self.step(world, node);
    }

    pub(super) fn start(&mut self, world: &World, node: usize, operation: Operation) {
        self.windows.admitted += 1;
        self.count(world, operation.group, operation.estimate);
        if operation.lasts == 0 {
            return self.settle(world, node, &operation);
        }
        self.all[node].running += 1;
        let incarnation = self.all[node].incarnation;
        self.at(world.now() + operation.lasts, Event::Settle { node, incarnation, operation });
    }

    pub(super) fn settle(&mut self, world: &World, node: usize, operation: &Operation) {
        self.all[node].settle(world.now(), operation);
        self.count(world, operation.group, operation.actual - operation.estimate);
    }

    /// RU count in the windows of a group and those above it.
    fn count(&mut self, world: &World, group: usize, cost: Ru) {
        let (now, all) = (world.now(), &self.all);
        let overrun = |group| all.iter().map(|node| node.overrun(group)).sum();
        if let Err(broken) = self.windows.admit(now, group, cost, overrun) {
            panic!("seed {}: at {now}: {broken}", world.seed);
        }
    }
}
