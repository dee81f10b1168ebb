//! Doing harm to the world, and judging it all the same.

use tidegate_core::group::{Fallback, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::disk::Death;
use super::measure::Bound;
use super::network::Faults;
use super::random::Random;
use super::world::{Event, World};

impl World {
    /// Lets the controller recover as long as the groups of the world need, and no longer.
    ///
    /// # Errors
    /// What the controller says.
    pub fn shorten_recovery(&mut self) -> Result<(), String> {
        self.controller.shorten_recovery()
    }

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

    /// Every node may run every one of these groups at its fallback rate, on a clock that is fast.
    pub fn allow_fallbacks<'g>(&mut self, specs: impl Iterator<Item = &'g GroupSpec>) {
        let rate = |spec: &GroupSpec| match spec.fallback {
            Fallback::Rate(rate) => rate,
            Fallback::Stop | Fallback::Unlimited => Rate::ZERO,
        };
        let sum = specs.map(rate).fold(Rate::ZERO, |sum, rate| sum + rate);
        let nodes = i64::try_from(self.nodes.len()).unwrap_or(i64::MAX);
        self.fallbacks = sum.scale(nodes, 1).scale(1_002, 1_000);
    }

    /// The rate of a group's bound.
    pub(super) fn bound_rate(&self, spec: &GroupSpec) -> Rate {
        spec.limit().map_or(Rate::MAX, |limit| limit + self.fallbacks)
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

    /// Cuts one direction of a node's link for a while.
    pub fn cut(&mut self, node: usize, direction: usize, span: Span) {
        let until = self.now.after(span);
        if let Some(link) = self.nodes.get_mut(node).and_then(|state| state.links.get_mut(direction)) {
            link.cut_until = until.max(link.cut_until);
        }
    }

    /// From now on a node says what is not so. What it spends does not count from here on, and it may hand back as
    /// unspent what it spent and was counted before: no window reaches back beyond this.
    pub fn lie(&mut self, node: usize) {
        let seed = self.fates.bits();
        let now = self.now;
        if !self.lies(node) {
            self.bounds.values_mut().for_each(|bound| bound.begin_anew(now));
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

    /// Changes a definition while leases are out. For one lease length the bound is that of the more generous
    /// definition; a move makes the windows of all who are concerned begin anew after that.
    pub fn change_group(&mut self, id: GroupId, spec: GroupSpec) {
        let before = self.specs.get(&id).cloned();
        if before.as_ref() != Some(&spec) && self.put_group(id, spec).is_ok() {
            self.unsettle(id, before.as_ref());
        }
    }

    /// Lets the windows of a changed group, its ancestors and its parent of before begin anew when all leases of
    /// before have ended.
    pub(super) fn unsettle(&mut self, id: GroupId, before: Option<&GroupSpec>) {
        // Leases made just before, on the controller's clock.
        let longest = self.specs.values().map(|spec| spec.ttl).max().unwrap_or_default();
        let settled = self
            .now
            .max(self.old_until)
            .after(longest)
            .after(Span(longest.0 / 1_000))
            .after(Span::millis(60));
        let mut level = Some(id);
        while let Some(id) = level {
            self.restart_bound(id, settled);
            level = self.specs.get(&id).and_then(|spec| spec.parent);
        }
        if let Some(parent) = before.and_then(|spec| spec.parent) {
            self.restart_bound(parent, settled);
        }
    }

    fn restart_bound(&mut self, id: GroupId, settled: Time) {
        let rate = self.specs.get(&id).map_or(Rate::MAX, |spec| self.bound_rate(spec));
        let latest = self.settling.get(&id).map_or(settled, |(until, _)| settled.max(*until));
        self.settling.insert(id, (latest, rate));
    }

    /// Takes an admission into account in a group's bound.
    pub(super) fn count(&mut self, id: GroupId, cost: Ru) {
        if let Some((until, rate)) = self.settling.get(&id).copied() {
            if self.now < until {
                return;
            }
            self.settling.remove(&id);
            self.bounds.insert(id, Bound::new(self.now, rate));
        }
        if let Some(bound) = self.bounds.get_mut(&id) {
            bound.admit(self.now, cost);
        }
    }

    /// I5 of a group.
    ///
    /// # Errors
    /// The worst window is above burst and overrun.
    pub fn judge_bound(&mut self, id: GroupId) -> Result<(), String> {
        let Some(depth) = self.depth(id) else {
            return Ok(());
        };
        if self.settling.contains_key(&id) {
            // Nothing was admitted since the last change came into force.
            return Ok(());
        }
        let overrun = self.overrun(id);
        let (worst, window) =
            self.bounds.get(&id).map_or((Ru::ZERO, Span(0)), |bound| (bound.worst(), bound.worst_window()));
        // A node whose clock is fast may see a microsecond more than there was.
        let tick = self.specs.get(&id).and_then(GroupSpec::limit).map_or(Ru::ZERO, |rate| rate.over(Span(1)));
        if worst <= depth + overrun + tick + Ru(1) {
            return Ok(());
        }
        Err(format!(
            "I5: group {}: {worst} above rate * window in {window}, burst {depth}, overrun {overrun}",
            id.0
        ))
    }

    /// The burst of a group's bound: its own, and a second of every fallback.
    fn depth(&self, id: GroupId) -> Option<Ru> {
        let depth = self.specs.get(&id).and_then(GroupSpec::depth)?;
        Some(depth + self.fallbacks.over(Span::secs(1)))
    }

    /// The worst window of a group, in thousandths of its burst and overrun.
    pub fn share_of_bound(&self, id: GroupId) -> u64 {
        let (Some(depth), Some(bound), false) =
            (self.depth(id), self.bounds.get(&id), self.settling.contains_key(&id))
        else {
            return 0;
        };
        let allowed = i128::from((depth + self.overrun(id)).0.max(1));
        u64::try_from(i128::from(bound.worst().0) * 1_000 / allowed).unwrap_or(0)
    }

    /// Checks the engine's invariants, when asked to.
    pub(super) fn check(&mut self) {
        // A check walks all groups: among many, every so often is enough.
        let now_and_then = 1 + self.specs.len() as u64 / 16;
        if self.checked
            && self.next_event.is_multiple_of(now_and_then)
            && self.violation.is_none()
            && let Err(broken) = self.controller.check()
        {
            self.violate(broken);
        }
    }
}
