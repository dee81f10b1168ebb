//! A state as text, for the path of a counterexample.

use super::Model;
use super::state::{Order, State};

impl Model {
    /// A line per node and one for each group.
    pub fn describe(&self, state: &State) -> Vec<String> {
        let mut lines = Vec::new();
        for (place, (id, _)) in self.setting.groups.iter().enumerate() {
            if let Some(view) = state.controller.engine.group_view(*id) {
                let excess = state.windows.get(place).copied().unwrap_or_default().excess();
                lines.push(format!(
                    "g{} committed {}, held {}, pool {}; worst window {excess} above",
                    id.0, view.committed, view.held, view.pool
                ));
            }
        }
        for (node, machine) in state.nodes.iter().enumerate() {
            let clock = self.clock(state.now, node);
            let look = machine.group.clone().state(clock);
            let under_way = state.links.get(node).map_or((0, 0), |link| (link.up.len(), link.down.len()));
            lines.push(format!(
                "n{node} {:?} {} cap {} tokens {}, {} waiting, {} up, {} down{}",
                look.lease,
                look.rate,
                look.cap,
                look.available,
                look.waiting,
                under_way.0,
                under_way.1,
                state.links.get(node).map_or_else(String::new, |link| {
                    link.down
                        .iter()
                        .map(|down| match &down.order {
                            Order::Granted(seq, Some((grant, _))) => format!("; answer to {seq}: {grant:?}"),
                            Order::Granted(seq, None) => format!("; answer to {seq}: stale"),
                            Order::Lower(rate) => format!("; lower to {rate}"),
                        })
                        .collect()
                })
            ));
        }
        lines
    }
}
