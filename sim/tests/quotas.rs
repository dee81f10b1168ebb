//! A fixed batch of seeds of the family of quotas; `sim --quotas` runs any number.

use tidegate_sim::chaos::Plan;

/// A second each with debug assertions; `sim --quotas` runs any number.
const SEEDS: u64 = 10;

/// A node is cut off with a share when the controller stops, and uses it just before its lease ends. What it had then is
/// lost, and another node wants all that there is.
const UNHEARD: &str = "
plan seed=1 delay=100us..4000us calm=20000000us windows
nodes 0 0
group 2 rate=200 ttl=6000000us QUOTA rolls
load load-0 group=2 nodes=0..0 open=20 cost=1..1 wait=1000000us from=1000000us until=5000000us
load load-1 group=2 nodes=0..0 open=200 cost=1..1 wait=1000000us from=9500000us until=11000000us
load load-2 group=2 nodes=1..1 open=200 cost=1..1 wait=1000000us from=14000000us
at 5000000us cut 0 0 8000000us
at 5100000us STOP
";

#[test]
fn no_window_has_more_than_the_quota_and_nearly_all_of_it_can_be_used() {
    for seed in 1..=SEEDS {
        if let Err(violation) = Plan::of_quotas(seed).run() {
            panic!(
                "seed {seed}: {violation}\nrun: cargo run --release -p tidegate-sim --bin sim -- --quotas --seeds 1 --from {seed}"
            );
        }
    }
}

/// The loss left the window a minute after the start, and what was used of it when the lease ended was still in it.
#[test]
fn what_a_node_uses_after_a_start_that_does_not_hear_of_it_counts_for_a_whole_window() {
    for quota in ["quota=600", "quota=600 unit=requests"] {
        for stop in ["crash 50000us killed", "crash 50000us power-cut", "restart"] {
            let text = UNHEARD.replace("QUOTA", quota).replace("STOP", stop);
            let plan: Plan = text.parse().unwrap();
            assert_eq!(plan.run().map(drop), Ok(()), "{quota}, {stop}");
        }
    }
}

#[test]
fn the_same_seed_of_quotas_gives_the_same_run() {
    let (first, second) = (Plan::of_quotas(3).transcript(), Plan::of_quotas(3).transcript());
    assert!(first.lines().count() > 1_000, "{} lines", first.lines().count());
    assert!(first == second);
}
