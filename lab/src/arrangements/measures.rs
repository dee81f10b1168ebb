//! What is measured of an arrangement, from the log of its run and of the ideal bucket's.

use std::collections::BTreeMap;

use tidegate_core::bound::Bound;
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::workload::{BUSY, LOST, PATIENCE, back};
use super::{Settings, at};
use crate::comparison::measures::{float, ru};
use crate::comparison::scenario::Scenario;
use crate::comparison::system::Run;
use tidegate_sim::log::Entry;

/// What the columns mean.
pub(super) const EXPLAINED: &str = "over: RU above rate * window in the worst window, in bursts B of one second of the rate: up to 1.00 is within rate * \
     window + burst; until the centre is lost, and (away) from then on. unused: RU that the ideal bucket admitted in a \
     second and the arrangement did not, of what the ideal admitted. wait: how much longer than with the ideal bucket \
     operations wait while it is calm; one that is refused waits its half second. away: RU admitted while the centre \
     is away, of what the rate yields. messages: from nodes, without answers.";

/// The numbers of one arrangement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measures {
    /// The worst excess over `rate * window` until the centre is lost, in bursts.
    pub over: f64,
    /// What the ideal bucket admitted and this did not, as a share, while demand is below the cap.
    pub unused_calm: f64,
    /// The same while it is above the cap, and the centre there.
    pub unused_busy: f64,
    /// Seconds that an operation waits longer than with the ideal bucket, while demand is below the cap: mean.
    pub wait: f64,
    /// And what 99 of 100 do not exceed.
    pub wait_p99: f64,
    /// Messages of all nodes per second.
    pub messages: u64,
    /// Admitted while the centre is away, of what the rate yields.
    pub away: f64,
    /// The worst excess from the loss of the centre on.
    pub away_over: f64,
    /// What is left unused once the centre is back.
    pub unused_back: f64,
}

impl Measures {
    /// Measures a run beside the ideal bucket's.
    pub fn of(settings: &Settings, scenario: &Scenario, ideal: &Run, run: &Run) -> Self {
        let back = back(settings);
        let (admitted, best) = (&run.log.admitted, &ideal.log.admitted);
        let over = |from, to| over(settings, between(admitted, from, to), from);
        let unused = |from, to| unused(between(best, from, to), between(admitted, from, to));
        let (wait, wait_p99) = waits(ideal, run);
        let away = total(between(admitted, LOST, back)) / scenario.caps.over(LOST, back);
        Self {
            over: over(at(0), LOST),
            unused_calm: unused(at(0), BUSY),
            unused_busy: unused(BUSY, LOST),
            wait,
            wait_p99,
            messages: whole(run.messages * float(settings.nodes as u128)),
            away,
            away_over: over(LOST, scenario.end),
            unused_back: unused(back, scenario.end),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of messages")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

fn between(entries: &[Entry], from: Time, to: Time) -> &[Entry] {
    let start = entries.partition_point(|entry| entry.at < from);
    let end = entries.partition_point(|entry| entry.at < to);
    entries.get(start..end).unwrap_or_default()
}

fn total(entries: &[Entry]) -> f64 {
    ru(entries.iter().map(|entry| entry.cost).fold(Ru::ZERO, |sum, cost| sum + cost))
}

fn over(settings: &Settings, admitted: &[Entry], from: Time) -> f64 {
    let mut bound = Bound::new(from, Rate::whole(settings.rate.into()));
    admitted.iter().for_each(|entry| bound.admit(entry.at, entry.cost));
    ru(bound.worst()) / f64::from(settings.rate)
}

/// By seconds, so that what is over in one does not hide what is missing in another.
fn unused(best: &[Entry], admitted: &[Entry]) -> f64 {
    let (best, admitted) = (by_second(best), by_second(admitted));
    let missing = best.iter().map(|(second, best)| {
        let admitted = admitted.get(second).copied().unwrap_or_default();
        ru((*best - admitted).max(Ru::ZERO))
    });
    missing.sum::<f64>() / best.values().copied().map(ru).sum::<f64>().max(1e-9)
}

fn by_second(entries: &[Entry]) -> BTreeMap<u64, Ru> {
    let mut sums = BTreeMap::new();
    for entry in entries {
        *sums.entry(entry.at.0 / 1_000_000).or_insert(Ru::ZERO) += entry.cost;
    }
    sums
}

/// Mean, and what 99 of 100 do not exceed, of the waits of a run less those of the ideal, in seconds.
fn waits(ideal: &Run, run: &Run) -> (f64, f64) {
    let (own, best) = (by_operation(run), by_operation(ideal));
    let seconds = |span: Span| float(u128::from(span.0)) / 1e6;
    let mut longer: Vec<f64> = own
        .iter()
        .filter_map(|(operation, wait)| best.get(operation).map(|best| seconds(*wait) - seconds(*best)))
        .collect();
    longer.sort_by(f64::total_cmp);
    let count = longer.len();
    let mean = longer.iter().sum::<f64>() / float(count.max(1) as u128);
    (mean, longer.get(count * 99 / 100).copied().unwrap_or_default())
}

/// How long the operations waited that arrived while it was calm, by when and where they came.
fn by_operation(run: &Run) -> BTreeMap<(Time, usize, usize), Span> {
    let came = |entry: &Entry| Time(entry.at.0.saturating_sub(entry.waited.0));
    let key = |entry: &Entry| (came(entry), entry.node, entry.load);
    let admitted = run.log.admitted.iter().map(|entry| (key(entry), entry.waited));
    let refused = run.log.refused.iter().map(|entry| (key(entry), PATIENCE));
    admitted.chain(refused).filter(|((came, ..), _)| *came < BUSY).collect()
}
