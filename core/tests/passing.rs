//! Small operations go on beside large ones, and large ones and tiny rates get their share at any distance. Rates and
//! amounts are in whole RU, shares in thousandths; round trips are twice the delay.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

#[expect(dead_code, reason = "others use the rest")]
mod fleet;

use fleet::{Fleet, Load, Op, op};
use tidegate_core::units::{Ru, Span, Time};

/// Delays of a node nearby, and of round trips of 100, 300 and 500 ms.
const DELAYS: [Span; 4] = [Span::millis(1), Span::millis(50), Span::millis(150), Span::millis(250)];
const SEEDS: std::ops::Range<u64> = 1..6;

/// Any cost within a range.
fn any(low: i64, high: i64) -> Vec<(u64, Op)> {
    (low..=high).map(|cost| (1, op(cost, cost, 0))).collect()
}

/// The median of a figure under some seeds.
fn median<T: Copy + Ord>(figure: impl FnMut(u64) -> T) -> T {
    let mut figures: Vec<T> = SEEDS.map(figure).collect();
    figures.sort_unstable();
    figures[figures.len() / 2]
}

/// The used part of two minutes of the rate and of the burst.
fn used(fleet: &Fleet, (rate, burst): (i64, i64)) -> i64 {
    let over = fleet.over();
    assert!(over <= Ru::ZERO, "{over} over the bound");
    fleet.charged.scale(1_000, Ru::whole(rate * 120 + burst).0).0
}

/// Eight nodes, 0.8 of 1,000 RU/s: half in operations of 1 RU, a quarter of 10 to 50, and a quarter of 100 to `most`.
fn heavy_tail(seed: u64, most: i64) -> (Span, Span) {
    let mut fleet = Fleet::new(1_000, 1_000, 8, DELAYS[0], seed);
    let apart =
        |mix, ms| Load { nodes: 0..8, connections: 1, mix, learns: false, apart: Some(Span::millis(ms)) };
    fleet.add(apart(any(1, 1), 20));
    fleet.add(apart(any(10, 50), 1_200));
    fleet.add(apart(any(100, most), 20 * u64::try_from(100 + most).unwrap()));
    fleet.run(Time(120_000_000));
    assert!(fleet.over() <= Ru::ZERO, "{} over the bound", fleet.over());
    let (waited, ideal, _) = fleet.waits(0);
    (waited, ideal)
}

#[test]
fn small_operations_wait_hardly_longer_beside_a_heavy_tail_than_in_one_queue_for_all() {
    for most in [700, 900] {
        // Thousandths of the wait in one queue in the order of arrival.
        let ratio = median(|seed| {
            let (waited, ideal) = heavy_tail(seed, most);
            waited.0 * 1_000 / ideal.0.max(1)
        });
        assert!(ratio <= 3_000, "up to {most} RU: {ratio}");
    }
}

#[test]
fn operations_near_the_burst_use_the_rate_at_a_distance() {
    for (delay, least) in DELAYS.into_iter().zip([980, 960, 920, 880]) {
        let used = median(|seed| {
            let mut fleet = Fleet::new(1_000, 1_000, 6, delay, seed);
            let large = Load { nodes: 0..2, connections: 1, mix: any(400, 900), learns: false, apart: None };
            fleet.add(large);
            let apart = Some(Span::millis(50));
            fleet.add(Load { nodes: 2..6, connections: 1, mix: any(1, 9), learns: false, apart });
            fleet.run(Time(120_000_000));
            assert!(fleet.chatter() <= 5_500, "{delay}: {}", fleet.chatter());
            used(&fleet, (1_000, 1_000))
        });
        assert!(used >= least, "{delay}: {used}");
    }
}

#[test]
fn fewer_ru_than_clients_are_used_at_a_distance() {
    for (delay, least) in DELAYS.into_iter().zip([995, 990, 985, 980]) {
        let used = median(|seed| {
            let mut fleet = Fleet::new(5, 5, 8, delay, seed);
            fleet.add(Load { nodes: 0..8, connections: 2, mix: any(1, 1), learns: false, apart: None });
            fleet.run(Time(120_000_000));
            used(&fleet, (5, 5))
        });
        assert!(used >= least, "{delay}: {used}");
    }
}

#[test]
fn a_large_operation_beside_any_number_of_small_ones_waits_no_longer_than_twice_its_share_takes() {
    // Its node always has small operations waiting; two nodes share 100 RU/s, and 80 RU must come from a half of 50.
    let mut fleet = Fleet::new(100, 100, 2, DELAYS[0], 1);
    fleet.add(Load { nodes: 0..1, connections: 1, mix: any(80, 80), learns: false, apart: None });
    fleet.add(Load { nodes: 0..2, connections: 50, mix: any(1, 1), learns: false, apart: None });
    fleet.run(Time(120_000_000));
    assert!(fleet.over() <= Ru::ZERO, "{} over the bound", fleet.over());
    let (waited, _, served) = fleet.waits(0);
    assert!(waited <= Span::millis(3_400) && served >= 35, "{waited}, {served} of them");
    assert!(fleet.used() >= 990, "{}", fleet.used());
}

#[test]
fn a_large_operation_at_a_distance_is_not_starved_by_what_is_granted_before_it() {
    // As above, at round trips of 100 and 300 ms: each waits a round trip more before the controller knows of it.
    for (delay, served) in [(DELAYS[1], 68), (DELAYS[2], 62)] {
        let mut fleet = Fleet::new(100, 100, 2, delay, 1);
        fleet.add(Load { nodes: 0..1, connections: 1, mix: any(80, 80), learns: false, apart: None });
        fleet.add(Load { nodes: 1..2, connections: 500, mix: any(1, 1), learns: false, apart: None });
        fleet.run(Time(120_000_000));
        assert!(fleet.over() <= Ru::ZERO, "{} over the bound", fleet.over());
        let (waited, _, of) = fleet.waits(0);
        assert!(of >= served, "{delay}: {waited}, {of} of them");
    }
}

#[test]
fn connections_that_could_use_more_get_it_at_a_distance_beside_large_operations() {
    for (delay, least) in [(DELAYS[1], 200), (DELAYS[2], 100)] {
        let mut fleet = Fleet::new(1_000, 1_000, 3, delay, 1);
        fleet.add(Load { nodes: 0..2, connections: 1, mix: any(400, 900), learns: false, apart: None });
        // The node is idle at first; then two connections could use nearly all there is.
        fleet.run(Time(20_000_000));
        let mix = vec![(1, op(1, 1, 2))];
        fleet.add(Load { nodes: 2..3, connections: 2, mix, learns: false, apart: None });
        fleet.run(Time(40_000_000));
        let (.., served) = fleet.waits(1);
        assert!(served / 20 >= least, "{delay}: {} RU/s", served / 20);
    }
}
