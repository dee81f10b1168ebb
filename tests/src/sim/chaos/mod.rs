//! Random faults from a seed: a plan is drawn, run, and judged. A failing plan is shrunk to what it takes.
//!
//! Judged are I1 to I3 after every message the controller handled, I5 in every window of every group and its
//! ancestors, I6 at the end, and I7: whoever can be served is served once the faults are over.

mod draw;
mod shrink;

use std::fmt;

use tidegate_core::group::{Burstable, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::disk::Death;
use super::load::Load;
use super::network::Faults;
use super::world::{Event, Toll, World};

/// A fault or a change, at a moment.
#[derive(Clone, Debug)]
pub enum Action {
    /// A node dies; it starts again after this, as a new incarnation.
    Kill(usize, Span),
    /// The same, but it comes back as the incarnation it was.
    KillSame(usize, Span),
    /// A node is stopped for this long.
    Pause(usize, Span),
    /// Nothing passes from (0) or to (1) a node for this long.
    Cut(usize, usize, Span),
    /// A node's stream is reset.
    Reset(usize),
    /// The controller dies; it starts again after this.
    Crash(Span, Death),
    /// The controller dies in this sync of its disk, counted from now, and starts again after this.
    DieInSync(u32, Span),
    /// The controller's disk takes no more writes until it starts again.
    DiskFails,
    /// The controller is restarted in order.
    Restart,
    /// A group gets another rate.
    Rate(GroupId, Rate),
    /// A group gets no limit of its own, or its rate again.
    Burst(GroupId, Burstable),
    /// A group is moved under another, or to the top.
    Move(GroupId, Option<GroupId>),
    /// A group is removed.
    Remove(GroupId),
    /// The user of a load is bound to a group.
    Bind(usize, GroupId),
    /// A node says what is not so from now on; what it admits counts in no bound.
    Lie(usize),
    /// Another controller takes over. The one before runs on for this long without its disk, and the nodes of these
    /// bits stay with it.
    TakeOver(u64, Span),
}

/// All that happens in one run.
#[derive(Clone, Debug)]
pub struct Plan {
    seed: u64,
    drifts: Vec<i64>,
    delay: (Span, Span),
    faults: Faults,
    groups: Vec<(GroupId, GroupSpec)>,
    loads: Vec<Load>,
    actions: Vec<(Time, Action)>,
    fence: Option<Span>,
    /// Groups without operations give their leases up after this.
    idle_after: Span,
    /// When faults end; the run goes on for a while.
    calm_at: Time,
}

/// What a run shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Operations admitted.
    pub admitted: u64,
    /// The worst window of a group, in thousandths of its burst and overrun.
    pub worst: u64,
    /// What happened to processes.
    pub toll: Toll,
}

/// Time after the faults in which everyone must be served: recovery, one lease, and some renewals.
const CALM: Span = Span::secs(14);

impl Plan {
    /// Runs the plan.
    ///
    /// # Errors
    /// What was violated.
    pub fn run(&self) -> Result<Outcome, String> {
        self.run_traced(false).map_err(|(violation, _)| violation)
    }

    /// Runs the plan; a violation comes with the transcript.
    ///
    /// # Errors
    /// What was violated, and all messages.
    pub fn run_traced(&self, trace: bool) -> Result<Outcome, (String, String)> {
        let started = World::fenced(self.seed, self.drifts.len(), self.delay, self.fence);
        let mut world = started.map_err(|error| (error, String::new()))?;
        world.trace = trace.then(String::new);
        world.checked = true;
        world.set_drifts(&self.drifts);
        world.set_idle_after(self.idle_after);
        let result = self.drive(&mut world);
        result.map_err(|violation| (violation, world.trace.unwrap_or_default()))
    }

