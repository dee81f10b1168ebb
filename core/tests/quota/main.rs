//! Quotas over many nodes that are killed, cut off and restarted, with a controller that is killed, too: no window uses
//! more, and what is left can be used.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test stops at the first surprise"
)]

#[path = "../noise/mod.rs"]
mod noise;
mod requests;
mod rolling;
mod windows;
mod world;

use tidegate_core::node::{Acquired, Batch, NodeGroup, Refusal, Spent};
use tidegate_core::quota::Unit;
use tidegate_core::units::{Ru, Span};
use world::{AMOUNT, CALM, Chances, FLUSH, ROUGH, STEP, World};

/// How many seeds a test of any number runs; `TIDEGATE_QUOTA_SEEDS=1000` asks for others.
fn seeds(usual: u32) -> u32 {
    std::env::var("TIDEGATE_QUOTA_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

#[test]
fn a_calm_window_is_used_up_and_no_more() {
    for nodes in [1, 3, 8] {
        let mut world = World::new(1, nodes, CALM);
        world.run(4, |_, _| 400);
        for (window, (settled, _)) in world.windows.iter().enumerate() {
            assert!(*settled <= AMOUNT, "{nodes} nodes, window {window}: {settled} of {AMOUNT}");
            assert!(*settled >= AMOUNT.scale(995, 1_000), "{nodes} nodes, window {window}: {settled}");
        }
    }
}

#[test]
fn no_window_uses_more_whatever_is_killed() {
    for seed in 0..40 {
        let mut world = World::new(seed, 8, ROUGH);
        world.run(4, |now, node| if (now.0 / 3_000_000 + node as u64).is_multiple_of(3) { 500 } else { 50 });
        for (window, (settled, _)) in world.windows.iter().enumerate() {
            assert!(*settled <= AMOUNT, "seed {seed}, window {window}: {settled} of {AMOUNT}");
        }
    }
}

#[test]
fn what_operations_cost_beyond_their_estimates_leaves_less_for_others() {
    for seed in 0..10 {
        let mut world = World::new(seed, 4, Chances { overruns: 10, ..ROUGH });
        world.run(3, |_, _| 200);
        for (window, (settled, above)) in world.windows.iter().enumerate() {
            assert!(*settled <= AMOUNT + *above, "seed {seed}, window {window}: {settled}, {above} above");
        }
    }
}

#[test]
fn a_share_ends_with_its_window() {
    let mut world = World::new(1, 1, CALM);
    world.run(1, |_, _| 20);
    // The next window has begun, and the node has not heard of it.
    let now = world.now;
    let group = &mut world.nodes[0].group;
    assert!(group.state(now).available > Ru::whole(20));
    let refusal = group.try_acquire(now, Ru::whole(1)).unwrap_err();
    assert!(matches!(refusal, Refusal::Throttled { .. }), "{refusal:?}");
    world.run(2, |_, _| 20);
    assert!(world.windows[1].0 > Ru::whole(200), "{:?}", world.windows);
}

/// What threads spend on their own counts as spent from the moment on at which they may.
#[test]
fn threads_spend_no_more_than_the_share() {
    for (seed, unit) in (0..u64::from(seeds(20))).zip([Unit::Ru, Unit::Requests].into_iter().cycle()) {
        let mut world = World::of(unit, seed, 8, Chances { batches: 50, cancels: 5, ..ROUGH });
        world.run(3, |now, node| if (now.0 / 3_000_000 + node as u64).is_multiple_of(3) { 900 } else { 50 });
        for (window, (settled, _)) in world.windows.iter().enumerate() {
            assert!(*settled <= AMOUNT, "seed {seed}, window {window}: {settled} of {AMOUNT}");
        }
    }
}

#[test]
fn with_threads_a_calm_window_is_used_up_all_the_same() {
    for (unit, least) in [(Unit::Ru, AMOUNT.scale(995, 1_000)), (Unit::Requests, AMOUNT)] {
        for nodes in [1, 3, 8] {
            let mut world = World::of(unit, 1, nodes, Chances { batches: 100, ..CALM });
            world.run(3, |_, _| 900);
            for (window, (settled, _)) in world.windows.iter().enumerate() {
                let of = format!("{unit:?}, {nodes} nodes, window {window}: {settled}");
                assert!((least..=AMOUNT).contains(settled), "{of}");
            }
        }
    }
}

#[test]
fn a_batch_is_a_quarter_of_what_is_left_and_ends_with_the_window() {
    let mut world = World::new(1, 1, CALM);
    world.run(1, |_, _| 100);
    let end = world.ends;
    while world.now.after(Span::millis(50)) < end {
        world.now = world.now.after(STEP);
        world.pass(&|_, _| 50);
    }
    let now = world.now;
    let group = world.nodes[0].gather(now);
    let left = |group: &mut NodeGroup| group.quota_left(now, Ru::ZERO, 0).map(|quota| quota.left);
    let before = left(group);
    let batch = group.draw(now, Ru(1)).unwrap();
    assert_eq!(batch.operations, Batch::ANY, "RU are counted");
    assert!(batch.until > now && batch.until <= end, "{:?} of {end:?}", batch.until);
    assert_eq!(left(group), before, "nobody can tell yet what of it is used");
    let next = group.draw(now, Ru(1)).unwrap();
    assert!(next.tokens < batch.tokens, "{next:?} after {batch:?}");
    for batch in [batch, next] {
        group.put_back(now, &Spent { drawn: batch.tokens, left: batch.tokens, ..Spent::default() });
    }
    assert_eq!(left(group), before);
    assert_eq!(group.draw(now, batch.tokens), None, "less than sixteen operations");
    assert_eq!(group.draw(end, Ru(1)), None, "the window has ended");
}

#[test]
fn a_used_up_quota_refuses_at_once_and_says_when_to_come_again() {
    let mut world = World::new(1, 2, CALM);
    world.run(1, |_, _| 500);
    while world.now < world.ends.after(Span(0)) && world.settled < AMOUNT.scale(999, 1_000) {
        world.now = world.now.after(STEP);
        world.deliver();
        for node in 0..2 {
            world.step(node, 500);
        }
        if world.now.0.is_multiple_of(FLUSH.0) {
            world.flush();
        }
    }
    let (now, ends) = (world.now, world.ends);
    let refusal = world.nodes[0].group.acquire(now, Ru::whole(4), now.after(Span::secs(1))).unwrap_err();
    let Refusal::QuotaUsedUp { resets_in, .. } = refusal else { panic!("{refusal:?}") };
    let until = now.after(resets_in);
    assert!(until <= ends && ends.since(until) < Span::secs(1), "{until:?} of {ends:?}");
    let patient = world.nodes[0].group.acquire(now, Ru::whole(4), ends.after(Span::secs(1)));
    assert!(matches!(patient, Ok(Acquired::Queued(_))), "{patient:?}");
}
