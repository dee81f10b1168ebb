//! Nodes that renew with the grant engine, one each a second, as their demand changes: what the shipped node reports
//! without the node.
//!
//! Each holds what it was granted last, lowered where the engine ordered so, and acknowledges at once when it is
//! asked to. Together they want a little more than the group has.

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::error::BenchError;
use tidegate_sim::random::Random;

/// The limit of the group.
const LIMIT: Rate = Rate::whole(1_000_000);

/// A node as the engine sees it.
#[derive(Clone, Copy, Default)]
struct Node {
    acked_seq: u64,
    held: Held,
}

/// An engine and the nodes of one group.
pub struct Renewals {
    engine: Engine,
    group: GroupId,
    nodes: Vec<Node>,
    next: usize,
    seq: u64,
    now: Time,
    random: Random,
}

impl Renewals {
    /// `clients` nodes of a group `depth` levels below the root, each of which has renewed often enough to have its
    /// share.
    pub fn start(clients: usize, depth: u32) -> Result<Self, BenchError> {
        let mut engine = Engine::new(Time(0), EngineConfig::default());
        let first = GroupId::DEFAULT.0 + 1;
        for level in 0..depth {
            let parent = level.checked_sub(1).map(|above| GroupId(first + above));
            let spec = GroupSpec { parent, ..GroupSpec::capped(LIMIT) };
            let put = engine.put_group(Time(0), GroupId(first + level), spec);
            put.map_err(|error| BenchError::Wrong(format!("the group is refused: {error:?}")))?;
        }
        let group = GroupId(first + depth.saturating_sub(1));
        let nodes = vec![Node::default(); clients];
        let mut renewals =
            Self { engine, group, nodes, next: 0, seq: 0, now: Time(0), random: Random::new(7, 3) };
        for _ in 0..clients * 4 {
            renewals.renew()?;
        }
        Ok(renewals)
    }

    /// The next node renews; once more when it is asked to acknowledge at once. How many renewals that was.
    pub fn renew(&mut self) -> Result<u64, BenchError> {
        let count = self.nodes.len();
        self.now = self.now.after(Span(1_000_000 / u64::try_from(count).unwrap_or(1)));
        self.next = (self.next + 1) % count;
        let fair = LIMIT.0 / i64::try_from(count).unwrap_or(1);
        let most = u64::try_from(fair).unwrap_or(0) * 11 / 5;
        let demand = Rate(i64::try_from(self.random.between(0, most)).unwrap_or(0));
        if !self.ask(demand)? {
            return Ok(1);
        }
        self.ask(demand)?;
        Ok(2)
    }

    /// One renewal of the node whose turn it is; whether it is to acknowledge at once.
    fn ask(&mut self, demand: Rate) -> Result<bool, BenchError> {
        let Some(node) = self.nodes.get(self.next).copied() else { return Ok(false) };
        self.seq += 1;
        let client = ClientId(u64::try_from(self.next).unwrap_or(0) + 1);
        let ask = Ask { acked_seq: node.acked_seq, held: node.held, demand, ..Ask::default() };
        let grant = self.engine.renew(self.now, client, self.group, self.seq, &ask, None);
        let Some(Grant::Leased(terms)) = grant else {
            return Err(BenchError::Wrong(format!("a renewal was answered with {grant:?}")));
        };
        let held = Held { rate: terms.rate, cap: terms.cap, lump: Ru::ZERO };
        if let Some(node) = self.nodes.get_mut(self.next) {
            *node = Node { acked_seq: self.seq, held };
        }
        for order in self.engine.take_lowers() {
            let index = usize::try_from(order.client.0).unwrap_or(0).checked_sub(1);
            if let Some(node) = index.and_then(|index| self.nodes.get_mut(index)) {
                node.held.rate = node.held.rate.min(order.rate_at_most);
            }
        }
        Ok(terms.ack_now)
    }

    /// RU/s leased of the group's limit, as a check that the group is busy.
    pub fn leased_share(&self) -> f64 {
        let committed = self.engine.group_view(self.group).map_or(0, |view| view.committed.0);
        committed as f64 / LIMIT.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_nearly_all_leased_and_never_over() {
        for (clients, depth) in [(1, 1), (10, 3), (200, 3)] {
            let mut renewals = Renewals::start(clients, depth).unwrap();
            for _ in 0..clients * 3 {
                renewals.renew().unwrap();
            }
            let share = renewals.leased_share();
            assert!(share <= 1.0 && (clients == 1 || share > 0.5), "{clients} clients: {share}");
            renewals.engine.check().unwrap();
        }
    }
}
