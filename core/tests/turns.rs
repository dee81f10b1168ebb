//! A load that moves from node to node finds the rate it needs, nearby and at a distance. Rates and amounts are in
//! whole RU; round trips are twice the delay.

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

const TURN: Span = Span::secs(5);

/// Operations of 1 to 9 RU on some nodes, this far apart in the mean.
fn load(nodes: std::ops::Range<usize>, apart: Span) -> Load {
    let mix: Vec<(u64, Op)> = (1..=9).map(|cost| (1, op(cost, cost, 0))).collect();
    Load { nodes, connections: 1, mix, learns: false, apart: Some(apart) }
}

/// Two halves of sixteen nodes offer 8,000 of 10,000 RU/s in turns: the 99th percentile of the waits.
fn halves_in_turns(delay: Span, seed: u64) -> Span {
    let mut fleet = Fleet::new(10_000, 10_000, 16, delay, seed);
    fleet.add_in_turns(load(0..8, Span::millis(5)), TURN, (0, 2));
    fleet.add_in_turns(load(8..16, Span::millis(5)), TURN, (1, 2));
    fleet.run(Time(30_000_000));
    assert!(fleet.over() <= Ru::ZERO, "{} over the bound", fleet.over());
    assert!(fleet.chatter() <= 2_500, "{delay}: {}", fleet.chatter());
    fleet.waits(0).0.max(fleet.waits(1).0)
}

#[test]
fn halves_in_turns_wait_little_more_than_a_round_trip_at_a_distance() {
    for (round_trip, most) in [(100, 150), (300, 400)] {
        let mut waits: Vec<Span> =
            (1..4).map(|seed| halves_in_turns(Span::millis(round_trip / 2), seed)).collect();
        waits.sort_unstable();
        assert!(waits[1] <= Span::millis(most), "{round_trip} ms: {waits:?}");
    }
}
