//! How long newly loaded nodes take to come to their share.
//!
//! The run is cut into bins of 100 ms from the shift on. The nodes have recovered with the first bin in which they admit
//! 90 % of their share (or of what arrives at them in it, if that is less), if they do so over the half second that
//! begins with it, too.

use tidegate_core::units::Span;

use super::measures::float;
use super::scenario::Shift;
use tidegate_sim::log::{Entry, Log};

const BIN: Span = Span::millis(100);
/// Bins over which it must stay so.
const STAYS: usize = 5;
const SHARE: f64 = 0.9;

/// Seconds from the shift to the end of the bin; `None` when it does not happen while the shift lasts.
pub fn recovery(log: &Log, shift: &Shift) -> Option<f64> {
    let bins = usize::try_from(shift.until.since(shift.at).0 / BIN.0).ok()?;
    let admitted = binned(&log.admitted, shift, bins);
    let arrived = binned(&log.arrived, shift, bins);
    let fair = float(u128::from(shift.fair)) * float(u128::from(BIN.0)) / 1e6;
    let good = |admitted: f64, arrived: f64, bins: usize| {
        admitted >= SHARE * (fair * float(bins as u128)).min(arrived)
    };
    let first = (0..bins.saturating_sub(STAYS - 1)).find(|bin| {
        let sum = |sums: &[f64]| sums.iter().skip(*bin).take(STAYS).sum::<f64>();
        let one = |sums: &[f64]| sums.get(*bin).copied().unwrap_or_default();
        good(one(&admitted), one(&arrived), 1) && good(sum(&admitted), sum(&arrived), STAYS)
    })?;
    Some(float((first as u128 + 1) * u128::from(BIN.0)) / 1e6)
}

/// RU of the shift's nodes in each bin.
fn binned(entries: &[Entry], shift: &Shift, bins: usize) -> Vec<f64> {
    let mut sums = vec![0.0; bins];
    let start = entries.partition_point(|entry| entry.at < shift.at);
    for entry in entries.iter().skip(start).take_while(|entry| entry.at < shift.until) {
        let bin = usize::try_from(entry.at.since(shift.at).0 / BIN.0).unwrap_or(usize::MAX);
        if (shift.nodes.0..=shift.nodes.1).contains(&entry.node)
            && let Some(sum) = sums.get_mut(bin)
        {
            *sum += super::measures::ru(entry.cost);
        }
    }
    sums
}

/// The median and the longest of the recoveries; `None` is one that did not happen.
pub fn summary(log: &Log, shifts: &[Shift]) -> Option<(Option<f64>, Option<f64>)> {
    // An unfinished one is longer than any other.
    let mut all: Vec<f64> =
        shifts.iter().map(|shift| recovery(log, shift).unwrap_or(f64::INFINITY)).collect();
    all.sort_by(f64::total_cmp);
    let finite = |seconds: &f64| seconds.is_finite().then_some(*seconds);
    Some((all.get(all.len() / 2).map(finite)?, all.last().map(finite)?))
}

/// How long the shortest of the shifts lasts: what an unfinished recovery is longer than.
pub fn shortest(shifts: &[Shift]) -> Span {
    shifts.iter().map(|shift| shift.until.since(shift.at)).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::{Ru, Time};

    use super::*;

    #[test]
    fn recovered_with_the_first_bin_that_stays_good() {
        let shift = Shift { at: Time(1_000_000), nodes: (3, 3), fair: 100, until: Time(3_000_000) };
        let entry =
            |at, cost| Entry { at: Time(at), node: 3, load: 0, cost: Ru::whole(cost), waited: Span(0) };
        let mut log = Log::default();
        for bin in 0..20 {
            log.arrived.push(entry(1_000_000 + bin * 100_000, 50));
            // One good bin alone, then good from the eighth on but for one that is made up for.
            let cost = if bin == 9 {
                8
            } else if bin == 2 || bin >= 7 {
                10
            } else {
                5
            };
            log.admitted.push(entry(1_000_000 + bin * 100_000 + 10, cost));
        }
        assert_eq!(recovery(&log, &shift), Some(0.8));
        log.admitted.truncate(10);
        assert_eq!(recovery(&log, &shift), None, "it did not stay");
    }
}
