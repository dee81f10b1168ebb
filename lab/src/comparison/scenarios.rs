//! All scenarios of the comparison.
//!
//! Unless it says otherwise: 60 s, 16 nodes, a cap of 10,000 RU/s with a burst of one second, operations of 1 to 9 RU
//! that arrive at random whatever happens to them and wait up to two seconds.

use tidegate_core::group::GroupId;
use tidegate_core::units::{Span, Time};

use super::caps::Caps;
use super::scenario::{Change, DELAY, Scenario, Shift, Stretch};
use tidegate_sim::load::{Load, Pattern};
use tidegate_sim::settling::Settling;

const RATE: u64 = 10_000;
/// One way, where the centre is far away.
const FAR: (Span, Span) = (Span::millis(149), Span::millis(151));

/// A moment, in milliseconds.
const fn ms(milliseconds: u64) -> Time {
    Time(milliseconds * 1_000)
}

/// Seconds.
const fn s(seconds: u64) -> Time {
    ms(seconds * 1_000)
}

fn load(label: &str, nodes: (usize, usize), ru_per_sec: u64) -> Load {
    Load {
        label: label.to_owned(),
        nodes,
        group: GroupId(2),
        pattern: Pattern::Open(ru_per_sec),
        cost: (1, 9),
        settle_tenths: 10,
        max_wait: Span::secs(2),
        from: Time(0),
        until: Time(u64::MAX),
        turns: Span(0),
        odd: false,
        moves: Span(0),
        settling: Settling::default(),
    }
}

fn scenario(name: &'static str, title: &'static str, setup: &'static str, loads: Vec<Load>) -> Scenario {
    Scenario {
        name,
        title,
        setup,
        nodes: 16,
        caps: Caps::new(RATE, []),
        end: s(60),
        loads,
        saturated: true,
        new_group: false,
        settled: Some(s(30)),
        waits: &[],
        equal: None,
        shifts: Vec::new(),
        stretches: Vec::new(),
        changes: Vec::new(),
        bin: Span::millis(250),
        delay: DELAY,
    }
}

/// Every scenario, in the order of the page.
pub fn all() -> Vec<Scenario> {
    vec![
        even(),
        one_heavy(),
        moving_heavy(),
        in_turns(),
        under_load(),
        many_nodes(),
        on_off(),
        tiny_rate(),
        first_second(),
        centre_away(),
        cap_changes(),
        large_operations(),
        heavy_tail(),
        far_operations(),
        far_tiny_rate(),
    ]
}

fn even() -> Scenario {
    let setup = "16 nodes offer 1,250 RU/s each: twice the cap.";
    Scenario {
        equal: Some("even"),
        ..scenario("even", "Even load at twice the cap", setup, vec![load("even", (0, 15), 1_250)])
    }
}

fn one_heavy() -> Scenario {
    let setup = "One node offers 30,000 RU/s, 15 nodes offer 100 RU/s each and should not notice. Waits are those of the \
                 light nodes.";
    let loads = vec![load("heavy", (0, 0), 30_000), load("light", (1, 15), 100)];
    Scenario {
        waits: &["light"],
        equal: Some("light"),
        ..scenario("one-heavy", "One heavy node beside light ones", setup, loads)
    }
}

fn moving_heavy() -> Scenario {
    let setup = "30,000 RU/s come to one node and move to the next every five seconds, in operations that wait up to \
                 200 ms; all nodes offer 100 RU/s besides. Recovery is that of the node the load has moved to.";
    let mut heavy = load("heavy", (0, 15), 30_000);
    heavy.moves = Span::secs(5);
    // Operations that still wait where the load was would have a claim on its share for as long.
    heavy.max_wait = Span::millis(200);
    // All but the light load of the other nodes.
    let fair = RATE - 15 * 100;
    let shift = |turn: usize| {
        let at = s(turn as u64 * 5);
        Shift { at, nodes: (turn, turn), fair, until: at.after(Span::secs(5)) }
    };
    Scenario {
        shifts: (1..12).map(shift).collect(),
        ..scenario(
            "moving-heavy",
            "The heavy node moves every five seconds",
            setup,
            vec![heavy, load("light", (0, 15), 100)],
        )
    }
}

