//! A group with a fallback goes on where there is no lease: while nodes are cut off, and while the controller recovers.
//!
//! The operation at the head of a node's queue is let in when the bucket of the fallback covers it, after what the node
//! owes. Computed from the messages that the node took in; its own budget counts for nothing here.

use tidegate_core::group::GroupId;
use tidegate_core::node::WaiterId;
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::world::World;

/// Beside the wait for an answer that an idle group begins with and what its bucket, which begins empty, takes to cover
/// an operation: wake-ups and clocks are not exact.
const INEXACT: Span = Span::millis(1_200);

/// A queue from which nobody was let in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hunger {
    since: Time,
    /// The fallback covers the head of the queue within this time.
    longest: Span,
    rate: Rate,
}

impl World {
    /// An operation that was let in before cost more than it took, and what it lacked is paid first.
    pub(super) fn owes_more(&mut self, node: usize, group: GroupId, lacking: Ru) {
        if let Some(hunger) = self.hungry.get_mut(&(node, group)) {
            let paid_in = hunger.rate.time_for(lacking.or_zero());
            hunger.longest += paid_in.unwrap_or_default();
        }
    }

    /// An operation was let in, or none waits: hunger begins again.
    pub(super) fn fed(&mut self, node: usize, group: GroupId) {
        self.hungry.remove(&(node, group));
    }

    /// Looks at those who wait on a node.
    pub(super) fn judge_hunger(&mut self, node: usize) {
        let now = self.clock(node);
        let Some(state) = self.nodes.get_mut(node).filter(|state| self.checked && state.lies.is_none())
        else {
            return;
        };
        let stopped_until = state.paused_until;
        let mut heads: Vec<(GroupId, Rate, Span)> = Vec::new();
        for (id, machine) in &mut state.groups {
            let mut waiting = state.waiting.range((*id, WaiterId(0))..).take_while(|((of, _), _)| of == id);
            let fallback = state.holdings.get_mut(id).and_then(|holding| holding.falls_back(now));
            let (Some((_, head)), Some((rate, cap))) = (waiting.next(), fallback) else { continue };
            if self.shares.heard_used_up(node, *id, head.cost) {
                // The fallback is not for what the quota has no more of.
                continue;
            }
            let needed = head.cost.min(cap) + machine.state(now).debt;
            let answer = machine.look().fallback_wait();
            heads.extend(rate.time_for(needed).map(|covered| (*id, rate, answer + covered)));
        }
        self.hungry.retain(|(of, group), _| *of != node || heads.iter().any(|(id, ..)| id == group));
        for (id, rate, wait) in heads {
            // The debt at the beginning counts, while it is paid.
            let hunger =
                self.hungry.entry((node, id)).or_insert(Hunger { since: self.now, longest: wait, rate });
            hunger.longest = wait.max(hunger.longest);
            let since = hunger.since.max(stopped_until);
            if self.now.since(since) > INEXACT + hunger.longest {
                self.violate(format!(
                    "group {}: nobody was let in on node {node} for {} though its fallback is {rate}",
                    id.0,
                    self.now.since(since)
                ));
            }
        }
    }
}
