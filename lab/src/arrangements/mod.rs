//! Fact 8: one limit that many nodes share, arranged in ten ways, under one workload in the simulated world.
//!
//! The ways are the models of `rivals`, and the machines that ship; all see the same operations with the same delays.

pub mod measures;
pub mod workload;

use tidegate_core::units::{Rate, Span, Time};

use crate::comparison::figure::figure;
use crate::comparison::scenario::Scenario;
use crate::comparison::system::{Run, rival, ticks, tidegate};
use crate::policies::table::{Table, thousands};
use crate::policies::{LabError, Section};
use crate::rivals::ideal::Ideal;
use crate::rivals::known::{Known, Way};
use crate::rivals::pd::Pd;
use crate::rivals::server::{Call, Server};
use crate::rivals::split::Split;
use crate::rivals::sticky::Sticky;
use crate::rivals::window::{Counting, Windows};
use measures::Measures;

/// The workload, and the numbers of the arrangements that have one.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many nodes share the limit.
    pub nodes: usize,
    /// RU/s, with a burst of one second.
    pub rate: u32,
    /// How long the centre is away.
    pub away: Span,
    /// To the centre and back, on average.
    pub round_trip: Span,
    /// Between two words of a node about its counter.
    pub period: Span,
    /// Until what was appended to the log is in the sums that nodes read.
    pub stale: Span,
    /// Of all random numbers.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: 8,
            rate: 10_000,
            // Three times tidegate's lease: what happens after its end shows.
            away: Span::secs(15),
            // Within a data centre.
            round_trip: Span::millis(2),
            // As often as chatter of nodes costs little; with the store an operator chooses it.
            period: Span::millis(200),
            // Batches of a producer and a consumer, and a job that sums up twice a second.
            stale: Span::millis(500),
            seed: 1,
        }
    }
}

/// Nodes, and rates, that a run can take: random streams by node end at 64, and 2 million operations take a minute.
const NODES: std::ops::RangeInclusive<usize> = 2..=64;
const RATES: std::ops::RangeInclusive<u32> = 100..=50_000;
/// A call is given up after 20 ms, the default of Envoy's rate limit filter and of Sentinel's cluster client, but not
/// before two answers could have come.
const CALL: Span = Span::millis(20);

/// How nodes share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// What cannot be built: one bucket for all, without delay.
    Ideal,
    /// An n-th for each.
    Split,
    /// One node for all operations.
    Sticky,
    /// Counters from each node to each.
    Broadcast,
    /// Counters through a log.
    Log,
    /// Counters through a store, every period.
    Sync,
    /// A counter per window: get, compare, set.
    GetThenSet,
    /// A counter per window: increment.
    Increment,
    /// A call for each operation; let in when nobody answers.
    ServerOpen,
    /// A call for each operation; refused when nobody answers.
    ServerClosed,
    /// PD's slots.
    Pd,
    /// Leases of tidegate.
    Leases,
    /// The same, with a fallback for the time without them.
    Fallback,
}

impl Arrangement {
    /// All, in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::Ideal,
        Self::Split,
        Self::Sticky,
        Self::Broadcast,
        Self::Log,
        Self::Sync,
        Self::GetThenSet,
        Self::Increment,
        Self::ServerOpen,
        Self::ServerClosed,
        Self::Pd,
        Self::Leases,
        Self::Fallback,
    ];

    /// In tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ideal => "ideal bucket",
            Self::Split => "even split",
            Self::Sticky => "sticky nodes",
            Self::Broadcast => "broadcast",
            Self::Log => "log stream",
            Self::Sync => "periodic sync",
            Self::GetThenSet => "store, get then set",
            Self::Increment => "store, increment",
            Self::ServerOpen => "call each, open",
            Self::ServerClosed => "call each, closed",
            Self::Pd => "PD's slots",
            Self::Leases => "tidegate",
            Self::Fallback => "with a fallback",
        }
    }

    /// What it is, in a sentence.
    fn sentence(self, settings: &Settings) -> String {
        let Settings { period, stale, .. } = *settings;
        let timeout = timeout(settings);
        match self {
            Self::Ideal => {
                "one bucket for all nodes and one queue, without a delay; cannot be built.".to_owned()
            }
            Self::Split => "each node has an equal part of the rate and of the burst.".to_owned(),
            Self::Sticky => {
                "a balancer sends all to one node; a dead one is noticed after 6 s, and one that is back \
                             after 4 s, the defaults of HAProxy; a new owner begins with a full bucket."
                    .to_owned()
            }
            Self::Broadcast => format!("each node sends each other one what it took, every {period}."),
            Self::Log => format!(
                "each node appends what it took to a log every {period}, and reads sums that are {stale} old."
            ),
            Self::Sync => {
                format!("each node gives a store what it took, and reads what others took, every {period}.")
            }
            Self::GetThenSet => format!(
                "a counter for each second in a store: get, compare, set. No answer within {timeout}: let in."
            ),
            Self::Increment => format!(
                "the same counter, but that the store adds and returns the sum. No answer within {timeout}: let in."
            ),
            Self::ServerOpen => {
                format!(
                    "a server with the bucket is asked about each operation. No answer within {timeout}: let in."
                )
            }
            Self::ServerClosed => "the same, but refused when there is no answer.".to_owned(),
            Self::Pd => "slots and trickles of PD's resource manager, which TiDB uses.".to_owned(),
            Self::Leases => {
                "leases of rate and tokens, by the machines that ship; without one a node admits nothing."
                    .to_owned()
            }
            Self::Fallback => {
                "the same, but without leases nodes may admit the rate together, an equal part each."
                    .to_owned()
            }
        }
    }

    /// Runs the workload.
    ///
    /// # Errors
    /// The world refused the group.
    pub fn run(self, settings: &Settings, scenario: &Scenario) -> Result<Run, LabError> {
        let Settings { nodes, rate, period, seed, .. } = *settings;
        let rate = f64::from(rate);
        let first = ticks(seed, nodes);
        let call = |fails_open| Call { timeout: timeout(settings), fails_open };
        let known = |way| rival(scenario, seed, Known::new(rate, way, period, &first));
        let window = |counting| {
            let windows = Windows::new(rate, nodes, counting, timeout(settings));
            rival(scenario, seed, windows)
        };
        Ok(match self {
            Self::Ideal => rival(scenario, seed, Ideal::new(rate)),
            Self::Split => rival(scenario, seed, Split::new(rate, nodes)),
            Self::Sticky => rival(scenario, seed, Sticky::new(rate)),
            Self::Broadcast => known(Way::Broadcast),
            Self::Log => known(Way::Log(settings.stale)),
            Self::Sync => known(Way::Store),
            Self::GetThenSet => window(Counting::GetThenSet),
            Self::Increment => window(Counting::Increment),
            Self::ServerOpen => rival(scenario, seed, Server::new(rate, nodes, call(true))),
            Self::ServerClosed => rival(scenario, seed, Server::new(rate, nodes, call(false))),
            Self::Pd => rival(scenario, seed, Pd::new(rate, false, &first)),
            Self::Leases => tidegate(scenario, seed, None).map_err(LabError::World)?,
            Self::Fallback => {
                let fallback = Some(Rate::whole(settings.rate.into()));
                tidegate(scenario, seed, fallback).map_err(LabError::World)?
            }
        })
    }
}

