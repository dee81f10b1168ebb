//! What is measured of a run, from its log alone.

use tidegate_core::bound::Bound;
use tidegate_core::engine::EngineConfig;
use tidegate_core::group::GroupSpec;
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::caps::Caps;
use super::recovery;
use super::scenario::Scenario;
use super::system::Run;
use tidegate_sim::log::Entry;

/// A whole number as a float.
#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
pub(crate) fn float(number: u128) -> f64 {
    number as f64
}

/// RU as a float.
#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
pub(crate) fn ru(amount: Ru) -> f64 {
    amount.0 as f64 / 1e6
}

/// Use and excess over a part of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// RU admitted, as a share of what the cap and a full bucket yield.
    pub used: f64,
    /// The worst excess over `rate * window` in any window, in bursts.
    pub worst: f64,
    /// The most RU in any window of 1 s and of 10 s, as a multiple of what the rate yields in it.
    pub windows: [f64; 2],
}

/// All that is measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// From the first contact to the end.
    pub whole: Use,
    /// The worst excess over what tidegate promises: a lowered cap holds when the leases of before have ended.
    pub promised: f64,
    /// The use, without the start.
    pub settled: Option<Use>,
    /// RU admitted of the RU that arrived. This and all that follow begin after the start, if the scenario measures
    /// that apart.
    pub served: f64,
    /// RU admitted in each stretch of interest, as a share of what the cap yields in it.
    pub stretches: Vec<f64>,
    /// Median and longest recovery in seconds; the inner `None` is one that did not happen.
    pub recovery: Option<(Option<f64>, Option<f64>)>,
    /// Jain's index of the RU by node: 1 is equal.
    pub jain: Option<f64>,
    /// RU of the node that got least, as a share of an equal one.
    pub least: Option<f64>,
    /// Waits: half, and 99 of 100, were not longer. Operations that gave up count with all they waited, and are the
    /// longest.
    pub waits: Option<(Span, Span)>,
    /// Operations that were refused or gave up, of those whose waits matter.
    pub refused: Option<f64>,
    /// Messages to the centre per node and second.
    pub messages: f64,
}

impl Measures {
    /// Measures a run of a scenario.
    pub fn of(scenario: &Scenario, run: &Run) -> Self {
        let log = &run.log;
        let burst = float(u128::from(scenario.burst()));
        // Fairness and waits are those of known nodes.
        let from = scenario.settled.unwrap_or_default();
        let arrived = total(since(&log.arrived, from));
        let admitted = total(since(&log.admitted, from));
        let equal = scenario.equal.map(|label| shares(scenario, label, since(&log.admitted, from)));
        let (jain, least) = equal.unzip();
        let (waits, refused) = waits(scenario, run, from).unzip();
        Self {
            whole: usage(scenario, &log.admitted, Time(0), burst),
            promised: worst(&scenario.caps.lowered_after(longest_lease()), &log.admitted, Time(0)) / burst,
            // A saturated load has an empty bucket by then.
            settled: scenario.settled.map(|from| usage(scenario, &log.admitted, from, 0.0)),
            served: admitted / arrived.max(1e-9),
            stretches: scenario
                .stretches
                .iter()
                .map(|stretch| {
                    let after =
                        total(since(&log.admitted, stretch.from)) - total(since(&log.admitted, stretch.to));
                    after / scenario.caps.over(stretch.from, stretch.to)
                })
                .collect(),
            recovery: recovery::summary(log, &scenario.shifts_after(from)),
            jain,
            least,
            waits,
            refused,
            messages: run.messages,
        }
    }
}

/// Entries from a moment on.
fn since(entries: &[Entry], from: Time) -> &[Entry] {
    let start = entries.partition_point(|entry| entry.at < from);
    entries.get(start..).unwrap_or_default()
}

/// RU of all entries.
fn total(entries: &[Entry]) -> f64 {
    // The sum of no floats is minus zero.
    entries.iter().map(|entry| ru(entry.cost)).sum::<f64>() + 0.0
}

fn usage(scenario: &Scenario, admitted: &[Entry], from: Time, bucket: f64) -> Use {
    let admitted = since(admitted, from);
    Use {
        used: total(admitted) / (scenario.caps.over(from, scenario.end) + bucket),
        worst: worst(&scenario.caps, admitted, from) / float(u128::from(scenario.burst())),
        windows: [Span::secs(1), Span::secs(10)].map(|window| most(scenario, admitted, window)),
    }
}

/// How long a lease of the default length may be in use.
fn longest_lease() -> Span {
    EngineConfig::default().longest_use(GroupSpec::unlimited().ttl)
}

