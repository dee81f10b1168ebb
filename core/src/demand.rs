//! The load of a node: RU that arrived for admission, over a sliding window of about a second.
//!
//! Method: a ring of 100 ms cells; the rate is the sum of the live cells over the time they cover. A shorter window of
//! 300 ms shows sooner that the load has fallen or risen.

use crate::units::{MICRO, Rate, Ru, Span, Time};

/// Length of a cell: the short window is three cells, the long one ten and the one that is filling.
const CELL: Span = Span::millis(100);
const CELLS: usize = 11;
/// The short window.
pub(crate) const RECENT: Span = Span::millis(300);
/// A load that arrived in this many cells in a row, with [`MANY`] operations in each, is steady.
const STEADY: u64 = 5;
/// Operations in a cell: with so many, an empty cell comes by chance once in thousands.
const MANY: i64 = 5;

/// RU arrived per second, smoothed.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Demand {
    cells: [Ru; CELLS],
    /// Number of the newest cell, counted from time zero; `None` before the first arrival.
    newest: Option<u64>,
    /// Number of the oldest cell that the ring holds, or of the first arrival if that is later: there is no measurement
    /// of the time before.
    oldest: u64,
}

impl Demand {
    /// An operation of this cost arrived.
    pub(crate) fn arrived(&mut self, now: Time, cost: Ru) {
        self.turn(now);
        let number = now.0 / CELL.0;
        if self.newest.is_none() {
            (self.newest, self.oldest) = (Some(number), number);
        }
        if let Some(cell) = self.cell_mut(number) {
            *cell += cost;
        }
    }

    /// Over the last second.
    pub(crate) fn rate(&mut self, now: Time) -> Rate {
        self.over(now, 10)
    }

    /// Over [`RECENT`].
    pub(crate) fn recent(&mut self, now: Time) -> Rate {
        self.over(now, RECENT.0 / CELL.0)
    }

    /// As [`Demand::rate`], but averages a load that began within the last second only since it began.
    pub(crate) fn risen(&mut self, now: Time) -> Rate {
        self.turn(now);
        let Some(newest) = self.newest else { return Rate::ZERO };
        let first = newest.saturating_sub(10).max(self.oldest);
        let came = (first..newest).find(|number| self.cell(*number).is_positive()).unwrap_or(newest);
        self.over(now, newest - came)
    }

    /// When the end of a steady load shows, if its last operation came at `last`: after a whole empty cell, where each
    /// cell before had many operations. `largest` is the cost of the largest of these.
    pub(crate) fn shows_end_at(&self, last: Time, largest: Ru) -> Option<Time> {
        let end = last.0 / CELL.0;
        let begin = end.checked_sub(STEADY)?;
        let least = largest.scale(MANY, 1);
        let steady = begin >= self.oldest && (begin..end).all(|number| self.cell(number) > least);
        steady.then(|| Time((end + 2) * CELL.0))
    }

    /// Sum of the newest, still open cell and `full` closed ones, over the time they cover.
    fn over(&mut self, now: Time, full: u64) -> Rate {
        self.turn(now);
        let Some(newest) = self.newest else {
            return Rate::ZERO;
        };
        let first = newest.saturating_sub(full).max(self.oldest);
        let sum: Ru = (first..=newest).filter_map(|number| self.cell_mut(number).copied()).sum();
        let covered = now.0.saturating_sub(first * CELL.0).max(CELL.0);
        Rate(sum.scale(MICRO, i64::try_from(covered).unwrap_or(i64::MAX)).0)
    }

    /// Empties the cells that the ring reuses.
    fn turn(&mut self, now: Time) {
        let Some(newest) = self.newest else { return };
        let number = now.0 / CELL.0;
        if number <= newest {
            return;
        }
        let steps = number - newest;
        if steps >= CELLS as u64 {
            self.cells = [Ru::ZERO; CELLS];
        } else {
            for passed in newest + 1..=number {
                if let Some(cell) = self.cell_mut(passed) {
                    *cell = Ru::ZERO;
                }
            }
        }
        self.newest = Some(number);
        self.oldest = self.oldest.max(number.saturating_sub(CELLS as u64 - 1));
    }

    fn cell(&self, number: u64) -> Ru {
        self.cells.get(index(number)).copied().unwrap_or_default()
    }

