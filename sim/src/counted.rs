//! What a start knows of leases: a controller that does not recover a group counts at least what each node may use of it,
//! by the messages that the node took in, for at least as long. So a stop in order saves all that is out.

use tidegate_core::group::GroupId;
use tidegate_core::units::{Rate, Ru, Span};

use super::controller::client;
use super::world::World;

/// Clocks are read in whole microseconds, and micro-RU are rounded.
const ROUNDING: Span = Span(10);

impl World {
    /// A controller has started.
    pub(super) fn judge_counted(&mut self) {
        if !self.checked || !self.controller.is_up() {
            return;
        }
        // Of a group that came back under its name, leases of the one before may be out, which counts above it.
        // Where nothing is limited, nothing is counted.
        let limited = |id: GroupId| {
            self.chain(id)
                .iter()
                .any(|above| self.specs.get(above).is_some_and(|spec| spec.limit().is_some()))
        };
        let ids = self.specs.keys().copied();
        let ids = ids.filter(|id| !self.returned.contains_key(id) && limited(*id));
        let known: Vec<GroupId> = ids.filter(|id| !self.controller.is_recovering(*id)).collect();
        for id in known {
            let rows = self.controller.leases(id);
            for node in 0..self.nodes.len() {
                let (now, reads) = (self.clock(node), self.now.max(self.controller.busy_until()));
                let Some(state) = self.nodes.get_mut(node).filter(|state| state.up && state.lies.is_none())
                else {
                    continue;
                };
                let holder = (client(node), state.incarnation);
                let in_hand = state.holdings.get_mut(&id).and_then(|holding| holding.in_hand(now));
                let Some((rate, lump, end)) = in_hand else { continue };
                let rounded = Ru(lump.0.saturating_sub(i64::try_from(ROUNDING.0).unwrap_or(0)));
                // A lease of nothing need not be known.
                if rate == Rate::ZERO && !rounded.is_positive() {
                    continue;
                }
                let left = self.true_time(node, end).since(reads);
                let row = rows.iter().find(|row| row.client == holder);
                let counted = row.is_some_and(|row| {
                    row.lease.unlimited
                        || row.lease.committed >= rate
                            && row.lease.lump >= rounded
                            && row.expires_in + ROUNDING >= left
                });
                if !counted && left > ROUNDING {
                    return self.violate(format!(
                        "I5: node {node} may use {rate} and a lump of {lump} of group {} for {left}, and after its start \
                         the controller counts {row:?}",
                        id.0
                    ));
                }
            }
        }
    }
}
