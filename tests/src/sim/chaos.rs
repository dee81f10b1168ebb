//! Random faults from a seed: a plan is drawn, run, and judged. A failing plan is shrunk to what it takes.
//!
//! Judged are I1 to I3 after every message the controller handled, I5 in every window of every group and its
//! ancestors, I6 at the end, and I7: whoever can be served is served once the faults are over.

use std::fmt;

use tidegate_core::group::{Burstable, GroupId, GroupSpec, Priority};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::load::{Load, Pattern};
use super::network::Faults;
use super::random::Random;
use super::world::World;

/// A fault or a change, at a moment.
#[derive(Clone, Debug)]
pub enum Action {
    /// A node dies; it starts again after this.
    Kill(usize, Span),
    /// A node is stopped for this long.
    Pause(usize, Span),
    /// Nothing passes from (0) or to (1) a node for this long.
    Cut(usize, usize, Span),
    /// A node's stream is reset.
    Reset(usize),
    /// The controller dies; it starts again after this.
    Crash(Span),
    /// The controller is restarted in order.
    Restart,
    /// A group gets another rate.
    Rate(GroupId, Rate),
    /// A group is moved under another, or to the top.
    Move(GroupId, Option<GroupId>),
    /// A group is removed.
    Remove(GroupId),
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
}

/// Time after the faults in which everyone must be served: recovery, one lease, and some renewals.
const CALM: Span = Span::secs(14);

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 7);
        let nodes = usize::try_from(random.between(1, 6)).unwrap_or(1);
        let drifts =
            (0..nodes).map(|_| i64::try_from(random.between(0, 2_000)).unwrap_or(0) - 1_000).collect();
        let faulty = !random.one_in(4);
        let per_mille = |random: &mut Random, most| if faulty { random.between(0, most) } else { 0 };
        let faults = Faults {
            lost: per_mille(&mut random, 200),
            repeated: per_mille(&mut random, 100),
            late: per_mille(&mut random, 50),
            unordered: faulty && random.one_in(2),
        };
        let groups = draw_groups(&mut Random::new(seed, 8));
        let calm_at = Time(random.between(3_000_000, 15_000_000));
        let ids: Vec<GroupId> = groups.iter().map(|(id, _)| *id).collect();
        Self {
            seed,
            drifts,
            delay: (Span(100), Span(random.between(200, 40_000))),
            faults,
            loads: draw_loads(&mut Random::new(seed, 9), nodes, &groups),
            actions: draw_actions(&mut Random::new(seed, 10), nodes, &ids, calm_at),
            groups,
            calm_at,
        }
    }

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
        let mut world = World::new(self.seed, self.drifts.len(), self.delay);
        world.trace = trace.then(String::new);
        world.checked = true;
        world.set_drifts(&self.drifts);
        let result = self.drive(&mut world);
        result.map_err(|violation| (violation, world.trace.unwrap_or_default()))
    }

    fn drive(&self, world: &mut World) -> Result<Outcome, String> {
        for (id, spec) in &self.groups {
            world.put_group(*id, spec.clone())?;
        }
        world.faults = self.faults;
        for load in &self.loads {
            world.add_load(load.clone());
        }
        // Starts of what was stopped, and commits, beside the plan's own actions.
        let mut later: Vec<(Time, Later)> = Vec::new();
        let mut actions = self.actions.iter().peekable();
        let mut commit_at = Time(500_000);
        while world.now < self.calm_at {
            later.sort_by_key(|(at, _)| *at);
            let next_action = actions.peek().map_or(self.calm_at, |(at, _)| *at);
            let next_later = later.first().map_or(self.calm_at, |(at, _)| *at);
            world.run(next_action.min(next_later).min(commit_at).min(self.calm_at));
            if world.now >= commit_at {
                world.commit();
                commit_at = commit_at.after(Span(500_000));
            }
            while later.first().is_some_and(|(at, _)| *at <= world.now) {
                later.remove(0).1.happen(world);
            }
            while let Some((_, action)) = actions.next_if(|(at, _)| *at <= world.now) {
                act(world, action, &mut later);
            }
        }
        later.sort_by_key(|(at, _)| *at);
        later.into_iter().for_each(|(_, what)| what.happen(world));
        world.faults = Faults::default();
        world.heal();
        self.judge(world)
    }

    fn judge(&self, world: &mut World) -> Result<Outcome, String> {
        let before: Vec<u64> = self.loads.iter().map(|load| admitted(world, load)).collect();
        world.run(self.calm_at.after(CALM));
        if let Some(violation) = &world.violation {
            return Err(violation.clone());
        }
        let mut outcome = Outcome::default();
        let groups: Vec<GroupId> = self.groups.iter().map(|(id, _)| *id).collect();
        for id in groups {
            world.judge_bound(id)?;
            outcome.worst = outcome.worst.max(world.share_of_bound(id));
            let (ledger, charged) = world.books(id);
            if ledger != charged {
                return Err(format!("I6: group {}: {ledger} in the ledger, {charged} charged", id.0));
            }
        }
        outcome.admitted = self.loads.iter().map(|load| admitted(world, load)).sum();
        for load in &self.loads {
            // Loads of one group may crowd each other out, by impatience; the group as a whole must go on.
            let of_group = || self.loads.iter().zip(&before).filter(|(other, _)| other.group == load.group);
            let served = of_group().any(|(other, before)| admitted(world, other) > *before);
            let patient = of_group().all(|(other, _)| other.max_wait >= Span::secs(5) && other.moves.0 == 0);
            if patient && !served && world.spec(load.group).is_some() && !self.hopeless(world, load) {
                return Err(format!("I7: group {} is never served again", load.group.0));
            }
        }
        Ok(outcome)
    }

    /// An operation that can never fit, or a rate too low for even one operation in the time left.
    fn hopeless(&self, world: &World, load: &Load) -> bool {
        let mut level = Some(load.group);
        let cost = Ru::whole(i64::try_from(load.cost.1).unwrap_or(i64::MAX));
        while let Some(spec) = level.and_then(|id| world.spec(id)) {
            let slow = spec.limit().is_some_and(|limit| limit.over(Span(CALM.0 / 4)) < cost);
            if slow || spec.depth().is_some_and(|depth| depth < cost) {
                return true;
            }
            level = spec.parent;
        }
        false
    }

    /// The smallest plan found that still fails, by leaving out what is not needed.
    #[must_use]
    pub fn shrink(&self) -> Self {
        let mut smallest = self.clone();
        loop {
            let Some(smaller) = smallest.reductions().into_iter().find(|plan| plan.run().is_err()) else {
                return smallest;
            };
            smallest = smaller;
        }
    }

    fn reductions(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        let half = self.actions.len() / 2;
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            plans.push(plan);
        };
        if half > 0 {
            with(&|plan| drop(plan.actions.drain(..half)));
            with(&|plan| plan.actions.truncate(half));
        }
        for index in 0..self.actions.len() {
            with(&|plan| {
                plan.actions.remove(index);
            });
        }
        if self.loads.len() > 1 {
            for index in 0..self.loads.len() {
                with(&|plan| {
                    plan.loads.remove(index);
                });
            }
        }
        if self.faults.lost + self.faults.repeated + self.faults.late > 0 || self.faults.unordered {
            with(&|plan| plan.faults = Faults::default());
            for clear in [
                (|faults: &mut Faults| faults.lost = 0) as fn(&mut Faults),
                |faults| faults.repeated = 0,
                |faults| faults.late = 0,
                |faults| faults.unordered = false,
            ] {
                let mut faults = self.faults;
                clear(&mut faults);
                if format!("{faults:?}") != format!("{:?}", self.faults) {
                    with(&|plan| plan.faults = faults);
                }
            }
        }
        if self.drifts.iter().any(|drift| *drift != 0) {
            with(&|plan| plan.drifts.fill(0));
        }
        plans
    }
}

