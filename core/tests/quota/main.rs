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
mod world;

use tidegate_core::node::{Acquired, Refusal};
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

/// What a thread spends on its own is counted late.
#[test]
fn threads_draw_no_batches_under_a_quota() {
    let mut world = World::new(1, 1, CALM);
    world.run(1, |_, _| 100);
    let now = world.now;
    let group = &mut world.nodes[0].group;
    assert!(group.state(now).available > Ru::whole(20));
    assert_eq!(group.draw(now, Ru(1)), None);
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
