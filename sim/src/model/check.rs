//! The checks after every step, beyond I1 to I3 inside the engine and I4 at every admission.

use tidegate_core::group::GroupId;
use tidegate_core::node::{LeaseState, NodeState};
use tidegate_core::units::{Rate, Ru, RuTotal, Time};

use super::Model;
use super::setting::NODES;
use super::state::{State, client};

impl Model {
    /// # Errors
    /// Says which promise is broken, with the numbers.
    pub(super) fn judge(&self, before: &State, state: &State) -> Result<(), String> {
        let looks = self.looks(state);
        for (place, (id, spec)) in self.setting.groups.iter().enumerate() {
            let (Some(limit), Some(depth)) = (spec.limit(), spec.depth()) else {
                continue;
            };
            let below = looks.iter().enumerate().filter(|(node, _)| self.runs_below(*node, *id));
            let (rate, tokens) = below.fold((Rate::ZERO, Ru::ZERO), |(rate, tokens), (_, look)| {
                (rate + look.rate, tokens + look.available.or_zero())
            });
            if rate > limit {
                return Err(format!(
                    "I1: nodes use {rate} of group {} together, above its limit {limit}",
                    id.0
                ));
            }
            let view = state.controller.engine.group_view(*id).ok_or("a group is gone")?;
            if view.pool + tokens > depth {
                return Err(format!(
                    "I2: pool {} and tokens of nodes {tokens} of group {} are above the depth {depth}",
                    view.pool, id.0
                ));
            }
            if state.controller.engine.recovering_until() <= state.now && tokens > view.held {
                return Err(format!(
                    "I2: nodes have {tokens} of group {}, and the ledger counts {}",
                    id.0, view.held
                ));
            }
            let excess = state.windows.get(place).copied().unwrap_or_default().excess();
            let most = depth + self.overrun(state, *id);
            if excess > most {
                return Err(format!(
                    "I5: group {} admitted {excess} above rate * window, burst and overrun are {most}",
                    id.0
                ));
            }
        }
        self.judge_leases(state, &looks)?;
        if before.books.print() != state.books.print()
            || before.nodes.each_ref().map(|n| n.print()) != state.nodes.each_ref().map(|n| n.print())
        {
            self.judge_books(state)?;
        }
        Ok(())
    }

    fn looks(&self, state: &State) -> [NodeState; NODES] {
        std::array::from_fn(|node| {
            let clock = self.clock(state.now, node);
            state
                .nodes
                .get(node)
                .map_or_else(NodeState::default, |machine| machine.group.clone().state(clock))
        })
    }

    fn runs_below(&self, node: usize, group: GroupId) -> bool {
        self.setting.chain(self.group_of(node)).contains(&group)
    }

    /// The most that each incarnation ever owed, in sum.
    fn overrun(&self, state: &State, group: GroupId) -> Ru {
        let debts = state.nodes.iter().zip(&state.books.dead_debt).enumerate();
        debts
            .filter(|(node, _)| self.runs_below(*node, group))
            .map(|(_, (machine, dead))| machine.group.look().worst_debt() + *dead)
            .sum()
    }

    /// Outside of recovery the ledger counts every lease that a node has, at no less than the node uses.
    fn judge_leases(&self, state: &State, looks: &[NodeState; NODES]) -> Result<(), String> {
        let engine = &state.controller.engine;
        if engine.recovering_until() > state.now {
            return Ok(());
        }
        for (node, (machine, look)) in state.nodes.iter().zip(looks).enumerate() {
            if look.lease != LeaseState::Leased || look.rate == Rate::ZERO {
                continue;
            }
            let holder = client(node, machine.incarnation);
            let counted = engine.leases(self.group_of(node)).find(|lease| lease.client == holder);
            let counted = counted.map(|lease| lease.committed);
            if counted.is_none_or(|committed| committed < look.rate) {
                return Err(format!("I1: n{node} uses {}, and the ledger counts {counted:?}", look.rate));
            }
        }
        Ok(())
    }

    /// I6: once the last reports are in, the ledger has what was charged, whether the controller dies before or not.
    fn judge_books(&self, state: &State) -> Result<(), String> {
        let mut reports = state.books.dead.clone();
        for (node, machine) in state.nodes.iter().enumerate() {
            let total = *machine.group.consumption();
            reports.push((client(node, machine.incarnation), self.group_of(node), total));
        }
        for (when, ledger) in [("", state.books.ledger.clone()), ("after a crash, ", state.books.loaded())] {
            let mut ledger = ledger;
            for (client, group, total) in &reports {
                if let Err(refused) = ledger.report(Time(0), *client, *group, total) {
                    return Err(format!("I6: {when}the last report of {client:?} is refused: {refused}"));
                }
            }
            for (id, _) in &self.setting.groups {
                let charged: RuTotal =
                    reports.iter().filter(|(_, group, _)| group == id).map(|(.., total)| total.ru()).sum();
                let counted = ledger.total(*id).ru();
                if counted != charged {
                    return Err(format!(
                        "I6: {when}the ledger has {counted} of group {}, and nodes charged {charged}",
                        id.0
                    ));
                }
            }
        }
        Ok(())
    }
}
