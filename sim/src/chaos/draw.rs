//! Drawing a plan from a seed. Every part has a stream of random numbers of its own.

use std::collections::BTreeSet;

use tidegate_core::group::{Burstable, Fallback, GroupId, GroupSpec, Policy, Priority};
use tidegate_core::node::NodeConfig;
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::{Action, Plan};
use crate::disk::Death;
use crate::load::{Load, Pattern};
use crate::network::Faults;
use crate::random::Random;
use crate::settling::{Actual, Settling};

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
        let many = Random::new(seed, 11).one_in(64);
        let mut groups =
            if many { draw_tiny(&mut Random::new(seed, 8)) } else { draw_groups(&mut Random::new(seed, 8)) };
        draw_fallbacks(&mut Random::new(seed, 15), &mut groups);
        draw_totals(&mut Random::new(seed, 30), &mut groups);
        let calm_at = Time(random.between(3_000_000, 15_000_000));
        let ids: Vec<GroupId> = groups.iter().map(|(id, _)| *id).collect();
        let loads = match many {
            true => draw_trickles(&mut Random::new(seed, 9), nodes, &groups),
            false => draw_loads(&mut Random::new(seed, 9), nodes, &groups, calm_at),
        };
        let mut actions = draw_actions(&mut Random::new(seed, 10), nodes, loads.len(), &ids, calm_at);
        draw_lonely(&mut Random::new(seed, 13), nodes, calm_at, &mut actions);
        draw_bursts(&mut Random::new(seed, 16), &ids, calm_at, &mut actions);
        draw_stalls(&mut Random::new(seed, 20), calm_at, &mut actions);
        draw_copies(&mut Random::new(seed, 21), nodes, calm_at, &mut actions);
        let fence = draw_takeovers(&mut Random::new(seed, 12), nodes, calm_at, &mut actions);
        let mut plan = Self {
            seed,
            drifts,
            delay: (Span(100), Span(random.between(200, 40_000))),
            faults,
            actions,
            fence,
            wall: Span(0),
            windows: false,
            rolls: BTreeSet::new(),
            idle_after: draw_idle(&mut Random::new(seed, 14)),
            loads,
            groups,
            calm_at,
        };
        if !many {
            plan.draw_changes(seed);
        }
        draw_settling(&mut Random::new(seed, 21), &mut plan.loads);
        plan.draw_trouble(seed, many);
        plan.actions.sort_by_key(|(at, _)| *at);
        plan
    }
}

/// Mostly as long as nodes have it, which is longer than a run.
fn draw_idle(random: &mut Random) -> Span {
    match random.one_in(3) {
        true => Span(random.between(100_000, 3_000_000)),
        false => NodeConfig::default().idle_after,
    }
}

/// In some runs, groups that go on at a low rate where nodes are cut off.
fn draw_fallbacks(random: &mut Random, groups: &mut [(GroupId, GroupSpec)]) {
    if random.one_in(4) {
        for (_, spec) in groups {
            let part = i64::try_from(random.between(10, 200)).unwrap_or(100);
            if let Some(rate) = spec.rate.filter(|_| random.one_in(2)) {
                spec.fallback = Fallback::Rate(rate.scale(1, part).max(Rate(1)));
            }
        }
    }
}

/// In some runs, a fallback that the nodes of a group divide.
fn draw_totals(random: &mut Random, groups: &mut [(GroupId, GroupSpec)]) {
    if random.one_in(4) {
        for (_, spec) in groups {
            let part = i64::try_from(random.between(2, 50)).unwrap_or(10);
            if let Some(rate) = spec.rate.filter(|_| random.one_in(2)) {
                spec.fallback_total = Some(rate.scale(1, part).max(Rate(1)));
            }
        }
    }
}

/// In half of the runs, operations that end later than they begin, for a part of their estimate that may be nothing, or
/// do not run at all.
fn draw_settling(random: &mut Random, loads: &mut [Load]) {
    if random.one_in(2) {
        return;
    }
    for load in loads.iter_mut() {
        if random.one_in(3) {
            continue;
        }
        let longest = [0, 20_000, 300_000, 1_000_000, 5_000_000].get(random.below(5)).copied().unwrap_or(0);
        let estimate = Ru::whole(i64::try_from(load.cost.1).unwrap_or(1));
        load.settling = Settling {
            lasts: (Span(random.between(0, longest)), Span(longest)),
            actual: match random.below(4) {
                0 => None,
                1 => Some(Actual::Parts(0, 0)),
                2 => Some(Actual::Mix(vec![(estimate.scale(1, 36), 9), (estimate, 1)])),
                _ => Some(Actual::Parts(0, random.between(100, 3_000))),
            },
            undone: if random.one_in(3) { random.between(1, 500) } else { 0 },
            leaves: if random.one_in(3) { random.between(1, 700) } else { 0 },
        };
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
            policy: draw_policy(random),
            ..GroupSpec::capped(rate)
        };
        groups.push((GroupId(index + 2), spec));
    }
    groups
}

