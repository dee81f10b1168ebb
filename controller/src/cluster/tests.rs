//! Three controllers over a model of the shared store, from seeds, in virtual time on one thread, with the code that
//! ships: one speaks at a time, nothing acknowledged is lost, and somebody speaks again soon.

mod announced;
mod drain;
mod drained;
mod forget;
mod groups;
mod judge;
mod leads;
mod ledger;
mod lines;
mod link;
mod machine;
mod node;
mod nodes;
mod operations;
mod reports;
mod restored;
mod roster;
mod secure;
mod session;
mod set_back;
mod shown;
mod standby;
mod streams;
mod strict;
mod windows;
mod world;

use std::ops::RangeInclusive;
use std::sync::Arc;

use tidegate_core::engine::EngineConfig;
use tidegate_core::units::Span;

use judge::{Course, Judge};
use machine::crash;
use world::{Draws, MS, SECOND, World};

/// The fence of most controllers, and of some.
const FENCE: Span = Span::secs(1);
const LONGER: Span = Span::secs(2);
/// Seeds of one run of the test; `CLUSTER_SEEDS=0..=4999` asks for more.
const SEEDS: &str = "0..=199";

/// The seeds of a run: those of a variable, as 0..=4999, or else these.
fn seeds(variable: &str, usual: &str) -> (String, RangeInclusive<u64>) {
    let seeds = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    let (from, to) = seeds.split_once("..=").unwrap_or_else(|| panic!("{variable} is a range, as 0..=4999"));
    let range = from.parse().unwrap()..=to.parse().unwrap();
    (seeds, range)
}

/// Lets time pass until somebody speaks, of a later term than this one: its term and epoch.
fn until_one_speaks(world: &Arc<World>, after: u64, within: u64, why: &str) -> (u64, u64) {
    let end = world.now() + within;
    loop {
        if let Some((_, term, epoch)) = Judge::speaker(world).filter(|(_, term, _)| *term > after) {
            return (term, epoch);
        }
        assert!(world.now() <= end, "seed {}: nobody speaks within {within} us {why}", world.seed);
        world.pass(5 * MS);
    }
}

/// Nodes go on, and when no more operations arrive, the ledger has what they charged.
fn settle(world: &Arc<World>) {
    let (seed, nodes) = (world.seed, || world.nodes.lock().unwrap());
    let (before, end) = (nodes().windows.admitted, world.now() + 20 * SECOND);
    // A node may wait for a controller that is silent, and a group for its recovery.
    world.pass(EngineConfig::default().longest_use(world.ttl).0 + SECOND);
    while nodes().windows.admitted == before {
        assert!(world.now() < end, "seed {seed}: nothing is admitted after all is well");
        world.pass(100 * MS);
    }
    nodes().is_over = true;
    let end = world.now() + 20 * SECOND;
    while !nodes().is_settled() {
        assert!(world.now() < end, "seed {seed}: nodes have not reported all");
        world.pass(100 * MS);
    }
    let (at, ..) = Judge::speaker(world).unwrap();
    let (_, service) = world.machines[at].lock().speaks.clone().unwrap();
    nodes().judge_ledger(world, &service, true);
}

fn run(seed: u64) -> Course {
    let draws = Draws::new(!seed);
    let fences = [(); 3].map(|()| draws.among(&[FENCE, FENCE, FENCE, LONGER]));
    let longest = fences.iter().map(|fence| fence.0).max().unwrap();
    let world = World::new(seed, fences, false);
    world.pass(world.draws.below(SECOND));
    world.storm();
    world.pass(8 * SECOND + world.draws.below(14 * SECOND));
    world.calm();
    // Looks that fail or are late, and time to load; a fence, once more if a take failed, and once more if a record was
    // removed, with the drift of clocks.
    until_one_speaks(&world, 0, 1_500 * MS + 3 * longest, "after all is well");
    world.pass(3 * SECOND);
    let mut course = world.judge.lock().unwrap().course;
    if let Some((at, term, epoch)) = Judge::speaker(&world) {
        world.machines[at].lock().is_to_stop = true;
        world.pass(250 * MS);
        if world.judge.lock().unwrap().left == Some(term) {
            let (_, next) = until_one_speaks(&world, term, 400 * MS, "after a clean stop");
            assert_eq!(next, epoch, "seed {seed}: a clean stop is followed by a clean start");
            course.clean += 1;
        }
    }
    world.pass(2 * SECOND);
    if let Some((at, term, epoch)) = Judge::speaker(&world) {
        let fence = world.owner_fence();
        world.vanish(at);
        // The patience of the others, a beat, and 100 ms.
        let soon = EngineConfig::default().longest_use(fence).0 + fence.0 / 5 + 100 * MS;
        let (_, next) = until_one_speaks(&world, term, soon, "after a crash");
        assert!(next > epoch, "seed {seed}: epoch {next} follows a crash in {epoch}");
        course.crashes += 1;
    }
    settle(&world);
    course.acknowledged = world.judge.lock().unwrap().acknowledged.len();
    world.nodes.lock().unwrap().came_to(&mut course);
    world.end();
    course
}

