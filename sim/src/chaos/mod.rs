//! Random faults from a seed: a plan is drawn, run, and judged. A failing plan is shrunk to what it takes.
//!
//! Judged are I1 to I3 after every event that touched a controller, I5 in every window of every group and its
//! ancestors, I6 at the end, and I7: every waiter that can be served is served once the faults are over. Plans of quotas
//! are a family of their own, see `quotas`.

mod action;
mod changes;
mod draw;
mod quotas;
mod shares;
mod shrink;
mod text;
mod trouble;

use std::collections::BTreeSet;

use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span, Time};

pub use action::{Action, Change};

use super::load::Load;
use super::log::Log;
use super::network::Faults;
use super::world::{Toll, World};

/// All that happens in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    seed: u64,
    drifts: Vec<i64>,
    delay: (Span, Span),
    faults: Faults,
    groups: Vec<(GroupId, GroupSpec)>,
    loads: Vec<Load>,
    actions: Vec<(Time, Action)>,
    fence: Option<Span>,
    /// How far the wall clock is past midnight at the beginning.
    wall: Span,
    /// All windows of all quotas are judged, over some of them.
    windows: bool,
    /// Groups whose quota rolls.
    rolls: BTreeSet<GroupId>,
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
    /// The course of the run as one number: the same for the same seed, as long as nodes and controllers do the same.
    pub course: u64,
}

/// Time after the faults in which everyone must be served: recovery, one lease, and some renewals.
const CALM: Span = Span::secs(14);

