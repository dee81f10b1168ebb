//! Processes that end and start: nodes, and the controller on its disk.

use std::collections::BTreeSet;

use tidegate_controller::service::Seen;
use tidegate_core::group::GroupId;
use tidegate_core::units::{Span, Time};

use super::disk::Death;
use super::network::Message;
use super::world::{Event, Node, World, user};

/// Up to this many groups, every start compares the ledger.
const FEW_GROUPS: usize = 16;

impl World {
    /// Kills a node: its waiters, tokens and leases are gone; what it charged is in its journal.
    pub fn kill_node(&mut self, node: usize) {
        self.toll.nodes += 1;
        self.cease(node);
    }

    /// Ends a node in order: nobody waits any more, and its leases and last reports go with its goodbye.
    pub fn end_node(&mut self, node: usize) {
        self.tally(node);
        let Some(state) = self.nodes.get_mut(node) else { return };
        state.seq += 1;
        let (connection, seq) = (state.connection, state.seq);
        let seen = Seen { epoch: state.epoch, standing: state.standing.clone() };
        let reports = state.reports.send(seq);
        self.tell(node, Message::Goodbye { connection, seen, seq, reports });
        self.toll.goodbyes += 1;
        self.cease(node);
    }

    fn cease(&mut self, node: usize) {
        self.tally(node);
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        state.up = false;
        for (group, machine) in std::mem::take(&mut state.groups) {
            *state.past_debt.entry(group).or_default() += machine.look().worst_debt();
        }
        self.shares.forget(node);
        state.holdings.clear();
        state.proofs.clear();
        let lost = std::mem::take(&mut state.waiting);
        state.wake = None;
        for operation in lost.into_values() {
            // The worker comes back with its node.
            self.next_of_closed(node, operation, Span(1_000));
        }
    }

    /// Starts a killed node under a new incarnation.
    pub fn start_node(&mut self, node: usize) {
        if let Some(state) = self.nodes.get_mut(node) {
            state.incarnation += 1;
        }
        self.begin_node(node);
    }

    /// Starts a killed node under the incarnation it had: it knows its totals and nothing else.
    pub fn start_node_again(&mut self, node: usize) {
        self.begin_node(node);
    }

    fn begin_node(&mut self, node: usize) {
        if let Some(state) = self.nodes.get_mut(node) {
            (state.up, state.seq) = (true, 0);
            state.process += 1;
            state.before = state.reports.of(state.incarnation);
        }
        self.lose_session(node);
    }

    /// Ends the controller without warning: leases and pools are lost, and what was not committed.
    pub fn crash_controller(&mut self, death: Death) {
        self.controller.die(death);
        self.stalled_until = Time(0);
        self.cool_curves();
        self.toll.controllers += 1;
        self.break_streams();
    }

    /// All streams to the controller break. Nodes that stay with one before it do not notice.
    fn break_streams(&mut self) {
        let leave: BTreeSet<usize> = (0..self.nodes.len()).filter(|node| !self.stays(*node)).collect();
        self.events
            .retain(|_, event| !matches!(event, Event::ToController { node, .. } if leave.contains(node)));
        leave.into_iter().for_each(|node| self.lose_session(node));
    }

    /// Another machine gets the disk, and a controller starts there. The one before it runs on for a while, and the
    /// nodes of `stay`, a bit for each, go on to talk to it.
    pub fn take_over(&mut self, stay: u64, span: Span) {
        self.end_old();
        let (old, started) = self.controller.succeed();
        if let Err(error) = started {
            return self.violate(format!("no controller takes over: {error}"));
        }
        self.note(|| "another controller takes over".to_owned());
        self.old_until = self.now.after(old.fence());
        self.old = Some(old);
        self.toll.takeovers += 1;
        self.at(self.now.after(span), Event::EndOld { number: self.toll.takeovers });
        for node in 0..self.nodes.len() {
            if let Some(state) = self.nodes.get_mut(node) {
                state.old_connection = state.connection;
            }
            if stay >> (node % 64) & 1 == 0 {
                self.lose_session(node);
            }
        }
        self.judge_start();
    }