#[test]
fn one_controller_speaks_at_a_time_nothing_is_lost_and_somebody_speaks_again() {
    let (seeds, range) = seeds("CLUSTER_SEEDS", SEEDS);
    let mut all = Course::default();
    range.for_each(|seed| all.add(&run(seed)));
    eprintln!("{seeds}: {all:?}");
    if all.seeds < 200 {
        // A few are repeated: they need not show all.
        return;
    }
    // What is to be judged has happened.
    let enough = all.takes > 3 * all.seeds && all.terms > 2 * all.seeds && all.resumed > all.seeds / 2;
    assert!(enough && all.clean > all.seeds / 2 && all.crashes > all.seeds / 2, "{all:?}");
    assert!(all.acknowledged > 10 * all.seeds && all.durable > 10_000_000, "{all:?}");
}

/// A world in which the first controller leads, and the others stand by.
fn led_by_the_first(seed: u64, fences: [Span; 3]) -> Arc<World> {
    let world = World::new(seed, fences, false);
    world.machines.iter().skip(1).for_each(|machine| machine.lock().main_at = 300 * MS);
    world.pass(2 * SECOND);
    assert_eq!(Judge::speaker(&world).map(|(at, ..)| at), Some(0));
    world
}

/// An operator removes the record of the first controller, which is stopped; returns who takes the log.
fn removed_unheard(world: &Arc<World>) -> usize {
    world.machines[0].lock().stopped_until = world.now() + 10 * SECOND;
    world.remove_owner();
    for _ in 0..100 {
        world.pass(5 * MS);
        if let Some(at) = (1..3).find(|at| world.machines[*at].lock().speaks.is_some()) {
            assert_eq!(Judge::speaker(world).map(|(at, ..)| at), Some(0), "it does not know yet");
            return at;
        }
    }
    panic!("nobody takes the log");
}

#[test]
fn after_an_owner_whose_record_is_gone_a_stop_in_order_leaves_no_log_in_order() {
    for seed in 0..10 {
        let world = led_by_the_first(seed, [FENCE; 3]);
        let at = removed_unheard(&world);
        world.machines[at].lock().is_to_stop = true;
        // The judge looks whether two speak.
        until_one_speaks(&world, Judge::speaker(&world).unwrap().1, 3 * SECOND, "after the stop");
        world.end();
    }
}

#[test]
fn the_fence_of_an_owner_whose_record_is_gone_is_waited_for_after_a_second_crash() {
    for seed in 0..10 {
        let world = led_by_the_first(seed, [LONGER, FENCE, FENCE]);
        let at = removed_unheard(&world);
        crash(&world, at, 10 * SECOND, false);
        until_one_speaks(&world, Judge::speaker(&world).unwrap().1, 4 * SECOND, "after the crash");
        world.end();
    }
}

#[test]
fn an_owner_whose_record_is_gone_is_waited_for_also_by_a_successor_that_takes_the_log_once_more() {
    for seed in 0..10 {
        let world = led_by_the_first(seed, [LONGER, FENCE, FENCE]);
        let at = removed_unheard(&world);
        // Its disk is full for a moment, so it leads no more, and nobody else is there.
        (1..3).filter(|other| *other != at).for_each(|other| crash(&world, other, 10 * SECOND, false));
        world.machines[at].place.store().fail_next();
        let (term, _) = world.machines[at].lock().speaks.clone().unwrap();
        // The judge looks whether two speak.
        until_one_speaks(&world, term, 6 * SECOND, "after the end");
        world.end();
    }
}

/// The first controller leads, and crashes after these have been drained; returns who leads next.
fn follows(seed: u64, drained: &[usize]) -> usize {
    let world = World::new(seed, [FENCE; 3], false);
    for (at, machine) in world.machines.iter().enumerate() {
        machine.knows_of_another();
        machine.lock().main_at = if at == 0 { 0 } else { 300 * MS };
    }
    world.pass(2 * SECOND);
    let (first, term, _) = Judge::speaker(&world).unwrap();
    assert_eq!(first, 0);
    drained.iter().for_each(|at| world.machines[*at].knows_of_another().drain(Span::secs(60)));
    crash(&world, 0, 30 * SECOND, false);
    until_one_speaks(&world, term, 3 * FENCE.0 + SECOND, "after the crash");
    let next = Judge::speaker(&world).unwrap().0;
    world.end();
    next
}

#[test]
fn a_drained_controller_leaves_the_log_to_one_that_is_not_but_not_to_nobody() {
    for seed in 0..20 {
        assert_eq!(follows(seed, &[1]), 2);
        assert_ne!(follows(seed, &[1, 2]), 0);
    }
}

#[test]
fn a_shared_store_that_was_away_is_no_dead_owner() {
    for seed in 0..20 {
        let world = led_by_the_first(seed, [FENCE; 3]);
        for _ in 0..4 {
            world.weather().away_until = world.now() + 300 * MS + world.draws.below(2_700 * MS);
            world.pass(5 * SECOND);
        }
        let takes = world.judge.lock().unwrap().course.takes;
        assert_eq!(takes, 1, "seed {seed}: who leads has changed for nothing");
        world.end();
    }
}