fn timeout(settings: &Settings) -> Span {
    CALL.max(Span(settings.round_trip.0 * 2))
}

fn check(settings: &Settings) -> Result<(), LabError> {
    let bad = |option, value, remedy| Err(LabError::Option { option, value, remedy });
    let ms = |span: Span| span.0 / 1_000;
    let Settings { nodes, rate, away, round_trip, period, stale, .. } = *settings;
    if !NODES.contains(&nodes) {
        return bad("nodes", nodes as u64, "2 to 64");
    }
    if !RATES.contains(&rate) {
        return bad("rate", rate.into(), "100 to 50000");
    }
    if away < Span::secs(1) || away > Span::secs(600) {
        return bad("away", away.0 / 1_000_000, "1 to 600 seconds");
    }
    if round_trip > Span::secs(1) {
        return bad("round-trip", ms(round_trip), "0 to 1000 milliseconds");
    }
    if period < Span::millis(1) || period > Span::secs(10) {
        return bad("period", ms(period), "1 to 10000 milliseconds");
    }
    if stale > Span::secs(60) {
        return bad("stale", ms(stale), "0 to 60000 milliseconds");
    }
    Ok(())
}

/// Runs all; `progress` hears the name of each before it begins.
///
/// # Errors
/// Settings that make no run.
pub fn run(settings: &Settings, progress: &mut dyn FnMut(&str)) -> Result<Section, LabError> {
    check(settings)?;
    let scenario = workload::scenario(settings);
    let mut runs = Vec::new();
    for arrangement in Arrangement::ALL {
        progress(arrangement.name());
        runs.push((arrangement.name(), arrangement.run(settings, &scenario)?));
    }
    Ok(section(settings, &scenario, &runs))
}

fn section(settings: &Settings, scenario: &Scenario, runs: &[(&str, Run)]) -> Section {
    let mut table = Table::new([
        "arrangement",
        "over, B",
        "calm unused, %",
        "busy unused, %",
        "wait, ms",
        "p99, ms",
        "messages/s",
        "away, x rate",
        "away over, B",
        "back unused, %",
    ]);
    let ideal = runs.first().map(|(_, run)| run);
    for (name, run) in runs {
        let Some(found) = ideal.map(|ideal| Measures::of(settings, scenario, ideal, run)) else {
            continue;
        };
        let percent = |share: f64| format!("{:.1}", share * 100.0);
        table.row([
            (*name).to_owned(),
            format!("{:.2}", found.over),
            percent(found.unused_calm),
            percent(found.unused_busy),
            milliseconds(found.wait),
            milliseconds(found.wait_p99),
            thousands(found.messages),
            format!("{:.2}", found.away),
            format!("{:.2}", found.away_over),
            percent(found.unused_back),
        ]);
    }
    let sentences = Arrangement::ALL
        .map(|arrangement| format!("{}: {}", arrangement.name(), arrangement.sentence(settings)));
    let named: Vec<_> = runs.iter().map(|(name, run)| (*name, run)).collect();
    Section {
        name: "arrangements",
        title: format!("Fact 8: {} nodes share {} RU/s", settings.nodes, thousands(settings.rate.into())),
        text: [scenario.setup.to_owned(), workload::phases(settings), measures::EXPLAINED.to_owned()]
            .into_iter()
            .chain(sentences)
            .collect(),
        tables: vec![table],
        pictures: vec![figure(scenario, &named)],
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e3)
}

/// The moment so many seconds after the start.
const fn at(seconds: u64) -> Time {
    Time(seconds * 1_000_000)
}
