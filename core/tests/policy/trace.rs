//! Operations of any times and costs.

use proptest::prelude::*;

/// Moments and costs up to a bit more than `most`: in bursts, with pauses, and now and then all at one microsecond.
pub(crate) fn forward(most: i64) -> impl Strategy<Value = Vec<(u64, i64)>> {
    let gap = prop_oneof![3 => Just(0_u64), 4 => 0_u64..40, 3 => 0_u64..1_500, 1 => 0_u64..20_000];
    let cost = prop_oneof![3 => Just(1_i64), 4 => 1..=(most / 4).max(1), 2 => 1..=most + 2];
    (0_u64..5_000, proptest::collection::vec((gap, cost), 1..80)).prop_map(|(begin, steps)| {
        let mut at = begin;
        let step = |(gap, cost)| {
            at += gap;
            (at, cost)
        };
        steps.into_iter().map(step).collect()
    })
}

/// The same, by a clock that steps back now and then.
pub(crate) fn any_way(most: i64) -> impl Strategy<Value = Vec<(u64, i64)>> {
    (forward(most), proptest::collection::vec((0_usize..80, 0_u64..8_000), 1..6)).prop_map(
        |(mut all, steps)| {
            for (from, back) in steps {
                for (at, _) in all.iter_mut().skip(from) {
                    *at = at.saturating_sub(back);
                }
            }
            all
        },
    )
}
