//! The judgement, from the nodes' own logs: exactly once, the bound, and nothing without a lease.

use tidegate_core::bound::Bound;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_proto::v1::UsageRow;

use super::cap::Cap;
use super::outcome::{BoundFigures, GroupFigures, StopFigures};
use super::tally::Tally;
use super::{Loaded, MOVING, NODES, TTL_US};
use crate::process::cluster::Cluster;
use crate::process::load::Kind;
use crate::process::log::{CLOCK_ERROR_US, Life, Operation};
use tidegate_sim::measure::Waits;

/// How far times of two processes may be apart, in microseconds: both clocks' errors, and whole microseconds.
pub const APART_US: u64 = 2 * (CLOCK_ERROR_US + 1);
/// Between a change of a link and its record, in microseconds.
const RECORD_US: u64 = 1_000;

/// The logs of all nodes: lives by node.
pub type Logs = [Vec<Life>];

fn operations<'a>(logs: &'a Logs, group: &'a str) -> impl Iterator<Item = &'a Operation> {
    logs.iter().flatten().flat_map(move |life| life.operations(group))
}

/// Each incarnation's row is what its log says, exactly; the operation under way at a kill is in or out, whole. Of one
/// without a journal that was killed it is what its first operations came to. The group's total is their sum.
pub fn ledger(
    loaded: &'static Loaded,
    logs: &Logs,
    rows: &[UsageRow],
    violations: &mut Vec<String>,
) -> GroupFigures {
    let name = loaded.name;
    let charged =
        |row: &UsageRow| row.total.as_ref().map_or((0, 0), |total| (total.operations, total.flat_micro_ru));
    let mut sum = (0, 0);
    let (mut sure, mut most, mut lost) = (0, 0, 0);
    let mut matched = 0;
    for (node, lives) in logs.iter().enumerate() {
        for life in lives {
            let client = Cluster::node_name(node);
            let row = rows.iter().find(|row| row.client == client && row.incarnation == life.incarnation);
            matched += usize::from(row.is_some());
            let found = row.map_or((0, 0), charged);
            let certain = life.charged(name);
            let possible = life.doubtful(name).map(|cost| (certain.0 + 1, certain.1 + cost));
            if !life.agrees(name, found) {
                let first = if life.may_lose { " or its first operations" } else { "" };
                violations.push(format!(
                    "exactly once: {name}, {client} incarnation {}: ledger {found:?}, log {certain:?} or \
                     {possible:?}{first}",
                    life.incarnation
                ));
            }
            if life.may_lose {
                lost += (certain.1 - found.1).max(0);
            }
            sum = (sum.0 + found.0, sum.1 + found.1);
            sure += certain.1;
            most += possible.unwrap_or(certain).1;
        }
    }
    let of_nodes = rows.iter().filter(|row| !row.client.is_empty()).count();
    if of_nodes != matched {
        violations
            .push(format!("exactly once: {name}: {of_nodes} rows, but {matched} incarnations in the logs"));
    }
    let total = rows.iter().find(|row| row.client.is_empty()).map_or((0, 0), charged);
    if total != sum {
        violations
            .push(format!("exactly once: {name}: the total is {total:?}, its incarnations sum to {sum:?}"));
    }
    let mut waits = Waits::default();
    for operation in operations(logs, name) {
        waits.admit(0, Ru(operation.estimate), Span(operation.waited_us));
    }
    GroupFigures {
        name,
        operations: waits.admitted,
        charged: (Ru(sure), Ru(most)),
        ledger: Ru(total.1),
        lost: Ru(lost),
        waits: (waits.quantile(500), waits.quantile(990)),
    }
}

/// Admissions and what settling them gave back or took, in order of time. A refund is real somewhere between the
/// lines of admission and settlement, so one refund per node may be counted on the wrong side of a window's end.
pub(super) fn movements(logs: &Logs, groups: &[&str], surcharges: bool) -> Vec<(u64, i64)> {
    let mut movements = Vec::new();
    for operation in groups.iter().flat_map(|group| operations(logs, group)) {
        movements.push((operation.admitted_us, operation.estimate));
        let difference = operation.actual - operation.estimate;
        if let Some(settled_us) = operation.settled_us
            && (difference < 0 || (surcharges && difference > 0))
        {
            movements.push((settled_us, difference));
        }
    }
    movements.sort_unstable();
    movements
}

/// The excess over the cap in the worst window.
pub fn worst(movements: &[(u64, i64)], steps: &[(u64, Rate)]) -> Ru {
    let mut steps = steps.iter().peekable();
    let first = movements.first().map_or(0, |(at, _)| *at);
    let mut bound = Bound::new(Time(first), Rate::ZERO);
    for (at, cost) in movements {
        while let Some((change, rate)) = steps.next_if(|(change, _)| change <= at) {
            bound.set_rate(Time((*change).max(first)), *rate);
        }
        bound.admit(Time(*at), Ru(*cost));
    }
    bound.worst()
}

