//! Quotas of every kind under faults: of RU and of requests, in fixed windows and in those that roll, over runs of three
//! windows and more. A family of plans beside the others, whose runs are too short for a window of a minute, which is the
//! shortest there is. Every part has a stream of random numbers of its own.
//!
//! Judged is the log of all that was admitted and settled, see `charges`: no window has more than the quota; and once the
//! faults are over, what nodes and controllers that are gone held is old enough to have left, and demand is there all the
//! time, nearly all of it is used.

use std::collections::BTreeSet;

use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::node::NodeConfig;
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::draw::steady;
use super::{Action, Change, Outcome, Plan};
use crate::disk::Death;
use crate::load::{Load, Pattern};
use crate::network::Faults;
use crate::random::Random;
use crate::settling::{Actual, Settling};
use crate::world::World;

/// The longest lease that is drawn.
const LONGEST_LEASE: Span = Span::secs(6);
/// Time after the faults in which recoveries end, what is held by leases of before among it, and a window and a cell
/// after those what was lost leaves.
const LEAVES: Span = Span::secs(61 + 2 * 6 + 4);
/// In any interval as long as this, what a minute that rolls had before is used again: a minute, a cell, the delay of a
/// report, which is a renewal or two of at most a second, and a commit.
const AGAIN: Span = Span::secs(66);
/// The least that is used, in thousandths of a quota. What is left is less than an operation needs, and in the shares of
/// nodes that had no operation for it.
const LEAST_USED: i64 = 995;