fn admitted(world: &World, load: &Load) -> u64 {
    world.waits(&load.label).map_or(0, |waits| waits.admitted)
}

/// What a fault leaves to be done.
enum Later {
    StartNode(usize),
    StartController,
}

impl Later {
    fn happen(self, world: &mut World) {
        match self {
            Self::StartNode(node) => world.start_node(node),
            Self::StartController => world.start_controller(),
        }
    }
}

fn act(world: &mut World, action: &Action, later: &mut Vec<(Time, Later)>) {
    match action {
        Action::Kill(node, span) if world.node_is_up(*node) => {
            world.kill_node(*node);
            later.push((world.now.after(*span), Later::StartNode(*node)));
        }
        Action::Crash(span) if world.controller_is_up() => {
            world.crash_controller();
            later.push((world.now.after(*span), Later::StartController));
        }
        Action::Restart if world.controller_is_up() => world.restart_controller(),
        Action::Pause(node, span) => world.pause(*node, *span),
        Action::Cut(node, direction, span) => world.cut(*node, *direction, *span),
        Action::Reset(node) => world.reset_stream(*node),
        Action::Rate(id, rate) => {
            if let Some(spec) = world.spec(*id).cloned() {
                world.change_group(*id, GroupSpec { rate: Some(*rate), ..spec });
            }
        }
        Action::Move(id, parent) => {
            if let Some(spec) = world.spec(*id).cloned() {
                world.change_group(*id, GroupSpec { parent: *parent, ..spec });
            }
        }
        // A refusal (it has children, the controller is down) is an answer.
        Action::Remove(id) => drop(world.remove_group(*id)),
        Action::Kill(..) | Action::Crash(_) | Action::Restart => {}
    }
}