/// The bound of one group: with the tokens taken at admission, and for wrong estimates with the true costs, too.
pub fn bound(loaded: &Loaded, cap: &Cap, logs: &Logs, violations: &mut Vec<String>) -> Vec<BoundFigures> {
    let steps = if loaded.name == MOVING { cap.steps() } else { vec![(0, Rate::whole(loaded.rate))] };
    let fastest = steps.iter().map(|(_, rate)| *rate).max().unwrap_or(Rate::ZERO);
    let all = || loaded.counts.iter().flat_map(|group| operations(logs, group));
    let refund = all().map(|o| o.estimate - o.actual).max().unwrap_or(0).max(0);
    let nodes = i64::try_from(NODES).unwrap_or(i64::MAX);
    let base = Ru::whole(loaded.burst) + fastest.over(Span(APART_US)) + Ru(refund.saturating_mul(nodes));
    let mut kinds = vec![(loaded.name.to_owned(), false, Ru::ZERO)];
    if loaded.kind == Kind::Wrong {
        // A node owes at most the surcharge of one operation: it admits nothing while it owes.
        let owed = |life: &Life| {
            let all = loaded.counts.iter().flat_map(|group| life.operations(group));
            all.map(|operation| (operation.actual - operation.estimate).max(0)).max().unwrap_or(0)
        };
        let overrun = Ru(logs.iter().flatten().map(owed).sum());
        kinds.push((format!("{} with true costs", loaded.name), true, overrun));
    }
    let mut figures = Vec::new();
    for (name, surcharges, overrun) in kinds {
        let worst = worst(&movements(logs, loaded.counts, surcharges), &steps);
        let allowed = base + overrun;
        if worst > allowed {
            violations.push(format!("bound: {name}: {worst} above rate * window, but only {allowed} may be"));
        }
        figures.push(BoundFigures { name, worst, allowed, overrun });
    }
    figures
}