pub(super) fn draw_policy(random: &mut Random) -> Policy {
    if random.one_in(6) { Policy::Paced } else { Policy::TokenBucket }
}

pub(super) fn draw_loads(
    random: &mut Random,
    nodes: usize,
    groups: &[(GroupId, GroupSpec)],
    calm_at: Time,
) -> Vec<Load> {
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
            settling: Settling::default(),
        });
    }
    if random.one_in(4) {
        loads.extend(draw_crowd(random, nodes, groups, calm_at));
    }
    loads
}

/// A flash crowd: all nodes at once, at many times the rate, for a moment.
fn draw_crowd(
    random: &mut Random,
    nodes: usize,
    groups: &[(GroupId, GroupSpec)],
    calm_at: Time,
) -> Option<Load> {
    let (id, spec) = groups.get(random.below(groups.len()))?;
    let rate = u64::try_from(spec.rate?.0 / 1_000_000).ok()?.clamp(1, 3_000);
    let from = Time(random.between(500_000, calm_at.0));
    Some(Load {
        label: "crowd".to_owned(),
        nodes: (0, nodes - 1),
        pattern: Pattern::Open((rate * random.between(5, 10) / nodes as u64).max(1)),
        cost: (1, (rate / 50).max(1)),
        max_wait: Span::millis(random.between(0, 2_000)),
        from,
        until: from.after(Span::millis(random.between(100, 3_000))),
        ..steady(*id)
    })
}

/// Hundreds of small groups.
fn draw_tiny(random: &mut Random) -> Vec<(GroupId, GroupSpec)> {
    let count = u32::try_from(random.between(100, 800)).unwrap_or(100);
    let all = GroupId(2);
    let parent = GroupSpec::capped(Rate::whole(i64::from(count)));
    let tiny = |index: u32| {
        let spec = GroupSpec::capped(Rate(i64::try_from(random.between(100_000, 5_000_000)).unwrap_or(1)));
        (GroupId(index), GroupSpec { parent: Some(all), ttl: Span::secs(2), ..spec })
    };
    let children: Vec<_> = (3..3 + count).map(tiny).collect();
    [(all, parent)].into_iter().chain(children).collect()
}

/// A little work in many groups.
fn draw_trickles(random: &mut Random, nodes: usize, groups: &[(GroupId, GroupSpec)]) -> Vec<Load> {
    let busy = groups.iter().skip(1).filter(|_| random.one_in(4));
    let ids: Vec<GroupId> = busy.map(|(id, _)| *id).collect();
    let trickle = |(index, id): (usize, &GroupId)| {
        let node = random.below(nodes);
        Load {
            label: format!("load-{index}"),
            nodes: (node, node),
            pattern: Pattern::Open(random.between(1, 5)),
            max_wait: Span::secs(5),
            ..steady(*id)
        }
    };
    ids.iter().enumerate().map(trickle).collect()
}

/// Operations of 1 RU, as estimated, all the time.
pub(super) fn steady(group: GroupId) -> Load {
    Load {
        label: String::new(),
        nodes: (0, 0),
        group,
        pattern: Pattern::Open(1),
        cost: (1, 1),
        settle_tenths: 10,
        max_wait: Span(0),
        from: Time(0),
        until: Time(u64::MAX),
        turns: Span(0),
        odd: false,
        moves: Span(0),
        settling: Settling::default(),
    }
}

fn draw_actions(
    random: &mut Random,
    nodes: usize,
    loads: usize,
    groups: &[GroupId],
    until: Time,
) -> Vec<(Time, Action)> {
    let mut actions = Vec::new();
    for _ in 0..random.between(0, 12) {
        let at = Time(random.between(200_000, until.0));
        let node = random.below(nodes);
        let span = Span::millis(random.between(1, 4_000));
        let pick =
            |random: &mut Random| groups.get(random.below(groups.len())).copied().unwrap_or(GroupId(2));
        let action = match random.between(0, 20) {
            0 | 1 => Action::Kill(node, span),
            2 | 3 => Action::Pause(node, span),
            4 | 5 => Action::Cut(node, random.below(2), span),
            6 => Action::Reset(node),
            7 => Action::Crash(span, Death::Killed),
            8 => Action::Crash(span, Death::PowerCut),
            9 => Action::Restart,
            10 | 11 => {
                Action::Rate(pick(random), Rate::whole(i64::try_from(random.between(1, 3_000)).unwrap_or(1)))
            }
            12 => Action::Move(pick(random), random.one_in(2).then(|| pick(random))),
            13 => Action::Remove(pick(random)),
            14 => Action::KillSame(node, span),
            15..=17 => Action::DieInSync(u32::try_from(random.between(1, 12)).unwrap_or(1), span),
            18 => Action::DiskFails,
            19 => Action::Bind(random.below(loads), pick(random)),
            _ => Action::Lie(node),
        };
        if let Action::Crash(down, _) = action
            && random.one_in(2)
        {
            actions.extend(draw_second_stop(random, node, at.after(down)));
        }
        actions.push((at, action));
    }
    actions.sort_by_key(|(at, _)| *at);
    actions
}