fn draw_groups(random: &mut Random) -> Vec<(GroupId, GroupSpec)> {
    let count = u32::try_from(random.between(1, 5)).unwrap_or(1);
    let mut groups: Vec<(GroupId, GroupSpec)> = Vec::new();
    for index in 0..count {
        let rate = match random.between(0, 9) {
            0 => Rate(i64::try_from(random.between(300_000, 5_000_000)).unwrap_or(1)),
            1 => Rate::whole(i64::try_from(random.between(5_000, 50_000)).unwrap_or(1)),
            _ => Rate::whole(i64::try_from(random.between(20, 3_000)).unwrap_or(1)),
        };
        let burst = random.one_in(4).then(|| rate.over(Span::millis(random.between(50, 3_000))).max(Ru(1)));
        let parent = groups.get(random.below(4)).map(|(id, _)| *id);
        let burstable = match random.between(0, 5) {
            0 => Burstable::Unlimited,
            1 => Burstable::Moderated(rate.scale(2, 1)),
            _ => Burstable::Off,
        };
        let priority = *[Priority::Low, Priority::Medium, Priority::High]
            .get(random.below(3))
            .unwrap_or(&Priority::Medium);
        let spec = GroupSpec {
            parent,
            burst,
            burstable,
            priority,
            weight: u32::try_from(random.between(1, 4)).unwrap_or(1),
            ttl: Span::millis(random.between(500, 3_000)),
            ..GroupSpec::capped(rate)
        };
        groups.push((GroupId(index + 2), spec));
    }
    groups
}

fn draw_loads(random: &mut Random, nodes: usize, groups: &[(GroupId, GroupSpec)]) -> Vec<Load> {
    let mut loads = Vec::new();
    for index in 0..random.between(1, 5) {
        let Some((id, spec)) = groups.get(random.below(groups.len())) else {
            continue;
        };
        let rate = u64::try_from(spec.rate.unwrap_or(Rate::whole(100)).0 / 1_000_000).unwrap_or(1).max(1);
        let first = random.below(nodes);
        let last = first + random.below(nodes - first);
        let share = (last - first + 1) as u64;
        let most = (rate / random.between(5, 200)).max(1);
        let pattern = if random.one_in(3) {
            Pattern::Closed(random.between(1, 4))
        } else {
            Pattern::Open((rate * random.between(2, 30) / 10 / share).clamp(1, most * 3_000))
        };
        loads.push(Load {
            label: format!("load-{index}"),
            nodes: (first, last),
            group: *id,
            pattern,
            cost: (most.div_ceil(8), most),
            settle_tenths: if random.one_in(3) { random.between(5, 20) } else { 10 },
            max_wait: Span::millis(random.between(0, 8_000)),
            from: Time(random.between(0, 1_000_000)),
            until: Time(u64::MAX),
            turns: if random.one_in(4) { Span::millis(random.between(200, 3_000)) } else { Span(0) },
            odd: false,
            moves: if random.one_in(4) { Span::millis(random.between(300, 4_000)) } else { Span(0) },
        });
    }
    loads
}

fn draw_actions(random: &mut Random, nodes: usize, groups: &[GroupId], until: Time) -> Vec<(Time, Action)> {
    let mut actions = Vec::new();
    for _ in 0..random.between(0, 12) {
        let at = Time(random.between(200_000, until.0));
        let node = random.below(nodes);
        let span = Span::millis(random.between(1, 4_000));
        let pick =
            |random: &mut Random| groups.get(random.below(groups.len())).copied().unwrap_or(GroupId(2));
        let action = match random.between(0, 13) {
            0 | 1 => Action::Kill(node, span),
            2 | 3 => Action::Pause(node, span),
            4 | 5 => Action::Cut(node, random.below(2), span),
            6 => Action::Reset(node),
            7 | 8 => Action::Crash(span),
            9 => Action::Restart,
            10 | 11 => {
                Action::Rate(pick(random), Rate::whole(i64::try_from(random.between(1, 3_000)).unwrap_or(1)))
            }
            12 => Action::Move(pick(random), random.one_in(2).then(|| pick(random))),
            _ => Action::Remove(pick(random)),
        };
        actions.push((at, action));
    }
    actions.sort_by_key(|(at, _)| *at);
    actions
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
