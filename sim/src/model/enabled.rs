//! Which steps are possible in a state.

use super::Model;
use super::setting::NODES;
use super::state::State;
use super::step::{Delays, Kind, Step};

impl Model {
    /// All steps that can come next, always in the same order.
    pub fn steps(&self, state: &State) -> Vec<Step> {
        let left = state.left;
        let mut steps = Vec::with_capacity(24);
        for node in 0..NODES {
            self.steps_of(state, node, &mut steps);
        }
        let dirty = state.books.ledger_is_dirty();
        for (possible, step) in [
            (left.ticks > 0 && self.asleep(state) <= left.pauses, Step::Tick),
            (left.commits > 0 && dirty, Step::Commit),
            (left.crashes > 0, Step::Crash),
            (left.restarts > 0, Step::Restart),
        ] {
            if possible {
                steps.push(step);
            }
        }
        steps
    }

    fn steps_of(&self, state: &State, node: usize, steps: &mut Vec<Step>) {
        let (Some(machine), Some(link)) = (state.nodes.get(node), state.links.get(node)) else {
            return;
        };
        let left = state.left;
        let may_be_late = |late: &Delays| left.delays > 0 || *late == Delays::default();
        for (kind, most) in [(Kind::Exact, u8::MAX), (Kind::Dear, left.dear), (Kind::Late, left.late)] {
            if left.operations > 0 && most > 0 {
                steps.push(Step::Arrive { node, kind });
            }
        }
        if machine.open > 0 {
            steps.extend([false, true].map(|as_dear| Step::Settle { node, as_dear }));
        }
        if left.cancels > 0 {
            steps.extend(machine.waiting.keys().map(|waiter| Step::Cancel { node, waiter: *waiter }));
        }
        if machine.stream < state.controller.epoch {
            steps.push(Step::Notice { node });
        } else if self.is_due(state, node) {
            let late = Delays::OF_RENEWAL.into_iter().filter(may_be_late);
            steps.extend(late.map(|late| Step::Renew { node, late }));
        }
        for (most, step) in [
            (left.resets, Step::Reset { node }),
            (left.kills, Step::Kill { node }),
            (left.leaves, Step::Leave { node, late: false }),
            (left.leaves.min(left.delays), Step::Leave { node, late: true }),
        ] {
            if most > 0 {
                steps.push(step);
            }
        }
        let ways: &[bool] = if left.repeats > 0 { &[false, true] } else { &[false] };
        for again in ways.iter().copied() {
            for place in 0..link.up.len() {
                let late = Delays::OF_ANSWER.into_iter().filter(may_be_late);
                steps.extend(late.map(|late| Step::ToController { node, place, late, again }));
            }
            steps.extend((0..link.down.len()).map(|place| Step::ToNode { node, place, again }));
        }
    }

    fn is_due(&self, state: &State, node: usize) -> bool {
        let now = self.clock(state.now, node);
        let due = state.nodes.get(node).and_then(|machine| machine.group.due(now));
        due.is_some_and(|due| due <= now)
    }

    /// Nodes that would sleep through something if time passed now.
    pub(super) fn asleep(&self, state: &State) -> u8 {
        let has_work = |node: &usize| {
            let stale = state.nodes.get(*node).is_some_and(|machine| machine.stream < state.controller.epoch);
            stale || self.is_due(state, *node)
        };
        u8::try_from((0..NODES).filter(has_work).count()).unwrap_or(u8::MAX)
    }
}
