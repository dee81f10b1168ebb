//! The one workload: skewed and shifting demand, below the cap and above it, and a centre that is away for a while.

use tidegate_core::group::GroupId;
use tidegate_core::units::{Span, Time};

use super::{Settings, at};
use crate::comparison::caps::Caps;
use crate::comparison::scenario::{Change, Scenario};
use tidegate_sim::load::{Load, Pattern};
use tidegate_sim::settling::Settling;

/// Demand is below the cap until then.
pub(super) const BUSY: Time = at(20);
/// The centre is lost then.
pub(super) const LOST: Time = at(32);
/// How long the run lasts with the centre back.
const AFTER: Span = Span::secs(13);
/// How long the heavy part of the demand stays at a node.
const STAYS: Span = Span::secs(4);
/// How long an operation waits at most: a caller of a service has about as much patience.
pub(super) const PATIENCE: Span = Span::millis(500);

/// Tenths of the rate: at one node, and at all together.
const CALM: (u64, u64) = (5, 3);
const HEAVY: (u64, u64) = (15, 5);

/// When the centre is back.
pub(super) fn back(settings: &Settings) -> Time {
    LOST.after(settings.away)
}

/// The run.
pub fn scenario(settings: &Settings) -> Scenario {
    let (back, rate) = (back(settings), u64::from(settings.rate));
    let end = back.after(AFTER);
    let quarter = settings.round_trip.0 / 4;
    let phase = |(one, all): (u64, u64), from, until| {
        let mut heavy = load(settings, "at one node", rate * one / 10, from, until);
        heavy.moves = STAYS;
        let share = (rate * all / 10 / settings.nodes as u64).max(1);
        [heavy, load(settings, "at all nodes", share, from, until)]
    };
    let phases = [phase(CALM, at(0), BUSY), phase(HEAVY, BUSY, back), phase(CALM, back, end)];
    Scenario {
        name: "arrangements",
        title: "One limit, many nodes",
        setup: "Operations of 1 to 9 RU arrive at random and wait up to half a second. Most of the demand is at one \
                node, and moves to the next every 4 s; the rest is spread over all.",
        nodes: settings.nodes,
        caps: Caps::new(rate, []),
        end,
        loads: phases.into_iter().flatten().collect(),
        saturated: true,
        new_group: false,
        settled: None,
        waits: &[],
        equal: None,
        shifts: Vec::new(),
        stretches: Vec::new(),
        changes: vec![(LOST, Change::Away), (back, Change::Back)],
        bin: Span::millis(250),
        // Half of a round trip each way, give or take the half of that.
        delay: (Span(quarter), Span(quarter * 3)),
    }
}

fn load(settings: &Settings, label: &str, ru_per_sec: u64, from: Time, until: Time) -> Load {
    Load {
        label: label.to_owned(),
        nodes: (0, settings.nodes - 1),
        group: GroupId(2),
        pattern: Pattern::Open(ru_per_sec),
        cost: (1, 9),
        settle_tenths: 10,
        max_wait: PATIENCE,
        from,
        until,
        turns: Span(0),
        odd: false,
        moves: Span(0),
        settling: Settling::default(),
    }
}

/// The phases, in words.
pub(super) fn phases(settings: &Settings) -> String {
    let seconds = |time: Time| time.0 / 1_000_000;
    let (busy, lost, back) = (seconds(BUSY), seconds(LOST), seconds(back(settings)));
    let end = seconds(super::workload::back(settings).after(AFTER));
    format!(
        "Calm until {busy} s: 0.8 of the rate is offered. Busy from then on: twice the rate. The centre (a server, a \
         store, a log, or the one node that owns the bucket) is lost at {lost} s and back at {back} s, from when on it \
         is calm again, until {end} s. A round trip takes {} on average (seed {}).",
        settings.round_trip, settings.seed
    )
}