    fn drive(&self, world: &mut World) -> Result<Outcome, String> {
        world.shorten_recovery()?;
        world.allow_fallbacks(self.groups.iter().map(|(_, spec)| spec));
        for (id, spec) in &self.groups {
            world.put_group(*id, spec.clone())?;
        }
        for load in &self.loads {
            world.add_load(load.clone());
        }
        world.faults = self.faults;
        for (at, action) in &self.actions {
            world.run((*at).min(self.calm_at));
            act(world, action);
            world.died();
        }
        world.run(self.calm_at);
        world.calm();
        self.judge(world)
    }

    /// Time after the faults: a successor waits for the fence of the one before, and recovers longer for it.
    fn calm(&self) -> Span {
        let fence = self.fence.unwrap_or_default();
        CALM + fence + fence
    }

    fn judge(&self, world: &mut World) -> Result<Outcome, String> {
        let before: Vec<u64> = self.loads.iter().map(|load| admitted(world, load)).collect();
        let owed: Vec<Ru> = self.loads.iter().map(|load| world.owed(load.group)).collect();
        world.run(self.calm_at.after(self.calm()));
        if let Some(violation) = &world.violation {
            return Err(violation.clone());
        }
        let mut outcome = Outcome::default();
        for (id, _) in &self.groups {
            world.judge_bound(*id)?;
            outcome.worst = outcome.worst.max(world.share_of_bound(*id));
        }
        outcome.toll = world.toll();
        self.judge_books(world)?;
        outcome.admitted = self.loads.iter().map(|load| admitted(world, load)).sum();
        let rebound = self.actions.iter().any(|(_, action)| matches!(action, Action::Bind(..)));
        for (load, owed) in self.loads.iter().zip(owed).filter(|_| !rebound) {
            // Loads of one group may crowd each other out, by impatience; the group as a whole must go on.
            let of_group = || self.loads.iter().zip(&before).filter(|(other, _)| other.group == load.group);
            let served = of_group().any(|(other, before)| admitted(world, other) > *before);
            let steady = |load: &Load| {
                load.max_wait >= Span::secs(5) && load.moves.0 == 0 && load.until == Time(u64::MAX)
            };
            let honest = !(load.nodes.0..=load.nodes.1).any(|node| world.lies(node));
            let patient = honest && of_group().all(|(other, _)| steady(other));
            // Debt is paid first, however long that takes.
            let pays = world.owed(load.group).is_positive() && world.owed(load.group) < owed;
            if patient && !served && !pays && world.spec(load.group).is_some() && !self.hopeless(world, load)
            {
                return Err(format!(
                    "I7: group {} is never served again (owed {owed}, owes {})",
                    load.group.0,
                    world.owed(load.group)
                ));
            }
        }
        Ok(outcome)
    }

    /// I6, before and after the power is cut.
    fn judge_books(&self, world: &mut World) -> Result<(), String> {
        let kept: Vec<GroupId> =
            self.groups.iter().map(|(id, _)| *id).filter(|id| world.spec(*id).is_some()).collect();
        let books = world.books(&kept);
        Self::judge_totals(world, &kept)?;
        world.cut_power_and_start();
        if let Some(violation) = &world.violation {
            return Err(violation.clone());
        }
        for (id, (ledger, charged)) in books {
            if ledger != charged {
                return Err(format!("I6: group {}: {ledger} in the ledger, {charged} charged", id.0));
            }
            let stored = world.ledger(id);
            if stored != charged {
                return Err(format!("I6: group {}: {stored} on the disk, {charged} charged", id.0));
            }
        }
        Self::judge_totals(world, &kept)
    }

    /// A group's total is the sum of its nodes', liars included.
    fn judge_totals(world: &World, groups: &[GroupId]) -> Result<(), String> {
        for id in groups {
            let (total, sum) = world.totals(*id);
            if total != sum {
                return Err(format!("I6: group {}: {total} in all, {sum} by node", id.0));
            }
        }
        Ok(())
    }

