//! What can happen: one event, drawn from an input and applied.

use tidegate_core::engine::Engine;
use tidegate_core::group::GroupId;
use tidegate_core::units::{Ru, Span};

use super::definitions;
use super::system::{LIARS, NODES, System};
use crate::input::Input;

/// Draws one event and lets it happen.
pub(super) fn apply(system: &mut System, input: &mut Input<'_>) {
    let choice = input.byte();
    let node = usize::from(choice >> 6) % NODES;
    match choice & 0x3f {
        0..=5 => system.now = system.now.after(Span(input.between(1, 80_000))),
        6..=7 => system.now = system.now.after(Span(input.between(80_000, 6_000_000))),
        8 => system.now = system.now.after(Span(input.between(1, 200_000_000))),
        9..=13 => {
            let (id, cost) = (group(system, input), Ru(cost(input)));
            system.acquire(node, id, cost, Span(input.between(0, 2_000_000)));
        }
        14..=21 => system.drain(node, group(system, input)),
        22..=24 => system.ask(node, group(system, input)),
        25..=34 => exchange(system, node, input),
        35..=38 => {
            if let Some(index) = under_way(system, input) {
                let message = system.network.remove(index);
                system.deliver(message);
            }
        }
        39 => {
            if let Some(index) = under_way(system, input) {
                system.network.remove(index);
            }
        }
        40..=41 => {
            if let Some(message) =
                under_way(system, input).and_then(|index| system.network.get(index)).cloned()
            {
                system.send(message);
            }
        }
        42..=43 => {
            let which = input.below(256);
            system.finish(node, which, i64::try_from(input.below(12)).unwrap_or_default() - 6);
        }
        44 => system.undo(node),
        45 => system.cancel(node),
        46 => {
            let (id, cost) = (group(system, input), cost(input));
            system.charge(node, id, Ru(cost).or_zero());
        }
        47 => {
            let id = group(system, input);
            system.look(node, id, input);
        }
        48 => system.stored = system.ledger.clone(),
        49..=54 => {
            let id = any_group(system, input);
            system.lie(node % LIARS, id, input);
        }
        55 => {
            let id = group(system, input);
            system.report_lies(node % LIARS, id, input);
        }
        56 => system.leave(node % LIARS),
        57 => goodbye(system, node),
        58 => rarely(input, || system.kill(node)),
        59 => rarely(input, || crash(system)),
        60 => rarely(input, || restart(system)),
        _ if system.steady => {}
        61..=62 => redefine(system, input),
        _ => remove(system, input),
    }
}

/// Events that reset everything come less often than a byte of the input would let them.
fn rarely(input: &mut Input<'_>, event: impl FnOnce()) {
    if input.below(4) == 0 {
        event();
    }
}

fn group(system: &System, input: &mut Input<'_>) -> GroupId {
    input.pick(&system.groups).unwrap_or(GroupId::DEFAULT)
}

/// Also the root and one that does not exist.
fn any_group(system: &System, input: &mut Input<'_>) -> GroupId {
    match input.below(8) {
        6 => GroupId::ROOT,
        7 => GroupId(77),
        place => system.groups.get(place % system.groups.len()).copied().unwrap_or(GroupId::DEFAULT),
    }
}

fn cost(input: &mut Input<'_>) -> i64 {
    if input.below(8) == 0 { input.amount(Ru::MAX.0) } else { i64::from(input.byte()) * 500_000 }
}

fn under_way(system: &System, input: &mut Input<'_>) -> Option<usize> {
    let count = system.network.len();
    (count > 0).then(|| input.below(count))
}

/// Asks and gets the answer at once.
fn exchange(system: &mut System, node: usize, input: &mut Input<'_>) {
    system.ask(node, group(system, input));
    for _ in 0..2 {
        if let Some(message) = system.network.pop() {
            system.deliver(message);
        }
    }
}

/// A node ends in good order: its last reports arrive and its leases end.
fn goodbye(system: &mut System, index: usize) {
    let now = system.now;
    if let Some(node) = system.nodes.get_mut(index) {
        let (client, clock) = (node.client(), node.clock(now));
        for (id, machine) in &mut node.groups {
            machine.release(clock);
            system
                .ledger
                .report(system.now, client, *id, machine.consumption())
                .expect("reports of a node grow");
        }
        system.engine.release(now, client);
    }
    system.kill(index);
}

/// The controller dies: leases and pools are lost, the ledger falls back, streams are cut.
fn crash(system: &mut System) {
    system.ledger = system.stored.clone();
    system.epoch += 1;
    system.engine = Engine::new(system.now, system.config);
    system.define();
    system.engine.recover_until(system.now.after(system.config.longest_use(system.longest_ttl)));
    cut_streams(system);
}

/// A clean stop and start: leases and pools are saved and taken up, under the same epoch.
fn restart(system: &mut System) {
    let snapshot = system.engine.snapshot(system.now);
    system.stored = system.ledger.clone();
    system.engine = Engine::new(system.now, system.config);
    system.define();
    system.engine.restore(system.now, &snapshot);
    cut_streams(system);
}

fn cut_streams(system: &mut System) {
    system.network.clear();
    let now = system.now;
    for node in &mut system.nodes {
        let clock = node.clock(now);
        node.groups.values_mut().for_each(|group| group.on_session_lost(clock));
    }
}

/// A group is altered, moved, or created in the place of one that was removed, if the engine lets it.
fn redefine(system: &mut System, input: &mut Input<'_>) {
    let mut id = any_group(system, input);
    let parent = match input.below(3) {
        0 => Some(any_group(system, input)),
        _ => system.specs.get(&id).and_then(|spec| spec.parent),
    };
    let spec = definitions::draw(input, parent, true);
    if !system.specs.contains_key(&id) {
        let Some(place) = system.groups.iter_mut().find(|group| **group == id) else { return };
        *place = GroupId(system.next_group);
        id = *place;
        system.next_group += 1;
    }
    let longest = spec.ttl;
    if system.engine.put_group(system.now, id, spec.clone()).is_ok() {
        system.specs.insert(id, spec);
        system.longest_ttl = system.longest_ttl.max(longest);
    }
    system.push_lowers();
}

/// A group is removed, if nothing is below it.
fn remove(system: &mut System, input: &mut Input<'_>) {
    let id = group(system, input);
    if system.engine.remove_group(system.now, id).is_ok() {
        system.specs.remove(&id);
        // The controller forgets what a removed group consumed, on disk at once.
        system.ledger.forget_group(id);
        system.stored.forget_group(id);
        system.charged.retain(|(_, group), _| *group != id);
    }
    system.push_lowers();
}