    fn cell_mut(&mut self, number: u64) -> Option<&mut Ru> {
        self.cells.get_mut(index(number))
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number % CELLS as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn feed(demand: &mut Demand, from_ms: u64, to_ms: u64, every_ms: u64, cost: Ru) {
        let mut at = from_ms;
        while at < to_ms {
            demand.arrived(Time(at * 1_000), cost);
            at += every_ms;
        }
    }

    /// All that arrived, of which nothing is ever dropped.
    #[derive(Default)]
    struct All {
        cells: BTreeMap<u64, Ru>,
    }

    impl All {
        fn over(&self, now: Time, full: u64) -> Rate {
            let Some(oldest) = self.cells.keys().next() else { return Rate::ZERO };
            let first = (now.0 / CELL.0).saturating_sub(full).max(*oldest);
            let sum: Ru = self.cells.range(first..).map(|(_, ru)| *ru).sum();
            let covered = (now.0 - first * CELL.0).max(CELL.0);
            Rate(sum.scale(MICRO, i64::try_from(covered).unwrap()).0)
        }

        fn risen(&self, now: Time) -> Rate {
            let newest = now.0 / CELL.0;
            let came = self.cells.range(newest.saturating_sub(10)..newest).next();
            self.over(now, newest - came.map_or(newest, |(cell, _)| *cell))
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::with_cases(256)
        })]

        /// Operations that come at any time, a cell, the whole ring and many rings apart.
        #[test]
        fn a_load_is_what_a_list_of_all_operations_says(
            steps in vec((prop_oneof![0_u64..90_000, 90_000_u64..2_500_000], 1_i64..1_000_000), 1..60),
            begins in 0_u64..5_000_000,
        ) {
            let (mut demand, mut all) = (Demand::default(), All::default());
            let mut now = Time(begins);
            for (pause, cost) in steps {
                now = now.after(Span(pause));
                let measured = [demand.clone().rate(now), demand.clone().recent(now), demand.clone().risen(now)];
                prop_assert_eq!(measured, [all.over(now, 10), all.over(now, 3), all.risen(now)], "{:?}", now);
                demand.arrived(now, Ru(cost));
                *all.cells.entry(now.0 / CELL.0).or_default() += Ru(cost);
            }
        }
    }

    #[test]
    fn a_steady_load_is_measured_at_its_rate() {
        let mut demand = Demand::default();
        feed(&mut demand, 5_000, 9_000, 10, Ru::whole(1));
        let rate = demand.rate(Time(9_000_000));
        assert!((rate.0 - Rate::whole(100).0).abs() <= Rate::whole(10).0, "{rate}");
    }

    #[test]
    fn a_load_that_stopped_fades_within_its_window() {
        let mut demand = Demand::default();
        feed(&mut demand, 0, 2_000, 10, Ru::whole(1));
        assert!(demand.recent(Time(2_400_000)) < Rate::whole(1));
        assert!(demand.rate(Time(2_400_000)) > Rate::whole(40));
        assert_eq!(demand.rate(Time(3_200_000)), Rate::ZERO);
        assert_eq!(demand.rate(Time(60_000_000)), Rate::ZERO);
    }

    #[test]
    fn the_first_arrival_is_not_diluted_by_the_time_before_it() {
        let mut demand = Demand::default();
        demand.arrived(Time(7_777_000_000), Ru::whole(5));
        assert!(demand.rate(Time(7_777_000_000)) >= Rate::whole(45));
    }

    #[test]
    fn a_load_that_began_again_is_averaged_over_the_time_since_at_once() {
        let mut demand = Demand::default();
        feed(&mut demand, 0, 1_000, 10, Ru::whole(1));
        feed(&mut demand, 5_000, 5_200, 10, Ru::whole(1));
        assert_eq!(demand.risen(Time(5_200_000)), Rate::whole(100));
        assert_eq!(demand.rate(Time(5_200_000)), Rate::whole(20), "over the last second");
        feed(&mut demand, 5_200, 9_000, 10, Ru::whole(1));
        assert_eq!(demand.risen(Time(9_000_000)), Rate::whole(100));
    }

    #[test]
    fn the_end_of_a_load_shows_if_each_tenth_of_half_a_second_had_many_operations() {
        let shows = |from, every, last: u64| {
            let mut demand = Demand::default();
            feed(&mut demand, from, last + 1, every, Ru::whole(1));
            demand.shows_end_at(Time(last * 1_000), Ru::whole(1))
        };
        assert_eq!(shows(0, 10, 2_000), Some(Time(2_200_000)), "after a whole empty tenth");
        assert_eq!(shows(1_500, 10, 2_000), Some(Time(2_200_000)));
        assert_eq!(shows(1_600, 10, 2_000), None, "four tenths");
        assert_eq!((shows(0, 10, 400), shows(10, 10, 10)), (None, None), "nor less, where the clock begins");
        assert_eq!(shows(0, 20, 2_000), None, "with five, a tenth without any comes by chance");
        assert_eq!(shows(0, 100, 2_000), None);
        assert_eq!(Demand::default().shows_end_at(Time(2_000_000), Ru::whole(1)), None);
    }

    #[test]
    fn no_end_shows_of_operations_that_the_ring_has_lost() {
        let mut demand = Demand::default();
        feed(&mut demand, 0, 5_000, 10, Ru::whole(1));
        let shows = |last: u64| demand.shows_end_at(Time(last * 1_000), Ru::whole(1)).is_some();
        assert!(shows(4_400) && (500..4_400).step_by(100).all(|last| !shows(last)));
    }
}