    /// An operation that can never fit, or a share too low for even one operation in the time left. Where several
    /// divide a rate, those who come last are left a sixteenth of it, by weight.
    fn hopeless(&self, world: &World, load: &Load) -> bool {
        let mut level = Some(load.group);
        let cost = Ru::whole(i64::try_from(load.cost.1).unwrap_or(i64::MAX));
        let settled = cost.scale(i64::try_from(load.settle_tenths.max(10)).unwrap_or(10), 10);
        let mut part = 4;
        while let Some((id, spec)) = level.and_then(|id| Some((id, world.spec(id)?))) {
            if self
                .groups
                .iter()
                .any(|(child, _)| world.spec(*child).is_some_and(|spec| spec.parent == Some(id)))
            {
                part *= 16 * 5;
            }
            let slow = spec.limit().is_some_and(|limit| limit.over(Span(CALM.0 / part)) < settled);
            if slow || spec.depth().is_some_and(|depth| depth < cost) {
                return true;
            }
            level = spec.parent;
        }
        false
    }
}

fn admitted(world: &World, load: &Load) -> u64 {
    world.waits(&load.label).map_or(0, |waits| waits.admitted)
}

fn act(world: &mut World, action: &Action) {
    match action {
        Action::Kill(node, span) | Action::KillSame(node, span) if world.node_is_up(*node) => {
            world.kill_node(*node);
            let same = matches!(action, Action::KillSame(..));
            world.at(world.now.after(*span), Event::StartNode { node: *node, same });
        }
        Action::Crash(span, death) if world.controller_is_up() => {
            world.crash_controller(*death);
            world.at(world.now.after(*span), Event::StartController);
        }
        Action::DieInSync(nth, span) => {
            world.restart_after = *span;
            world.controller.disk.die_in_sync(*nth);
        }
        Action::DiskFails => world.controller.disk.fail(),
        Action::Restart if world.controller_is_up() => world.restart_controller(),
        Action::Pause(node, span) => world.pause(*node, *span),
        Action::Cut(node, direction, span) => world.cut(*node, *direction, *span),
        Action::Reset(node) => world.reset_stream(*node),
        Action::Lie(node) => world.lie(*node),
        Action::TakeOver(stay, span) if world.controller_is_up() => world.take_over(*stay, *span),
        Action::Rate(id, rate) => {
            if let Some(spec) = world.spec(*id).cloned() {
                world.change_group(*id, GroupSpec { rate: Some(*rate), ..spec });
            }
        }
        Action::Burst(id, burstable) => {
            if let Some(spec) = world.spec(*id).cloned() {
                world.change_group(*id, GroupSpec { burstable: *burstable, ..spec });
            }
        }
        Action::Move(id, parent) => {
            if let Some(spec) = world.spec(*id).cloned() {
                world.change_group(*id, GroupSpec { parent: *parent, ..spec });
            }
        }
        // A refusal (it has children, the controller is down) is an answer.
        Action::Remove(id) => drop(world.remove_group(*id)),
        Action::Bind(load, id) => drop(world.bind(*load, *id)),
        Action::Kill(..)
        | Action::KillSame(..)
        | Action::Crash(..)
        | Action::Restart
        | Action::TakeOver(..) => {}
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} nodes, drifts {:?} ppm, delay {}..{}",
            self.seed,
            self.drifts.len(),
            self.drifts,
            self.delay.0,
            self.delay.1
        )?;
        writeln!(f, "{:?} until {} us", self.faults, self.calm_at.0)?;
        if let Some(fence) = self.fence {
            writeln!(f, "fence {fence}")?;
        }
        writeln!(f, "idle after {}", self.idle_after)?;
        for (id, spec) in &self.groups {
            writeln!(f, "group {}: {spec:?}", id.0)?;
        }
        for load in &self.loads {
            writeln!(f, "{load:?}")?;
        }
        for (at, action) in &self.actions {
            writeln!(f, "at {} us: {action:?}", at.0)?;
        }
        Ok(())
    }
}
