//! A fixed batch of seeds of the fault simulation; the `sim` binary runs any number.

use tidegate_sim::chaos::Plan;

/// With debug assertions every step checks all invariants twice; `sim --release` runs thousands of seeds.
const SEEDS: u64 = 80;

#[test]
fn no_seed_breaks_the_promise() {
    for seed in 1..=SEEDS {
        if let Err(violation) = Plan::new(seed).run() {
            panic!(
                "seed {seed}: {violation}\nrun: cargo run --release -p tidegate-sim --bin sim -- --seeds 1 --from {seed}"
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [3, 77, 1_234] {
        let (first, second) = (Plan::new(seed).transcript(), Plan::new(seed).transcript());
        assert!(first.lines().count() > 100, "seed {seed}: {} lines", first.lines().count());
        assert!(first == second, "seed {seed}");
    }
}