/// Leases up to this are ended within that time.
const SHORT_LEASE: Span = Span::secs(4);

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
        let (result, transcript, _) = self.attempt(trace);
        result.map_err(|violation| (violation, transcript))
    }

    /// All messages and operations of a run, and what it came to: the same every time (I8).
    pub fn transcript(&self) -> String {
        let (result, messages, log) = self.attempt(true);
        format!("{messages}{log}{result:?}\n")
    }

    fn attempt(&self, trace: bool) -> (Result<Outcome, String>, String, Log) {
        let mut world = match World::fenced(self.seed, self.drifts.len(), self.delay, self.fence) {
            Ok(world) => world,
            Err(error) => return (Err(error), String::new(), Log::default()),
        };
        world.trace = trace.then(String::new);
        world.log = trace.then(Log::default);
        world.checked = true;
        world.set_wall(true, self.wall);
        world.set_drifts(&self.drifts);
        world.set_idle_after(self.idle_after);
        let result = self.drive(&mut world);
        (result, world.trace.unwrap_or_default(), world.log.unwrap_or_default())
    }

    fn drive(&self, world: &mut World) -> Result<Outcome, String> {
        world.allow_fallbacks();
        if self.windows {
            world.keep_charges(self.rolls.clone());
        }
        for (id, spec) in &self.groups {
            world.put_group(*id, spec.clone())?;
        }
        for load in &self.loads {
            world.add_load(load.clone());
        }
        world.faults = self.faults;
        for (at, action) in &self.actions {
            world.run((*at).min(self.calm_at));
            action.act(world);
            world.died();
            world.check();
        }
        world.run(self.calm_at);
        world.calm();
        world.check();
        if self.windows { self.judge_windows(world) } else { self.judge(world) }
    }

    /// Time after the faults: a successor waits for the fence of the one before, and recovers longer for it; and what
    /// was leased in the last moment may be out for as long as the longest lease.
    fn calm(&self) -> Span {
        let fence = self.fence.unwrap_or_default();
        let created = self.actions.iter().filter_map(|(_, action)| match action {
            Action::Create(_, spec) => Some(spec.ttl),
            Action::Alter(_, Change::Ttl(ttl)) => Some(*ttl),
            _ => None,
        });
        let longest = self.groups.iter().map(|(_, spec)| spec.ttl).chain(created).max().unwrap_or_default();
        // Known to the controller until a clean stop: it may have recovered for that long in vain.
        let beyond = Span(longest.0.saturating_sub(SHORT_LEASE.0));
        CALM + fence + fence + beyond + beyond
    }

    fn judge(&self, world: &mut World) -> Result<Outcome, String> {
        let before: Vec<u64> = self.loads.iter().map(|load| admitted(world, load)).collect();
        let owed: Vec<Ru> = self.loads.iter().map(|load| world.owed(load.group)).collect();
        let end = self.calm_at.after(self.calm());
        world.run(Time(end.0 - shares::WINDOW.0));
        let at_rest = shares::Served::of(&self.loads, world);
        world.run(end);
        let outcome = self.judge_bounds(world)?;
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
        if !rebound {
            self.judge_shares(world, &at_rest)?;
        }
        Ok(Outcome { course: world.course(), ..outcome })
    }

    /// I1 to I6, at the end of a run.
    fn judge_bounds(&self, world: &mut World) -> Result<Outcome, String> {
        if let Some(violation) = &world.violation {
            return Err(violation.clone());
        }
        let mut outcome = Outcome::default();
        for id in world.groups() {
            world.judge_bound(id)?;
            outcome.worst = outcome.worst.max(world.share_of_bound(id));
        }
        outcome.toll = world.toll();
        self.judge_books(world)?;
        outcome.admitted = self.loads.iter().map(|load| admitted(world, load)).sum();
        Ok(outcome)
    }

    /// I6, before and after the power is cut.
    fn judge_books(&self, world: &mut World) -> Result<(), String> {
        let kept: Vec<GroupId> = world.groups().into_iter().filter(|id| world.spec(*id).is_some()).collect();
        let books = world.books(&kept);
        Self::judge_totals(world, &kept)?;
        world.cut_power_and_start();
        world.check();
        if let Some(violation) = &world.violation {
            return Err(violation.clone());
        }
        for (id, (ledger, charged)) in books {
            let (least, most) = world.books_of_returned(id).unwrap_or((charged, charged));
            if ledger < least || ledger > most {
                return Err(format!("I6: group {}: {ledger} in the ledger, {charged} charged", id.0));
            }
            let stored = world.ledger(id);
            if stored != ledger {
                return Err(format!("I6: group {}: {stored} on the disk, {ledger} in the ledger", id.0));
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
    /// divide a rate, those who come last are left a sixteenth of it, by weight; and guarantees that do not fit under
    /// a limit are met in proportion.
    fn hopeless(&self, world: &World, load: &Load) -> bool {
        self.hopeless_among(world, load, 1)
    }

    /// The same of each of so many clients that divide the group's share.
    fn hopeless_among(&self, world: &World, load: &Load, clients: u64) -> bool {
        let mut level = Some(load.group);
        let cost = Ru::whole(i64::try_from(load.cost.1).unwrap_or(i64::MAX));
        let settled = load.dearest();
        let own = world.spec(load.group).and_then(GroupSpec::limit);
        let (mut part, mut crowd) = (4 * clients, clients);
        while let Some((id, spec)) = level.and_then(|id| Some((id, world.spec(id)?))) {
            let children = world.groups().into_iter().filter_map(|child| world.spec(child));
            let guarantees: Vec<_> =
                children.filter(|child| child.parent == Some(id)).map(|c| c.rate).collect();
            if !guarantees.is_empty() {
                part *= 16 * 5;
            }
            let sure: Rate = guarantees.into_iter().flatten().sum();
            if let Some(limit) = spec.limit().filter(|limit| sure > *limit) {
                let fold = u64::try_from(sure.0 / limit.0.max(1)).unwrap_or(u64::MAX);
                crowd = crowd.saturating_mul(fold.saturating_add(1));
            }
            let too_slow = |limit: Option<Rate>, part| {
                limit.is_some_and(|limit| limit.over(Span(CALM.0 / part)) < settled)
            };
            let used_up = spec.quota.is_some() && world.is_used_up(id, settled.scale(8, 1), shares::WINDOW);
            let slow = used_up || too_slow(spec.limit(), part) || too_slow(own, crowd.saturating_mul(4));
            let far = spec.ttl.0 < self.delay.1.0 * trouble::LEASE_IN_DELAYS;
            if slow || far || spec.depth().is_some_and(|depth| depth < cost) {
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
