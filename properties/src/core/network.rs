//! Messages between nodes and the controller, and what each side does with them when they arrive.

use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::node::Heard;
use tidegate_core::units::Rate;
use tidegate_core::usage::Total;

use super::system::{Proof, System};

/// Messages under way; older ones are lost.
const MOST_UNDER_WAY: usize = 48;

/// A message of or to an honest node.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Ask { node: usize, incarnation: u64, group: GroupId, seq: u64, ask: Ask, total: Box<Total> },
    Grant { node: usize, incarnation: u64, epoch: u64, group: GroupId, seq: u64, grant: Grant },
    Lower { node: usize, incarnation: u64, epoch: u64, group: GroupId, rate: Rate },
}

impl System {
    pub(super) fn send(&mut self, message: Message) {
        if self.network.len() >= MOST_UNDER_WAY {
            self.network.remove(0);
        }
        self.network.push(message);
    }

    /// A node renews one group.
    pub(super) fn ask(&mut self, index: usize, id: GroupId) {
        let Some(node) = self.nodes.get_mut(index) else { return };
        node.seq += 1;
        let (seq, incarnation) = (node.seq, node.incarnation);
        let Some((now, machine)) = self.machine(index, id) else { return };
        let (ask, total) = (machine.ask(now, seq), *machine.consumption());
        self.send(Message::Ask { node: index, incarnation, group: id, seq, ask, total: Box::new(total) });
    }

    pub(super) fn deliver(&mut self, message: Message) {
        match message {
            Message::Ask { node, incarnation, group, seq, ask, total } => {
                self.at_controller(node, incarnation, group, seq, &ask, &total);
            }
            Message::Grant { node, incarnation, epoch, group, seq, grant } => {
                if self.admit_epoch(node, incarnation, epoch) {
                    self.at_node(node, group, seq, epoch, &grant);
                }
            }
            Message::Lower { node, incarnation, epoch, group, rate } => {
                if self.admit_epoch(node, incarnation, epoch)
                    && let Some((now, machine)) = self.machine(node, group)
                {
                    machine.on_lower(now, rate);
                }
            }
        }
    }

    fn at_controller(
        &mut self,
        node: usize,
        incarnation: u64,
        group: GroupId,
        seq: u64,
        ask: &Ask,
        total: &Total,
    ) {
        let client = ClientId(node as u64 * 1_000 + incarnation);
        // An older report than one already counted is refused, whole.
        let _ = self.ledger.report(self.now, client, group, total);
        let proof = self.nodes.get(node).filter(|node| node.incarnation == incarnation);
        let proof = proof.and_then(|node| node.proofs.get(&group)).copied();
        let proven = proof.and_then(|proof| self.believe(&proof, ask.held));
        let grant = self.engine.renew(self.now, client, group, seq, ask, proven);
        let epoch = self.epoch;
        if let Some(grant) = grant {
            self.send(Message::Grant { node, incarnation, epoch, group, seq, grant });
        }
        self.push_lowers();
    }

    /// The claim that the adapter accepts from a genuine proof in recovery.
    pub(super) fn believe(&self, proof: &Proof, asked: Held) -> Option<Held> {
        (proof.epoch < self.epoch && proof.ends > self.now).then(|| Held {
            rate: proof.held.rate.min(asked.rate).max(Rate::ZERO),
            cap: proof.held.cap.min(asked.cap).or_zero(),
            lump: proof.held.lump.min(asked.lump).or_zero(),
        })
    }

    pub(super) fn push_lowers(&mut self) {
        let epoch = self.epoch;
        for order in self.engine.take_lowers() {
            let node = usize::try_from(order.client.0 / 1_000).unwrap_or(usize::MAX);
            let (group, rate, incarnation) = (order.group, order.rate_at_most, order.client.0 % 1_000);
            if node < self.nodes.len() {
                self.send(Message::Lower { node, incarnation, epoch, group, rate });
            }
        }
    }

    fn at_node(&mut self, node: usize, group: GroupId, seq: u64, epoch: u64, grant: &Grant) {
        let ends = match grant {
            Grant::Leased(terms) => self.now.after(terms.ttl),
            _ => self.now,
        };
        let Some((now, machine)) = self.machine(node, group) else { return };
        let before = machine.state(now);
        match machine.on_grant(now, seq, grant) {
            Heard::Applied => {}
            Heard::Extended => {
                let after = machine.state(now);
                assert!(after.rate <= before.rate && after.cap <= before.cap, "{before:?} to {after:?}");
                assert!(after.available <= before.available, "a late answer brings nothing: {after:?}");
                return;
            }
            Heard::Ignored => {
                assert_eq!(machine.state(now), before, "a late answer changes nothing");
                return;
            }
        }
        if let (Grant::Leased(terms), Some(node)) = (grant, self.nodes.get_mut(node)) {
            let lump = terms.lump + before.available.or_zero();
            let held = Held { rate: terms.rate, cap: terms.cap, lump };
            node.proofs.insert(group, Proof { held, ends, epoch });
        }
    }

    fn admit_epoch(&mut self, node: usize, incarnation: u64, epoch: u64) -> bool {
        let Some(node) = self.nodes.get_mut(node) else { return false };
        let current = node.incarnation == incarnation && epoch >= node.epoch;
        if current {
            node.epoch = epoch;
        }
        current
    }
}
