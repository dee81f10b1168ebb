//! Doing harm to the world, and judging it all the same.

use tidegate_core::units::{Span, Time};

use super::disk::Death;
use super::network::Faults;
use super::random::Random;
use super::world::{Event, World};

impl World {
    /// How much faster than true time the clock of each node runs, in millionths.
    pub fn set_drifts(&mut self, drifts_ppm: &[i64]) {
        for (node, drift_ppm) in self.nodes.iter_mut().zip(drifts_ppm) {
            node.drift_ppm = *drift_ppm;
        }
    }

    /// Groups without operations give their leases up after this.
    pub fn set_idle_after(&mut self, span: Span) {
        self.config.idle_after = span;
    }

    /// Whether a node runs.
    pub fn node_is_up(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|state| state.up)
    }

    /// Whether the controller runs.
    pub fn controller_is_up(&self) -> bool {
        self.controller.is_up()
    }

    /// Stops a node for a while.
    pub fn pause(&mut self, node: usize, span: Span) {
        let until = self.now.after(span);
        if let Some(state) = self.nodes.get_mut(node) {
            state.paused_until = state.paused_until.max(until);
        }
    }

    /// Stops the controller for a while; one that another took over from goes on.
    pub fn stall_controller(&mut self, span: Span) {
        self.stalled_until = self.stalled_until.max(self.now.after(span));
    }

    /// Whether the controller is stopped, or at a commit.
    pub(super) fn stalled(&self) -> bool {
        self.free_at() > self.now
    }

    /// Whether it is stopped.
    pub(super) fn frozen(&self) -> bool {
        self.stalled_until > self.now
    }

    /// When the controller goes on.
    pub(super) fn free_at(&self) -> Time {
        self.stalled_until.max(self.controller.busy_until())
    }

    /// The disk takes no writes for a while.
    pub fn interrupt_disk(&mut self, span: Span) {
        self.controller.disk.fail();
        self.at(self.now.after(span), Event::DiskReturns);
    }

    /// For a while every sync of the disk takes this long.
    pub fn slow_disk(&mut self, sync: Span, span: Span) {
        self.controller.disk.slow(sync, self.now.after(span));
    }

    /// Whether an event waits for a controller that is stopped.
    pub(super) fn is_for_controller(&self, event: &Event) -> bool {
        match event {
            Event::ToController { node, message, .. } => self.nodes.get(*node).is_some_and(|state| {
                message.connection().is_some_and(|connection| connection > state.old_connection)
            }),
            Event::Upkeep => self.old.is_none(),
            _ => false,
        }
    }

    /// Whether an event is for the controller that another took over from.
    pub(super) fn is_for_old(&self, event: &Event) -> bool {
        match event {
            Event::ToController { node, message, .. } => self.nodes.get(*node).is_some_and(|state| {
                message.connection().is_some_and(|connection| connection <= state.old_connection)
            }),
            _ => false,
        }
    }

    /// Cuts one direction of a node's link for a while.
    pub fn cut(&mut self, node: usize, direction: usize, span: Span) {
        let until = self.now.after(span);
        if let Some(link) = self.nodes.get_mut(node).and_then(|state| state.links.get_mut(direction)) {
            link.cut_until = until.max(link.cut_until);
        }
    }

    /// From now on a node lies. Its spending does not count from here on, and it may hand back as unspent what it spent
    /// and was counted before: no window reaches back beyond this.
    pub fn lie(&mut self, node: usize) {
        let seed = self.fates.bits();
        let now = self.now;
        if !self.lies(node) {
            self.bounds.values_mut().for_each(|capped| capped.begin_again(now));
        }
        if let Some(state) = self.nodes.get_mut(node) {
            state.lies.get_or_insert_with(|| Random::new(seed, 0));
        }
    }

    /// Whether a node lies.
    pub fn lies(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|state| state.lies.is_some())
    }

    /// Ends all faults: whatever is down starts, whatever is cut off or paused goes on.
    pub fn calm(&mut self) {
        self.faults = Faults::default();
        self.stalled_until = Time(0);
        for node in &mut self.nodes {
            node.links.iter_mut().for_each(|link| link.cut_until = Time(0));
            node.paused_until = Time(0);
        }
        let starts = |event: &Event| matches!(event, Event::StartNode { .. } | Event::StartController);
        let waiting: Vec<(Time, u64)> =
            self.events.iter().filter(|(_, event)| starts(event)).map(|(key, _)| *key).collect();
        for event in waiting.iter().filter_map(|key| self.events.remove(key)).collect::<Vec<_>>() {
            self.handle(event);
        }
        if self.controller.disk.is_failing() {
            self.crash_controller(Death::Killed);
            self.start_controller();
        }
        self.controller.disk.disarm();
        self.end_old();
    }

    /// The power of the controller's machine is cut, after a last commit, and it starts again.
    pub fn cut_power_and_start(&mut self) {
        self.controller.upkeep();
        self.crash_controller(Death::PowerCut);
        self.start_controller();
    }

    /// Checks I1 to I3 of every controller that lives and was touched, when asked to.
    pub(super) fn check(&mut self) {
        if !self.checked || self.violation.is_some() {
            return;
        }
        let living = [Some(&self.controller), self.old.as_ref()];
        let broken = living.into_iter().flatten().find_map(|controller| controller.check().err());
        if let Some(broken) = broken {
            self.violate(broken);
        }
    }
}
