//! The bounds of paced groups, from the nodes' own logs: no window has more than the rate, or the curve of a rate that
//! warms up, yields in it, and what nodes admit before it is paid for.

use tidegate_core::policy::warm_up::WarmUp;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_sim::curve::Curve;

use super::judge::{APART_US, Logs, movements, worst};
use super::outcome::BoundFigures;
use super::{LEASE_US, Loaded, Pace};
use crate::process::log::Life;

/// A node pays so far ahead, to make up for late timers.
const AHEAD: Span = Span::millis(5);
/// A node's demand is averaged over a second, and the node looks ten times in it.
const AVERAGED_US: u64 = 1_100_000;

/// The bound of one group; `crashes` are those of the only controller, after which the rate begins cold.
pub(super) fn bound(
    loaded: &Loaded,
    pace: Pace,
    crashes: &[u64],
    logs: &Logs,
    violations: &mut Vec<String>,
) -> BoundFigures {
    let movements = movements(logs, loaded.counts, false);
    let rate = Rate::whole(loaded.rate);
    let (worst, promise) = match pace {
        Pace::Even => (worst(&movements, &[(0, rate)]), "rate * window"),
        Pace::WarmUp(period, factor) => match WarmUp::new(rate, period, factor) {
            Ok(curve) => (above(curve, crashes, &movements), "the curve"),
            Err(error) => {
                violations.push(format!("{}: no curve: {error}", loaded.name));
                (Ru::ZERO, "the curve")
            }
        },
    };
    // A node pays for an operation once it has begun. If it is killed before, the rest of its lease, which the controller
    // keeps for it, pays for most of that; the next incarnation begins another.
    let largest = |lives: &Vec<Life>| {
        let all = lives.iter().flat_map(|life| loaded.counts.iter().flat_map(|group| life.operations(group)));
        all.map(|operation| operation.actual).max().unwrap_or(0)
    };
    let overrun = Ru(logs.iter().map(|lives| 2 * largest(lives)).sum());
    let allowed = rate.over(AHEAD) + rate.over(Span(APART_US)) + overrun;
    if worst > allowed {
        violations
            .push(format!("bound: {}: {worst} above {promise}, but only {allowed} may be", loaded.name));
    }
    BoundFigures { name: loaded.name.to_owned(), worst, allowed, overrun }
}

/// RU above the curve in the worst window.
fn above(curve: WarmUp, crashes: &[u64], movements: &[(u64, i64)]) -> Ru {
    let Some((first, _)) = movements.first() else { return Ru::ZERO };
    let mut known = Curve::new(Time(*first), curve, Span(LEASE_US + AVERAGED_US));
    // Before its first operation it was cold.
    let mut crashes = crashes.iter().skip_while(|at| *at < first).peekable();
    for (at, cost) in movements {
        while let Some(crash) = crashes.next_if(|crash| *crash <= at) {
            known.crashed(Time(*crash), Time(crash + LEASE_US));
        }
        known.admit(Time(*at), Ru(*cost));
    }
    known.worst()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::chaos::LOADED;
    use crate::process::log::Operation;

    const MICRO: i64 = 1_000_000;

    /// How many windows are above the bound when so many RU a second are admitted in steps of 10 ms, each second another.
    fn broken(name: &str, crashes: &[u64], seconds: &[i64]) -> usize {
        let loaded = LOADED.iter().find(|loaded| loaded.name == name).unwrap();
        let operation = |(step, per_second): (u64, i64)| {
            let (at, cost) = (1 + step * 10_000, per_second * MICRO / 100);
            Operation {
                admitted_us: at,
                written_us: at,
                estimate: cost,
                actual: cost,
                ..Operation::default()
            }
        };
        let steps = seconds.iter().flat_map(|ru| std::iter::repeat_n(*ru, 100));
        let operations = (0..).zip(steps).map(operation).collect();
        let life = Life { groups: [(name.to_owned(), operations)].into(), ..Life::default() };
        let mut violations = Vec::new();
        bound(loaded, loaded.pace.unwrap(), crashes, &[vec![life]], &mut violations);
        violations.len()
    }

    #[test]
    fn a_paced_group_saves_nothing_up() {
        assert_eq!(broken("paced", &[], &[400, 400, 0, 400]), 0);
        assert_eq!(broken("paced", &[], &[400, 400, 0, 410]), 1, "a burst after a pause");
    }

    #[test]
    fn a_group_that_warms_up_is_held_to_its_curve() {
        assert_eq!(broken("cold", &[], &[100, 100, 400, 400, 400]), 0);
        assert_eq!(broken("cold", &[], &[100, 250, 400, 400, 400]), 1, "too warm in its second second");
        let crash = 5_500_000;
        let (leased, warm) =
            ([100, 100, 400, 400, 400, 400, 100, 100], [100, 100, 400, 400, 400, 400, 400, 400]);
        assert_eq!(broken("cold", &[crash], &leased), 0, "leases of before the crash last");
        assert_eq!(broken("cold", &[], &warm), 0);
        assert_eq!(broken("cold", &[crash], &warm), 1, "it went on warm after a crash");
    }
}