impl Plan {
    /// The plan of a seed, of the family of quotas.
    pub fn of_quotas(seed: u64) -> Self {
        let mut random = Random::new(seed, 40);
        let nodes = usize::try_from(random.between(2, 5)).unwrap_or(2);
        let drifts =
            (0..nodes).map(|_| i64::try_from(random.between(0, 2_000)).unwrap_or(0) - 1_000).collect();
        let faulty = random.one_in(2);
        let per_mille = |random: &mut Random, most| if faulty { random.between(0, most) } else { 0 };
        let faults = Faults {
            lost: per_mille(&mut random, 100),
            repeated: per_mille(&mut random, 50),
            late: per_mille(&mut random, 20),
            unordered: faulty && random.one_in(2),
        };
        let calm_at = Time(random.between(65_000_000, 90_000_000));
        let (groups, rolls) = draw_kinds(&mut Random::new(seed, 41));
        let loads = draw_demand(&mut Random::new(seed, 42), nodes, &groups, calm_at);
        let mut plan = Self {
            seed,
            drifts,
            delay: (Span(100), Span(random.between(200, 40_000))),
            faults,
            groups,
            loads,
            actions: draw_faults(&mut Random::new(seed, 43), nodes, calm_at),
            fence: None,
            wall: Span(random.between(1, 60_000_000)),
            windows: true,
            rolls,
            idle_after: NodeConfig::default().idle_after,
            calm_at,
        };
        plan.draw_amounts(&mut Random::new(seed, 44));
        plan.draw_unheard(&mut Random::new(seed, 45));
        plan.draw_successor(&mut Random::new(seed, 46));
        plan.actions.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Quotas that change, while what is used stays used.
    fn draw_amounts(&mut self, random: &mut Random) {
        for (id, spec) in &self.groups {
            let Some(amount) = spec.quota.filter(|_| random.one_in(4)) else { continue };
            let tenths = i64::try_from(random.between(4, 20)).unwrap_or(10);
            let changed = Ru::whole(amount.scale(tenths, 10).0 / 1_000_000);
            let at = Time(random.between(1_000_000, self.calm_at.0));
            self.actions.push((at, Action::Alter(*id, Change::Quota(Some(changed)))));
            if random.one_in(2) {
                let again = Time(random.between(at.0, self.calm_at.0));
                self.actions.push((again, Action::Alter(*id, Change::Quota(Some(amount)))));
            }
        }
    }

    /// A node that the controller does not hear, with a fresh share, when the controller dies or is restarted: it goes on
    /// by its lease, in half of the cases with more than before, and what it uses is known late or never.
    fn draw_unheard(&mut self, random: &mut Random) {
        for _ in 0..random.between(0, 2) {
            let at = random.between(1_000_000, self.calm_at.0);
            let cut = Time(at.saturating_sub(1_000 * random.between(0, 300)));
            let node = random.below(self.drifts.len());
            self.actions.push((cut, Action::Cut(node, 0, Span::millis(random.between(1_000, 12_000)))));
            self.actions.push((Time(at), draw_stop(random)));
            let from = Time(at + 1_000 * random.between(0, 3_000));
            let load = self.loads.get(random.below(self.loads.len())).filter(|_| random.one_in(2));
            if let Some((group, rate)) = load.and_then(|load| Some((load.group, self.rate(load.group)?))) {
                self.loads.push(Load {
                    label: format!("load-{}", self.loads.len()),
                    nodes: (node, node),
                    pattern: Pattern::Open(rate),
                    from,
                    until: from.after(LONGEST_LEASE),
                    ..steady(group)
                });
            }
        }
    }

    /// The rate of a group, in whole RU/s.
    fn rate(&self, id: GroupId) -> Option<u64> {
        let (_, spec) = self.groups.iter().find(|(known, _)| *known == id)?;
        u64::try_from(spec.rate?.0 / 1_000_000).ok()
    }

    /// In some runs another controller takes over from one that goes on.
    fn draw_successor(&mut self, random: &mut Random) {
        if random.one_in(8) {
            self.fence = Some(Span::millis(random.between(1_000, 2_500)));
            let at = Time(random.between(1_000_000, self.calm_at.0));
            let stays_for = Span::millis(random.between(100, 6_000));
            self.actions.push((at, Action::TakeOver(random.bits(), stays_for)));
        }
    }

    /// I1 to I6, and the quotas: all windows, and what is used of them once the faults are over.
    pub(super) fn judge_windows(&self, world: &mut World) -> Result<Outcome, String> {
        let from = self.calm_at.after(LEAVES);
        let until = from.after(AGAIN).after(Span::secs(4));
        world.run(until);
        for id in world.groups() {
            world.judge_charges(id)?;
        }
        for (id, spec) in self.groups.iter().filter(|(_, spec)| spec.quota.is_some()) {
            let Some(amount) = world.spec(*id).and_then(|spec| spec.quota) else { continue };
            let mut of_quota = self.loads.iter().filter(|load| self.counts(load, *id));
            if !of_quota.any(|load| load.is_eager(spec.quota_unit, amount)) {
                continue;
            }
            let used = world.least_charged(*id, (from, until), AGAIN);
            if used < amount.scale(LEAST_USED, 1_000) {
                return Err(format!("quota: group {}: {used} used of {amount}, with work waiting", id.0));
            }
        }
        let outcome = self.judge_bounds(world)?;
        Ok(Outcome { course: world.course(), ..outcome })
    }

    /// Whether a load counts in the quota of a group: its own, or that of the one above.
    fn counts(&self, load: &Load, quota: GroupId) -> bool {
        let group = self.groups.iter().find(|(id, _)| *id == load.group);
        load.group == quota || group.is_some_and(|(_, spec)| spec.parent == Some(quota))
    }
}

impl Load {
    /// Whether it uses up a quota of a minute at any time: it never rests, and its operations run, at their estimates, and
    /// are a third more than the quota. What runs is held, and would be missed if it ran for long.
    fn is_eager(&self, unit: Unit, amount: Ru) -> bool {
        let Settling { lasts, actual, undone, .. } = &self.settling;
        let costs = unit == Unit::Requests || actual.is_none();
        let steady = self.until == Time(u64::MAX) && self.turns == Span(0) && self.moves == Span(0);
        let Pattern::Open(rate) = self.pattern else { return false };
        let nodes = (self.nodes.1 - self.nodes.0 + 1) as u64;
        let in_a_minute = rate * nodes * 60 * (1_000 - (*undone).min(1_000)) / 1_000;
        let enough = Ru::whole(i64::try_from(in_a_minute).unwrap_or(0)) >= amount.scale(4, 3);
        steady && costs && enough && lasts.1 <= Span::millis(20)
    }
}

/// One or two groups with a quota, of any kind; some have a group below, which is charged.
fn draw_kinds(random: &mut Random) -> (Vec<(GroupId, GroupSpec)>, BTreeSet<GroupId>) {
    let (mut groups, mut rolls) = (Vec::new(), BTreeSet::new());
    for id in (2..).take(usize::try_from(random.between(1, 2)).unwrap_or(1)) {
        let amount = Ru::whole(i64::try_from(random.between(600, 1_500)).unwrap_or(600));
        // Used up in so many seconds at full rate.
        let rate = Rate(amount.0 / i64::try_from(random.between(3, 20)).unwrap_or(10));
        let quota_unit = if random.one_in(2) { Unit::Ru } else { Unit::Requests };
        let ttl = Span(random.between(1_000_000, LONGEST_LEASE.0));
        let spec = GroupSpec { quota: Some(amount), quota_unit, ttl, ..GroupSpec::capped(rate) };
        if random.one_in(4) {
            let below = GroupSpec { parent: Some(GroupId(id)), ttl, ..GroupSpec::capped(rate) };
            groups.push((GroupId(id + 10), below));
        }
        groups.push((GroupId(id), spec));
        if random.between(0, 2) > 0 {
            rolls.insert(GroupId(id));
        }
    }
    // A group comes after the one above it.
    groups.sort_by_key(|(id, _)| *id);
    (groups, rolls)
}

/// Demand of one and a half to four times what each quota yields, in turns, on one node after the other, or on all.
fn draw_demand(
    random: &mut Random,
    nodes: usize,
    groups: &[(GroupId, GroupSpec)],
    calm_at: Time,
) -> Vec<Load> {
    let mut loads = Vec::new();
    for (id, spec) in groups.iter().filter(|(_, spec)| spec.quota.is_some()) {
        let below = groups.iter().find(|(_, below)| below.parent == Some(*id));
        let group = below.map_or(*id, |(below, _)| *below);
        let per_second = u64::try_from(spec.quota.unwrap_or_default().0 / 60_000_000).unwrap_or(1);
        let wanted = per_second * random.between(15, 40) / 10;
        let moves = if random.one_in(4) { Span::millis(random.between(1_000, 8_000)) } else { Span(0) };
        let at_once = if moves == Span(0) { nodes as u64 } else { 1 };
        let free = spec.quota_unit == Unit::Requests && random.one_in(4);
        loads.push(Load {
            label: format!("load-{}", loads.len()),
            nodes: (0, nodes - 1),
            pattern: Pattern::Open(wanted.div_ceil(at_once)),
            cost: if free { (0, 0) } else { (1, 1) },
            max_wait: Span::millis(random.between(0, 3_000)),
            from: Time(random.between(0, 20_000_000)),
            turns: if random.one_in(3) { Span::secs(random.between(10, 45)) } else { Span(0) },
            moves,
            settling: draw_settling(random),
            ..steady(group)
        });
        if random.one_in(2) {
            let from = Time(random.between(1_000_000, calm_at.0));
            let rate = u64::try_from(spec.rate.unwrap_or_default().0 / 1_000_000).unwrap_or(1);
            loads.push(Load {
                label: format!("load-{}", loads.len()),
                nodes: (0, nodes - 1),
                pattern: Pattern::Open(rate.div_ceil(nodes as u64)),
                max_wait: Span::secs(1),
                from,
                until: from.after(Span::secs(random.between(2, 10))),
                settling: draw_settling(random),
                ..steady(group)
            });
        }
    }
    loads
}

/// In half of the cases, operations that end later than they begin, for nothing, less, or more than estimated, or do not
/// run at all.
fn draw_settling(random: &mut Random) -> Settling {
    if random.one_in(2) {
        return Settling::default();
    }
    let longest = [0, 20_000, 300_000, 1_000_000, 5_000_000].get(random.below(5)).copied().unwrap_or(0);
    Settling {
        lasts: (Span(random.between(0, longest)), Span(longest)),
        actual: match random.below(4) {
            0 | 1 => None,
            2 => Some(Actual::Parts(0, 0)),
            _ => Some(Actual::Parts(0, random.between(100, 3_000))),
        },
        undone: if random.one_in(3) { random.between(1, 500) } else { 0 },
        leaves: if random.one_in(3) { random.between(1, 700) } else { 0 },
    }
}

/// The controller dies, or is restarted in order.
fn draw_stop(random: &mut Random) -> Action {
    let down = Span::millis(random.between(10, 3_000));
    match random.below(4) {
        0 => Action::Crash(down, Death::PowerCut),
        1 => Action::DieInSync(u32::try_from(random.between(1, 12)).unwrap_or(1), down),
        2 => Action::Restart,
        _ => Action::Crash(down, Death::Killed),
    }
}

fn draw_faults(random: &mut Random, nodes: usize, until: Time) -> Vec<(Time, Action)> {
    let mut actions = Vec::new();
    for _ in 0..random.between(0, 14) {
        let at = Time(random.between(500_000, until.0));
        let node = random.below(nodes);
        // Within a lease, or beyond it.
        let longest = if random.one_in(3) { 20_000 } else { 4_000 };
        let span = Span::millis(random.between(1, longest));
        let action = match random.below(14) {
            0 | 1 => Action::Kill(node, span),
            2 => Action::KillSame(node, span),
            3 => Action::End(node, span),
            4 => Action::Pause(node, span),
            5 | 6 => Action::Cut(node, random.below(2), span),
            7 => Action::Reset(node),
            8 => Action::Stall(Span::millis(random.between(50, 6_000))),
            9 => Action::DiskPauses(Span::millis(random.between(50, 5_000))),
            10 => Action::DiskSlows(Span::millis(random.between(20, 900)), span),
            _ => draw_stop(random),
        };
        actions.push((at, action));
    }
    actions
}