fn in_turns() -> Scenario {
    let setup = "Two halves of the nodes are on for five seconds in turns and offer 8,000 RU/s together, so a perfect \
                 allocator serves everything. Waits are those of all; recovery is that of the half that comes on.";
    let mut left = load("left", (0, 7), 1_000);
    left.turns = Span::secs(5);
    let mut right = load("right", (8, 15), 1_000);
    right.turns = Span::secs(5);
    right.odd = true;
    let shift = |turn: u64| {
        let nodes = if turn.is_multiple_of(2) { (0, 7) } else { (8, 15) };
        Shift { at: s(turn * 5), nodes, fair: 8_000, until: s(turn * 5 + 5) }
    };
    Scenario {
        saturated: false,
        waits: &["left", "right"],
        shifts: (1..12).map(shift).collect(),
        ..scenario("in-turns", "On and off in turns, 0.8 of the cap offered", setup, vec![left, right])
    }
}

fn under_load() -> Scenario {
    let setup = "16 nodes offer 437 RU/s each: 0.7 of the cap. Nobody should notice that there is a limit.";
    Scenario {
        saturated: false,
        waits: &["even"],
        equal: Some("even"),
        ..scenario(
            "under-load",
            "Under load: 0.7 of the cap offered",
            setup,
            vec![load("even", (0, 15), 437)],
        )
    }
}

fn many_nodes() -> Scenario {
    let setup = "64 nodes offer 313 RU/s each: twice the cap. 120 s, settled after 90 s.";
    Scenario {
        nodes: 64,
        end: s(120),
        settled: Some(s(90)),
        bin: Span::millis(500),
        equal: Some("even"),
        ..scenario("many-nodes", "64 equal nodes", setup, vec![load("even", (0, 63), 313)])
    }
}

fn on_off() -> Scenario {
    let setup = "8 nodes offer 5,000 RU/s each for 30 s and nothing for 30 s, one after the other, 7.5 s apart: four are on \
                 at any time. Operations wait up to 200 ms. 240 s. Recovery is that of the node that comes on.";
    // Node k is 7.5 s * k ahead in its minute. The first four begin inside their half minute that is on.
    let begins = |node: u64| 30_000 - 7_500 * (node % 4);
    let max_wait = Span::millis(200);
    let mut loads = Vec::new();
    for node in 0..4 {
        let index = usize::try_from(node).unwrap_or_default();
        loads.push(Load { until: ms(begins(node)), max_wait, ..load("on and off", (index, index), 5_000) });
    }
    for node in 0..8 {
        let index = usize::try_from(node).unwrap_or_default();
        loads.push(Load {
            from: ms(begins(node)),
            turns: Span::secs(30),
            odd: node < 4,
            max_wait,
            ..load("on and off", (index, index), 5_000)
        });
    }
    let shift = |turn: u64| {
        // At 7.5 s node 7 comes on, at 15 s node 6, and so on.
        let node = usize::try_from(7 - (turn - 1) % 8).unwrap_or_default();
        Shift { at: ms(turn * 7_500), nodes: (node, node), fair: RATE / 4, until: ms(turn * 7_500 + 7_500) }
    };
    Scenario {
        nodes: 8,
        end: s(240),
        equal: Some("on and off"),
        shifts: (1..32).map(shift).collect(),
        bin: Span::secs(1),
        ..scenario("on-off", "8 nodes, each 30 s on and 30 s off", setup, loads)
    }
}

fn tiny_rate() -> Scenario {
    let setup = "A cap of 5 RU/s and 8 nodes with two workers each, whose operations cost 1 RU and wait up to a minute. \
                 120 s. Everybody should progress.";
    let tiny = Load {
        pattern: Pattern::Closed(2),
        cost: (1, 1),
        max_wait: Span::secs(60),
        ..load("workers", (0, 7), 0)
    };
    Scenario {
        nodes: 8,
        caps: Caps::new(5, []),
        end: s(120),
        equal: Some("workers"),
        bin: Span::secs(4),
        ..scenario("tiny-rate", "Fewer RU/s than clients", setup, vec![tiny])
    }
}

fn first_second() -> Scenario {
    let setup = "4 nodes that nobody knows begin to offer 12,500 RU/s each, five times the cap together, to a group that \
                 was never used. 10 s.";
    Scenario {
        nodes: 4,
        end: s(10),
        new_group: true,
        settled: None,
        equal: Some("even"),
        stretches: vec![Stretch { title: "first second", from: s(0), to: s(1) }],
        bin: Span::millis(100),
        ..scenario(
            "first-second",
            "The first second of a new group",
            setup,
            vec![load("even", (0, 3), 12_500)],
        )
    }
}

