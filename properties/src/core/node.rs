//! An honest node: the shipped machine of each group, a drifting clock, and operations that wait or run.

use std::collections::BTreeMap;

use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::node::{Acquired, NodeConfig, NodeGroup, WaiterId};
use tidegate_core::units::{Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

use super::system::{Proof, System};
use crate::input::Input;

/// Operations that run at once on a node; more are not begun.
const MOST_RUNNING: usize = 32;

/// An admitted operation that has not been settled.
#[derive(Clone, Copy)]
pub(super) struct Running {
    pub(super) group: GroupId,
    pub(super) estimate: Ru,
}

/// One honest node.
pub(super) struct Node {
    index: u64,
    pub(super) incarnation: u64,
    pub(super) seq: u64,
    pub(super) epoch: u64,
    /// Against the controller's clock, in millionths.
    drift: i64,
    pub(super) groups: BTreeMap<GroupId, NodeGroup>,
    pub(super) waiting: BTreeMap<(GroupId, WaiterId), Ru>,
    pub(super) running: Vec<Running>,
    /// The proofs of the newest grants applied.
    pub(super) proofs: BTreeMap<GroupId, Proof>,
}

impl Node {
    pub(super) fn new(index: usize, drift: i64) -> Self {
        Self {
            index: index as u64,
            incarnation: 1,
            seq: 0,
            epoch: 0,
            drift,
            groups: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: Vec::new(),
            proofs: BTreeMap::new(),
        }
    }

    pub(super) fn client(&self) -> ClientId {
        ClientId(self.index * 1_000 + self.incarnation)
    }

    /// What its clock shows at a true time.
    pub(super) fn clock(&self, now: Time) -> Time {
        let drifted = i128::from(now.0) * i128::from(1_000_000 + self.drift) / 1_000_000;
        Time(u64::try_from(drifted).unwrap_or(u64::MAX).saturating_add(1_000_000 * self.index))
    }
}

impl System {
    /// A node's clock, and its machine of a group.
    pub(super) fn machine(&mut self, node: usize, id: GroupId) -> Option<(Time, &mut NodeGroup)> {
        let drift_ppm = self.config.drift_ppm;
        let node = self.nodes.get_mut(node)?;
        let now = node.clock(self.now);
        let fresh =
            || NodeGroup::new(now, NodeConfig { drift_ppm, max_waiters: 64, ..NodeConfig::default() });
        Some((now, node.groups.entry(id).or_insert_with(fresh)))
    }

    /// One operation arrives; it runs, waits or is refused.
    pub(super) fn acquire(&mut self, node: usize, id: GroupId, cost: Ru, patience: Span) {
        let Some((now, machine)) = self.machine(node, id) else { return };
        match machine.acquire(now, cost, now.after(patience)) {
            Ok(Acquired::Now(_)) => self.admitted(node, id, cost.or_zero()),
            Ok(Acquired::Queued(waiter)) => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.waiting.insert((id, waiter), cost.or_zero());
                }
            }
            Err(_) => {}
        }
    }

    /// Takes all there is, in small operations.
    pub(super) fn drain(&mut self, node: usize, id: GroupId) {
        for _ in 0..40 {
            let Some((now, machine)) = self.machine(node, id) else { return };
            let available = machine.state(now).available;
            let cost = available.scale(1, 4).max(Ru(1));
            if machine.try_acquire(now, cost).is_err() {
                return;
            }
            self.admitted(node, id, cost);
            self.finish(node, usize::MAX, 0);
        }
    }

    fn admitted(&mut self, index: usize, id: GroupId, cost: Ru) {
        self.count(id, cost);
        let Some(node) = self.nodes.get_mut(index) else { return };
        node.running.push(Running { group: id, estimate: cost });
        if node.running.len() > MOST_RUNNING {
            self.finish(index, 0, 0);
        }
    }

    /// An operation ends; its true cost differs from the estimate by `dear` tenths of it.
    pub(super) fn finish(&mut self, index: usize, which: usize, dear: i64) {
        let Some(node) = self.nodes.get_mut(index) else { return };
        let Some(last) = node.running.len().checked_sub(1) else { return };
        let Running { group, estimate } = node.running.remove(which.min(last));
        let actual = estimate.scale(10 + dear, 10);
        self.count(group, actual - estimate);
        let used = Consumption { charged: RuParts::flat(actual), operations: 1, ..Consumption::default() };
        if let Some((now, machine)) = self.machine(index, group) {
            machine.settle(now, estimate, &used);
        }
    }

    /// An operation that was admitted never ran.
    pub(super) fn undo(&mut self, index: usize) {
        let Some(Running { group, estimate }) = self.nodes.get_mut(index).and_then(|node| node.running.pop())
        else {
            return;
        };
        self.count(group, Ru::ZERO - estimate);
        if let Some((now, machine)) = self.machine(index, group) {
            machine.give_back(now, now, estimate);
        }
    }

    /// A waiting operation goes away.
    pub(super) fn cancel(&mut self, index: usize) {
        let Some(((id, waiter), _)) = self.nodes.get_mut(index).and_then(|node| node.waiting.pop_first())
        else {
            return;
        };
        if let Some((now, machine)) = self.machine(index, id) {
            assert!(machine.cancel(now, waiter), "who waits can leave");
        }
    }

    /// Charges a cost without admission.
    pub(super) fn charge(&mut self, index: usize, id: GroupId, cost: Ru) {
        self.count(id, cost);
        let used = Consumption { charged: RuParts::flat(cost), operations: 1, ..Consumption::default() };
        if let Some((now, machine)) = self.machine(index, id) {
            machine.charge(now, &used);
        }
    }

    /// Serves the waiters.
    pub(super) fn poll(&mut self, index: usize) {
        let Some(node) = self.nodes.get_mut(index) else { return };
        let now = node.clock(self.now);
        let mut served = Vec::new();
        for (id, machine) in &mut node.groups {
            while let Some((waiter, outcome)) = machine.poll(now) {
                let cost = node.waiting.remove(&(*id, waiter)).expect("only who waits is told an outcome");
                served.extend(outcome.is_ok().then_some((*id, cost)));
            }
            assert!(machine.look().next_deadline(now).is_none_or(|at| at >= Time(0)));
        }
        for (id, cost) in served {
            self.admitted(index, id, cost);
        }
    }

    /// The process dies; its journal has what it charged.
    pub(super) fn kill(&mut self, index: usize) {
        self.close_books(index);
        let Some(node) = self.nodes.get_mut(index) else { return };
        (node.incarnation, node.seq) = (node.incarnation + 1, 0);
        node.groups.clear();
        node.waiting.clear();
        node.running.clear();
        node.proofs.clear();
    }

    /// Notes what a node charged, and adds what it ever owed to the stated overrun of each group and those above.
    pub(super) fn close_books(&mut self, index: usize) {
        let Some(node) = self.nodes.get(index) else { return };
        let client = node.client();
        let books = node
            .groups
            .iter()
            .map(|(id, machine)| (*id, *machine.consumption(), machine.look().worst_debt()));
        for (id, consumption, debt) in books.collect::<Vec<_>>() {
            self.charged.insert((client, id), consumption);
            for level in self.levels(id) {
                *self.overrun.entry(level).or_default() += debt;
            }
        }
    }

    /// A read-only look must never change what comes after; it must not panic either.
    pub(super) fn look(&mut self, index: usize, id: GroupId, input: &mut Input<'_>) {
        let cost = Ru(input.hostile());
        if let Some((now, machine)) = self.machine(index, id) {
            let before = machine.state(now);
            let _ = machine.check(now, cost);
            assert_eq!(machine.state(now), before, "a check spends nothing");
        }
    }
}