    /// The controller that another took over from ends. Nodes that stayed with it go to the other.
    pub(super) fn end_old(&mut self) {
        let stayed: Vec<usize> = (0..self.nodes.len()).filter(|node| self.stays(*node)).collect();
        self.old = None;
        for node in stayed {
            self.lose_session(node);
            self.step(node);
        }
    }

    /// Whether a node still talks to the controller that another took over from.
    pub(super) fn stays(&self, node: usize) -> bool {
        let stays = |state: &Node| state.connection <= state.old_connection;
        self.old.is_some() && self.nodes.get(node).is_some_and(stays)
    }

    /// Whether the controller died in a sync; then it is seen to, and starts again later.
    pub(super) fn died(&mut self) -> bool {
        let died = self.controller.has_died();
        if died {
            let death = if self.fates.one_in(2) { Death::Killed } else { Death::PowerCut };
            self.note(|| format!("the controller died in a sync: {death:?}"));
            self.toll.in_sync += 1;
            self.crash_controller(death);
            self.at(self.now.after(self.restart_after), Event::StartController);
        }
        died
    }

    /// A node's stream is reset: what was under way is gone.
    pub fn reset_stream(&mut self, index: usize) {
        self.events.retain(|_, event| {
            !matches!(event, Event::ToController { node, .. } | Event::ToNode { node, .. } if *node == index)
        });
        self.lose_session(index);
        // The next stream sends all definitions again.
        let specs: Vec<GroupId> = self.specs.keys().copied().collect();
        for group in specs {
            self.send(index, Message::Changed { group });
        }
        for load in 0..self.loads.len() {
            if let Some(group) = self.bound.get(&user(load)).copied() {
                self.send(index, Message::Bound { load, group });
            }
        }
    }

    pub(super) fn lose_session(&mut self, node: usize) {
        let now = self.clock(node);
        if let Some(state) = self.nodes.get_mut(node) {
            state.connection += 1;
            state.reports.unsure();
            state.groups.values_mut().for_each(|group| group.on_session_lost(now));
        }
    }

    /// Starts the controller again, on what is on its disk.
    pub fn start_controller(&mut self) {
        if self.controller.is_up() {
            return;
        }
        if let Err(error) = self.controller.start() {
            // It died once more, or the disk takes no writes until it is repaired.
            if self.controller.disk.is_dead() || self.controller.disk.is_failing() {
                self.crash_controller(Death::PowerCut);
                self.at(self.now.after(self.restart_after), Event::StartController);
            } else {
                self.violate(format!("the controller does not start: {error}"));
            }
            return;
        }
        self.judge_start();
    }

    /// Everything that was acknowledged must be there.
    fn judge_start(&mut self) {
        self.settle_doubt();
        let lost = self
            .specs
            .iter()
            .find(|(id, spec)| self.controller.definition(**id) != Some(self.text(**id, spec)));
        if let Some((id, spec)) = lost {
            let found = self.controller.definition(*id);
            self.violate(format!("group {} was acknowledged as {spec:?} and is {found:?}", id.0));
        }
        let unbound = self.bound.iter().find(|(user, group)| self.controller.bound(user) != Some(**group));
        if let Some((user, group)) = unbound {
            let found = self.controller.bound(user);
            self.violate(format!("{user} was acknowledged to be bound to {} and is to {found:?}", group.0));
        }
        if self.specs.len() <= FEW_GROUPS {
            let ids: Vec<GroupId> = self.specs.keys().copied().collect();
            ids.into_iter().for_each(|id| self.judge_reported(id));
            self.judge_counted();
        }
    }

    /// Clean restart: leases and pools are saved and restored.
    pub fn restart_controller(&mut self) {
        if self.stop_controller() {
            self.start_controller();
        }
    }

    /// Ends the controller in order. False when it died in the attempt, and starts again by itself.
    pub(super) fn stop_controller(&mut self) -> bool {
        let stopped = self.controller.stop();
        if self.died() {
            return false;
        }
        if stopped.is_err() {
            // Nothing can be saved: it ends all the same.
            self.crash_controller(Death::Killed);
        }
        self.break_streams();
        true
    }
}