/// Nothing is admitted while a node stands still, nor by one that got no answer for longer than its lease: what it
/// was leased was asked for before, and the lease runs from the asking.
pub fn stops(tally: &Tally, logs: &Logs, violations: &mut Vec<String>) -> StopFigures {
    let mut by_node: Vec<Vec<(u64, u64)>> = Vec::new();
    for lives in logs {
        let operations = lives.iter().flat_map(|life| life.groups.values().flatten());
        let mut times: Vec<_> = operations.map(|o| (o.admitted_us, o.written_us)).collect();
        times.sort_unstable();
        by_node.push(times);
    }
    let within = |node: usize, from: u64, to: u64| {
        let times = by_node.get(node).map_or(&[][..], Vec::as_slice);
        let begin = times.partition_point(|(admitted, _)| *admitted <= from);
        let end = times.partition_point(|(admitted, _)| *admitted < to);
        times.get(begin..end.max(begin)).unwrap_or_default()
    };
    let mut figures = StopFigures::default();
    for stop in &tally.stops {
        figures.stops += 1;
        figures.long += u64::from(stop.to_us - stop.from_us > TTL_US);
        // The window in which a line can be on its way is short.
        let before = within(stop.node, stop.from_us.saturating_sub(TTL_US), stop.from_us + APART_US);
        let across = before.iter().filter(|(_, written)| *written + APART_US >= stop.to_us).count();
        figures.across += u64::try_from(across).unwrap_or(u64::MAX);
        for (admitted, _) in within(stop.node, stop.from_us + APART_US, stop.to_us.saturating_sub(APART_US)) {
            violations.push(format!("stop: an operation was admitted at {admitted}, in {stop:?}"));
        }
    }
    for silence in &tally.silences {
        let from = silence.from_us + TTL_US + RECORD_US;
        let to = silence.to_us.saturating_sub(APART_US);
        if from >= to {
            continue;
        }
        figures.silences += 1;
        let concerned = |node: usize| silence.node.is_none_or(|one| one == node);
        let woke = |stop: &&super::tally::Stop| concerned(stop.node) && (from..to).contains(&stop.to_us);
        figures.dark_wakes += u64::from(tally.stops.iter().any(|stop| woke(&stop)));
        for node in (0..logs.len()).filter(|node| concerned(*node)) {
            for (admitted, _) in within(node, from, to) {
                violations.push(format!("lease: node {node} admitted at {admitted}, in {silence:?}"));
            }
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate_proto::v1::Consumption;

    use super::super::LOADED;
    use super::super::tally::{Silence, Stop};
    use super::*;

    fn life(incarnation: u64, group: &str, operations: &[(u64, u64, i64, bool)]) -> Life {
        let operation = |(admitted_us, written_us, cost, settled): &(u64, u64, i64, bool)| Operation {
            admitted_us: *admitted_us,
            written_us: *written_us,
            estimate: *cost,
            actual: *cost,
            waited_us: 0,
            settled_us: settled.then_some(*written_us),
        };
        let operations = operations.iter().map(operation).collect();
        let groups = BTreeMap::from([(group.to_owned(), operations)]);
        Life { incarnation, groups, ..Life::default() }
    }

    fn row(client: &str, incarnation: u64, operations: u64, micro: i64) -> UsageRow {
        let total = Consumption { operations, flat_micro_ru: micro, ..Consumption::default() };
        UsageRow { client: client.to_owned(), incarnation, total: Some(total), ..UsageRow::default() }
    }

    fn broken(judge: impl FnOnce(&mut Vec<String>)) -> usize {
        let mut violations = Vec::new();
        judge(&mut violations);
        violations.len()
    }

    #[test]
    fn the_ledger_is_compared_by_incarnation() {
        let logs = [vec![life(1, "load", &[(1, 1, 5, true), (2, 2, 7, false)]), life(2, "load", &[])]];
        let load = &LOADED[0];
        let judged = |rows: &[UsageRow]| broken(|v| _ = ledger(load, &logs, rows, v));
        assert_eq!(judged(&[row("", 0, 1, 5), row("node-0", 1, 1, 5)]), 0, "the last was not charged");
        assert_eq!(judged(&[row("", 0, 2, 12), row("node-0", 1, 2, 12)]), 0, "the last was charged");
        assert_eq!(judged(&[row("", 0, 0, 0)]), 1, "lost");
        assert_eq!(judged(&[row("", 0, 2, 10), row("node-0", 1, 2, 10)]), 1, "twice");
        assert_eq!(judged(&[row("", 0, 1, 6), row("node-0", 1, 1, 5)]), 1, "the total is off");
        let foreign = [row("", 0, 1, 5), row("node-0", 1, 1, 5), row("node-0", 9, 0, 0)];
        assert_eq!(judged(&foreign), 1, "an incarnation that never was");
    }

    #[test]
    fn the_bound_holds_for_burst_and_breaks_above_it() {
        let load = &LOADED[0];
        let cap = Cap::new(Rate::ZERO, 0);
        let micro = 1_000_000;
        let judged = |cost: i64| {
            let first = (10, 10, (load.burst - 100) * micro, true);
            let logs = [vec![life(1, "load", &[first, (1_010, 1_010, cost * micro, true)])]];
            broken(|v| _ = bound(load, &cap, &logs, v))
        };
        // In a millisecond, 1 RU is added to the burst.
        assert_eq!(judged(101), 0);
        assert_eq!(judged(102), 1);
    }

    #[test]
    fn a_lowered_cap_counts_from_its_time() {
        let moving = LOADED.iter().find(|loaded| loaded.name == MOVING).unwrap();
        let burst = moving.burst;
        let mut cap = Cap::new(Rate::whole(burst), 0);
        cap.asked(Rate::whole(burst / 2), 1_000_000);
        cap.acknowledged(1_000_000);
        let micro = 1_000_000;
        let judged = |last: i64| {
            let operation =
                |second: u64, cost: i64| (second * 1_000_000, second * 1_000_000, cost * micro, true);
            let operations = [operation(0, burst), operation(1, burst), operation(2, last)];
            broken(|v| _ = bound(moving, &cap, &[vec![life(1, MOVING, &operations)]], v))
        };
        // The bucket is emptied at once, and refilled in the first second, by half in the next.
        assert_eq!(judged(burst / 2), 0);
        assert_eq!(judged(burst / 2 + 1), 1);
    }

    #[test]
    fn true_costs_count_with_their_overrun() {
        let dear = &LOADED[1];
        let cap = Cap::new(Rate::ZERO, 0);
        let micro = 1_000_000;
        let mut life = life(1, "dear", &[(10, 10, (dear.burst - 1) * micro, true)]);
        life.groups.values_mut().flatten().for_each(|operation| operation.actual += 5 * micro);
        let mut violations = Vec::new();
        let figures = bound(dear, &cap, &[vec![life]], &mut violations);
        assert_eq!(violations, Vec::<String>::new());
        assert_eq!(
            (figures[0].worst, figures[1].worst),
            (Ru::whole(dear.burst - 1), Ru::whole(dear.burst + 4))
        );
        assert_eq!(figures[1].overrun, Ru::whole(5));
    }

    #[test]
    fn a_stopped_or_silent_node_admits_nothing() {
        let file = tempfile::tempfile().unwrap();
        let mut tally = Tally::new(file);
        let second = 1_000_000;
        tally.stops.push(Stop { node: 0, from_us: 10 * second, to_us: 12 * second });
        tally.silences.push(Silence { node: Some(0), from_us: 10 * second, to_us: 13 * second });
        let judged = |at: u64, written: u64| {
            let logs = [vec![life(1, "load", &[(at, written, 1, true)])]];
            let mut violations = Vec::new();
            let figures = stops(&tally, &logs, &mut violations);
            assert_eq!((figures.stops, figures.long, figures.silences, figures.dark_wakes), (1, 1, 1, 1));
            (violations.len(), figures.across)
        };
        let before = 10 * second - 5;
        assert_eq!(judged(before, before), (0, 0));
        assert_eq!(judged(before, 12 * second + 100), (0, 1), "admitted before, written after");
        assert_eq!(judged(10 * second + 500_000, 12 * second), (1, 0), "in the stop");
        assert_eq!(judged(12 * second + 100, 12 * second + 100), (1, 0), "on stale tokens after it");
        assert_eq!(judged(13 * second + 100, 13 * second + 100), (0, 0), "with an answer");
    }
}