/// Takeovers by another controller, and the fence that keeps the bound then.
fn draw_takeovers(
    random: &mut Random,
    nodes: usize,
    until: Time,
    actions: &mut Vec<(Time, Action)>,
) -> Option<Span> {
    if !random.one_in(4) {
        return None;
    }
    let mut takeovers = Vec::new();
    for _ in 0..random.between(1, 2) {
        let at = Time(random.between(500_000, until.0));
        let stays_for = Span::millis(random.between(100, 6_000));
        takeovers.push((at, random.bits(), stays_for));
    }
    let fence = Span::millis(random.between(1_000, 2_500));
    for (at, stay, stays_for) in takeovers {
        let mut stay = stay;
        if random.one_in(2) {
            // One that stays is cut off with a fresh lease, and cannot prove it to the successor.
            let node = random.below(nodes);
            stay |= 1 << (node % 64);
            let cut = at.after(Span(fence.0 - 1_000 * random.between(0, 600)));
            actions.push((cut, Action::Cut(node, 0, Span::millis(random.between(500, 4_000)))));
        }
        actions.push((at, Action::TakeOver(stay, stays_for)));
    }
    Some(fence)
}

/// A short crash of the controller, while one node cannot reach it and spends the lease it has.
fn draw_lonely(random: &mut Random, nodes: usize, until: Time, actions: &mut Vec<(Time, Action)>) {
    if !random.one_in(8) {
        return;
    }
    let at = Time(random.between(1_000_000, until.0));
    let cut = Time(at.0 - 1_000 * random.between(0, 300));
    actions.push((cut, Action::Cut(random.below(nodes), 0, Span::millis(random.between(1_000, 4_000)))));
    actions.push((at, Action::Crash(Span::millis(random.between(10, 300)), Death::Killed)));
}

/// A controller that is stopped and goes on, with all that came meanwhile.
fn draw_stalls(random: &mut Random, until: Time, actions: &mut Vec<(Time, Action)>) {
    if random.one_in(6) {
        for _ in 0..random.between(1, 2) {
            let at = Time(random.between(200_000, until.0));
            actions.push((at, Action::Stall(Span::millis(random.between(50, 6_000)))));
        }
    }
}

/// A copy of the store that is put back later, mostly while a node cannot report what it has.
fn draw_copies(random: &mut Random, nodes: usize, until: Time, actions: &mut Vec<(Time, Action)>) {
    if !random.one_in(5) {
        return;
    }
    let back = random.between(400_000, until.0);
    let copied = Time(random.between(100_000, back));
    actions.push((copied, Action::Copy(random.one_in(2))));
    if random.one_in(2) {
        // A start that the copy knows nothing of.
        let at = Time(random.between(copied.0, back));
        actions.push((at, Action::Crash(Span::millis(random.between(1, 300)), Death::Killed)));
    }
    if random.one_in(2) {
        let cut = Time(back.saturating_sub(1_000 * random.between(0, 300)));
        let node = random.below(nodes);
        actions.push((cut, Action::Cut(node, 0, Span::millis(random.between(200, 4_000)))));
    }
    let down = Span::millis(random.between(1, 1_000));
    actions.push((Time(back), Action::PutBack(random.one_in(2), down)));
}

/// Groups that lose their limit, or get it.
fn draw_bursts(random: &mut Random, groups: &[GroupId], until: Time, actions: &mut Vec<(Time, Action)>) {
    if !random.one_in(4) {
        return;
    }
    for _ in 0..random.between(1, 4) {
        let at = Time(random.between(200_000, until.0));
        let burstable = if random.one_in(2) { Burstable::Unlimited } else { Burstable::Off };
        if let Some(id) = groups.get(random.below(groups.len())) {
            actions.push((at, Action::Burst(*id, burstable)));
        }
    }
}

/// A stop in order in the middle of a recovery, while one node cannot prove what it holds.
fn draw_second_stop(random: &mut Random, node: usize, started: Time) -> [(Time, Action); 2] {
    let stop = started.after(Span::millis(random.between(10, 1_500)));
    [(started, Action::Cut(node, 0, stop.since(started).max(Span::millis(500)))), (stop, Action::Restart)]
}