fn centre_away() -> Scenario {
    let setup = "16 nodes offer twice the cap. The centre dies at 20 s and is back at 40 s.";
    Scenario {
        settled: None,
        equal: Some("even"),
        stretches: vec![
            Stretch { title: "away, 20-40 s", from: s(20), to: s(40) },
            Stretch { title: "back, 40-60 s", from: s(40), to: s(60) },
        ],
        changes: vec![(s(20), Change::Away), (s(40), Change::Back)],
        ..scenario("centre-away", "The centre is away for 20 s", setup, vec![load("even", (0, 15), 1_250)])
    }
}

fn cap_changes() -> Scenario {
    let setup = "16 nodes offer 30,000 RU/s together. The cap of 10,000 RU/s is doubled at 20 s and halved at 40 s. \
                 Recovery is that of all nodes after the doubling.";
    Scenario {
        caps: Caps::new(RATE, [(s(20), 2 * RATE), (s(40), RATE)]),
        settled: None,
        equal: Some("even"),
        shifts: vec![Shift { at: s(20), nodes: (0, 15), fair: 2 * RATE, until: s(40) }],
        stretches: vec![
            Stretch { title: "doubled, 20-40 s", from: s(20), to: s(40) },
            Stretch { title: "halved, 40-60 s", from: s(40), to: s(60) },
            Stretch { title: "after the halving, 40-45 s", from: s(40), to: s(45) },
        ],
        changes: vec![(s(20), Change::Cap(2 * RATE)), (s(40), Change::Cap(RATE))],
        ..scenario(
            "cap-changes",
            "The cap is doubled, then halved",
            setup,
            vec![load("even", (0, 15), 1_875)],
        )
    }
}

fn large_operations() -> Scenario {
    let setup = "A cap of 1,000 RU/s. Two nodes run one operation of 400 to 900 RU after the other, each of which may wait \
                 a minute; four nodes offer 100 RU/s in operations of 1 to 9 RU, whose waits are shown.";
    let big = Load {
        pattern: Pattern::Closed(1),
        cost: (400, 900),
        max_wait: Span::secs(60),
        ..load("big", (0, 1), 0)
    };
    let small = Load { max_wait: Span::secs(10), ..load("small", (2, 5), 100) };
    Scenario {
        nodes: 6,
        caps: Caps::new(1_000, []),
        waits: &["small"],
        bin: Span::secs(1),
        ..scenario("large-operations", "Operations of up to 0.9 of the burst", setup, vec![big, small])
    }
}

fn heavy_tail() -> Scenario {
    let setup = "A cap of 1,000 RU/s and eight nodes that offer 0.8 of it: half in operations of 1 RU, a quarter in some of 10 \
                 to 50, a quarter in some of 100 to 700. All may wait a minute. 120 s. Waits are those of operations of 1 RU.";
    let part = |label: &str, ru_per_sec, cost| Load {
        cost,
        max_wait: Span::secs(60),
        ..load(label, (0, 7), ru_per_sec)
    };
    Scenario {
        nodes: 8,
        caps: Caps::new(1_000, []),
        end: s(120),
        saturated: false,
        waits: &["small"],
        bin: Span::secs(1),
        ..scenario(
            "heavy-tail",
            "Small operations beside a heavy tail, 0.8 of the cap offered",
            setup,
            vec![part("small", 50, (1, 1)), part("medium", 25, (10, 50)), part("large", 25, (100, 700))],
        )
    }
}

fn far_operations() -> Scenario {
    let setup = "The same with a round trip of 300 ms, for 120 s.";
    Scenario {
        name: "far-operations",
        title: "Operations of up to 0.9 of the burst, far away",
        setup,
        end: s(120),
        settled: Some(s(30)),
        delay: FAR,
        ..large_operations()
    }
}

fn far_tiny_rate() -> Scenario {
    let setup = "A cap of 5 RU/s and 8 nodes with two workers each, as above, with a round trip of 300 ms.";
    Scenario {
        name: "far-tiny-rate",
        title: "Fewer RU/s than clients, far away",
        setup,
        delay: FAR,
        ..tiny_rate()
    }
}
