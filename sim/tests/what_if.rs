//! A what-if beside what happens: the seconds of a run under a cap that refuses nothing are replayed under others, and the
//! same operations come again under these.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_proto::v1;
use tidegate_sim::load::{Load, Pattern};
use tidegate_sim::settling::Settling;
use tidegate_sim::world::World;

const GROUP: GroupId = GroupId(2);
/// Seconds are kept for longer.
const UNTIL: Time = Time(120_000_000);

fn load(label: &str, rate: u64, cost: (u64, u64), turns_ms: u64, patience: Span) -> Load {
    Load {
        label: label.to_owned(),
        nodes: (0, 7),
        group: GROUP,
        pattern: Pattern::Open(rate),
        cost,
        settle_tenths: 10,
        max_wait: patience,
        from: Time(0),
        until: UNTIL,
        turns: Span::millis(turns_ms),
        odd: false,
        moves: Span(0),
        settling: Settling::default(),
    }
}

fn run(seed: u64, rate: i64, burst: i64, loads: &[Load]) -> World {
    let mut world = World::new(seed, 8, (Span(500), Span(1_500))).unwrap();
    let spec = GroupSpec { burst: Some(Ru::whole(burst)), ..GroupSpec::capped(Rate::whole(rate)) };
    world.put_group(GROUP, spec).unwrap();
    for load in loads {
        world.add_load(load.clone());
    }
    world.run(UNTIL.after(Span::secs(2)));
    world
}

/// RU that was let in.
fn admitted(world: &World, loads: &[Load]) -> f64 {
    let labels = loads.iter().map(|load| load.label.as_str());
    let all = labels.flat_map(|label| world.waits(label).unwrap().by_node.values());
    all.map(|ru| ru.0 as f64).sum()
}

/// The RU that would be refused, in percent, as it is predicted for operations that come evenly.
fn predicted(free: &World, patience: Span, rate: i64, burst: i64) -> f64 {
    let wish = v1::WhatIfRequest {
        ru_per_sec: rate.to_string(),
        burst: burst.to_string(),
        resolution: "second".to_owned(),
        patience_us: patience.0,
        ..v1::WhatIfRequest::default()
    };
    let even = free.what_if(GROUP, wish).unwrap().proposed.unwrap().even.unwrap();
    even.throttled_ppm as f64 / 10_000.0
}

#[test]
fn the_share_that_is_throttled_is_predicted_within_three_points() {
    for (patience, rates) in [(Span::millis(250), &[300, 150][..]), (Span::secs(1), &[300])] {
        let steady = |rate| load("steady", rate, (1, 1), 0, patience);
        let gusts = |length_ms| vec![steady(10), load("gusts", 80, (1, 3), length_ms, patience)];
        for (name, loads, some) in [
            ("steady", vec![steady(40)], 2.0),
            ("gusts of 4 s", gusts(4_000), 25.0),
            ("gusts of 30 s", gusts(30_000), 25.0),
        ] {
            let free = run(7, 100_000, 100_000, &loads);
            // A second of the rate, and five, of which little comes back between gusts.
            for (rate, seconds) in rates.iter().flat_map(|rate| [(*rate, 1), (*rate, 5)]) {
                let predicted = predicted(&free, patience, rate, seconds * rate);
                let real =
                    1.0 - admitted(&run(7, rate, seconds * rate, &loads), &loads) / admitted(&free, &loads);
                let (real, apart) = (real * 100.0, (predicted - real * 100.0).abs());
                let said = format!("{name} at {rate}, {seconds} s, waiting {patience}");
                assert!(real > some, "{said}: {real:.1} % were refused");
                assert!(apart <= 3.0, "{said}: {predicted:.1} % predicted, {real:.1} % refused");
            }
        }
    }
}
