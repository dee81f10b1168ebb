//! A group with work always waiting uses its rate and no window passes the bound, whatever the estimates of its
//! operations, and whenever they end. Rates and amounts are in whole RU, shares in thousandths.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

#[expect(dead_code, reason = "others use the rest")]
mod fleet;

use fleet::{Fleet, Load, Noise, Op, op};
use tidegate_core::units::{Ru, Span, Time};

/// Two minutes of connections that always ask.
fn always_asking(
    (rate, burst): (i64, i64),
    (nodes, connections): (usize, usize),
    delay: Span,
    mix: Vec<(u64, Op)>,
    learns: bool,
) -> Fleet {
    let mut fleet = Fleet::new(rate, burst, nodes, delay, 7);
    fleet.add(Load { nodes: 0..nodes, connections, mix, learns, apart: None });
    fleet.run(Time(120_000_000));
    let over = fleet.over();
    assert!(over <= Ru::ZERO, "{over} over the bound: {rate} RU/s, burst {burst}, {nodes} nodes");
    fleet
}

/// One call in ten is expensive, and no estimate shows which.
fn one_in_ten(estimate: i64) -> Vec<(u64, Op)> {
    vec![(9, op(estimate, 5, 25)), (1, op(estimate, 180, 50))]
}

const HOME: Span = Span::millis(1);
const CAPS: [(i64, i64); 4] = [(200, 200), (300, 300), (500, 500), (200, 2_000)];

#[test]
fn estimates_that_are_mostly_refunded_hold_nobody_back_on_one_node() {
    for cap in CAPS {
        for estimate in [180, 90, 23, 5] {
            for delay in [HOME, Span::millis(150)] {
                let fleet = always_asking(cap, (1, 8), delay, one_in_ten(estimate), false);
                assert!(fleet.used() >= 950, "{cap:?}, estimate {estimate}, {delay}: {}", fleet.used());
                assert!(fleet.chatter() <= 5_000, "{cap:?}, estimate {estimate}: {}", fleet.chatter());
            }
        }
    }
}

#[test]
fn with_estimates_learnt_any_number_of_nodes_uses_the_rate() {
    for cap in CAPS {
        for nodes in [(1, 8), (2, 4), (8, 1)] {
            let fleet = always_asking(cap, nodes, HOME, one_in_ten(180), true);
            assert!(fleet.used() >= 950, "{cap:?}, {nodes:?}: {}", fleet.used());
        }
        for (delay, least) in [(Span::millis(50), 950), (Span::millis(150), 850)] {
            let fleet = always_asking(cap, (2, 4), delay, one_in_ten(180), true);
            assert!(fleet.used() >= least, "{cap:?}, {delay}: {}", fleet.used());
        }
    }
}

#[test]
fn what_a_lump_s_operation_did_not_need_serves_those_who_wait_on_other_nodes() {
    // The burst holds one operation at its estimate, so each must wait for the refund of the one before.
    for cap in [(200, 200), (300, 300), (500, 500), (200, 400), (200, 2_000)] {
        let fleet = always_asking(cap, (8, 1), HOME, one_in_ten(180), false);
        assert!(fleet.used() >= 950, "{cap:?}: {}", fleet.used());
        let (waited, ..) = fleet.waits(0);
        assert!(waited <= Span::secs(10), "{cap:?}: {waited}");
    }
}

#[test]
fn any_mix_of_costs_up_to_the_burst_uses_the_rate() {
    let mut noise = Noise::new(3);
    for seed in 0..40 {
        let rate = 50 + i64::try_from(noise.below(500)).unwrap();
        let burst = rate * (1 + i64::try_from(noise.below(4)).unwrap());
        let cost =
            |noise: &mut Noise| 1 + i64::try_from(noise.below(u64::try_from(burst).unwrap() - 1)).unwrap();
        let kinds = 1 + noise.below(4);
        let mix: Vec<_> = (0..kinds)
            .map(|_| {
                let (weight, cost) = (1 + noise.below(20), cost(&mut noise));
                (weight, op(cost, cost, 1 + noise.below(100)))
            })
            .collect();
        let fleet = always_asking((rate, burst), (1, 8), HOME, mix.clone(), true);
        assert!(fleet.used() >= 950, "seed {seed}: {rate} RU/s, burst {burst}, {mix:?}: {}", fleet.used());
    }
}