/// RU above `rate * window` in the worst window.
fn worst(caps: &Caps, admitted: &[Entry], from: Time) -> f64 {
    let rate = |ru_per_sec: u64| Rate::whole(i64::try_from(ru_per_sec).unwrap_or(i64::MAX));
    let before = caps.steps().iter().rev().find(|(at, _)| *at <= from);
    let mut bound = Bound::new(from, rate(before.map_or(0, |(_, rate)| *rate)));
    let mut later = caps.steps().iter().filter(|(at, _)| *at > from).peekable();
    for entry in admitted {
        while let Some((at, ru_per_sec)) = later.next_if(|(at, _)| *at <= entry.at) {
            bound.set_rate(*at, rate(*ru_per_sec));
        }
        bound.admit(entry.at, entry.cost);
    }
    ru(bound.worst())
}

/// The most RU in any window of a length, by what the rate yields in it.
fn most(scenario: &Scenario, admitted: &[Entry], window: Span) -> f64 {
    let (mut most, mut sum) = (0.0_f64, Ru::ZERO);
    let mut ends = admitted.iter().peekable();
    for first in admitted {
        let until = first.at.after(window);
        while let Some(entry) = ends.next_if(|entry| entry.at < until) {
            sum += entry.cost;
        }
        most = most.max(ru(sum) / scenario.caps.over(first.at, until));
        sum -= first.cost;
    }
    most
}

/// Jain's index of the nodes of a label, and the least share.
fn shares(scenario: &Scenario, label: &str, admitted: &[Entry]) -> (f64, f64) {
    let loads = scenario.loads_of(label);
    let mut by_node = vec![None; scenario.nodes];
    for load in scenario.loads.iter().filter(|load| load.label == label) {
        let nodes = load.nodes.0..=load.nodes.1;
        by_node.get_mut(nodes).into_iter().flatten().for_each(|node| *node = Some(0.0));
    }
    for entry in admitted.iter().filter(|entry| loads.contains(&entry.load)) {
        if let Some(Some(node)) = by_node.get_mut(entry.node) {
            *node += ru(entry.cost);
        }
    }
    let shares: Vec<f64> = by_node.into_iter().flatten().collect();
    let n = float(shares.len() as u128);
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|share| share * share).sum::<f64>());
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let jain = if squares > 0.0 { sum * sum / (n * squares) } else { 0.0 };
    (jain, least * n / sum.max(1e-9))
}

/// Waits, and the share that was refused.
fn waits(scenario: &Scenario, run: &Run, from: Time) -> Option<((Span, Span), f64)> {
    let loads: Vec<usize> = scenario.waits.iter().flat_map(|label| scenario.loads_of(label)).collect();
    let of = |entries: &[Entry]| -> Vec<Span> {
        let of_loads = since(entries, from).iter().filter(|entry| loads.contains(&entry.load));
        of_loads.map(|entry| entry.waited).collect()
    };
    let (mut waits, refused) = (of(&run.log.admitted), of(&run.log.refused).len());
    waits.sort();
    let all = waits.len() + refused;
    let patience = scenario.loads.iter().enumerate().filter(|(index, _)| loads.contains(index));
    let longest = patience.map(|(_, load)| load.max_wait).max()?;
    let quantile = |percent: usize| waits.get(all * percent / 100).copied().unwrap_or(longest);
    Some(((quantile(50), quantile(99)), float(refused as u128) / float(all.max(1) as u128)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::scenarios;

    fn entry(at: u64, node: usize, cost: i64) -> Entry {
        Entry { at: Time(at), node, load: 0, cost: Ru::whole(cost), waited: Span(at / 10) }
    }

    fn small() -> Scenario {
        let even = scenarios::all().remove(0);
        Scenario { caps: Caps::new(100, []), end: Time(2_000_000), settled: None, waits: &["even"], ..even }
    }

    #[test]
    fn use_and_excess_of_a_burst() {
        // 150 RU at once, after a second, into a cap of 100 RU/s: half a burst over it, and 1.5 times the rate.
        let admitted = [entry(1_000_000, 0, 100), entry(1_000_000, 1, 50)];
        let found = usage(&small(), &admitted, Time(0), 100.0);
        assert_eq!(found, Use { used: 0.5, worst: 1.5, windows: [1.5, 0.15] });
    }

    #[test]
    fn jain_counts_nodes_that_got_nothing() {
        let (jain, least) = shares(&small(), "even", &[entry(0, 0, 10), entry(0, 1, 10)]);
        assert_eq!((jain, least), (2.0 / 16.0, 0.0));
    }

    #[test]
    fn who_gives_up_waited_longest() {
        let mut run = Run::default();
        run.log.admitted = (0..60).map(|wait| entry(wait * 10, 0, 1)).collect();
        run.log.refused = (0..40).map(|_| entry(20_000_000, 0, 1)).collect();
        let ((half, most), refused) = waits(&small(), &run, Time(0)).unwrap();
        assert_eq!((half, most, refused), (Span(50), Span::secs(2), 0.4));
    }
}
