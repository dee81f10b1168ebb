//! Processes that hardly run use what their buckets hold and what they earn while they run: a late task is not a
//! missing lease. Rates and amounts are in whole RU, shares in thousandths.

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

#[test]
fn starved_processes_use_what_they_earn_in_half_a_second_beside_the_time_they_run() {
    for (period, runs) in [(100, 50), (400, 100), (800, 200), (1_000, 100), (2_000, 500), (3_000, 300)] {
        let mut fleet = Fleet::new(1_000, 1_000, 4, Span::millis(1), 1);
        fleet.runs = Some((Span::millis(period), Span::millis(runs)));
        let mix: Vec<(u64, Op)> = (1..=9).map(|cost| (1, op(cost, cost, 2))).collect();
        fleet.add(Load { nodes: 0..4, connections: 16, mix, learns: false, apart: None });
        fleet.run(Time(60_000_000));
        let due = (1_000 * (500 + i64::try_from(runs).unwrap()) / i64::try_from(period).unwrap()).min(1_000);
        assert!(fleet.used() >= due * 95 / 100, "{runs} of {period} ms: {}", fleet.used());
        assert!(fleet.over() <= Ru::ZERO, "{} over the bound", fleet.over());
    }
}
