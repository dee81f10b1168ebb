//! What is used of a quota that rolls: each operation is in the cell of the moment at which it starts, and leaves as in
//! the cells of [`crate::quota`]. Those are few at a time and mostly empty, and these are used at almost every moment of
//! a record: a ring finds them by their number.
//!
//! Not in it: that the controller hears of an operation when its node renews, after its end.

use super::grid::Grid;
use super::windows::Windows;
use super::{Budget, ReplayError, Span, Time};
use crate::quota::cell;

/// Cells that are looked at for one decision of the budget, which takes about as long.
const CELLS_A_DECISION: u64 = 4;

/// It.
#[derive(Debug)]
pub(super) struct Rolling {
    /// How long what is used counts.
    length: u64,
    /// Of a cell.
    cell: u64,
    /// What is in cells, by their numbers. Its length is a power of two, and at least that of a window with the cells that
    /// it begins and ends in.
    ring: Vec<u64>,
    /// What is in all of them.
    used: u64,
    /// Nothing is before this moment any more.
    now: Time,
    /// The number of the cell of that moment.
    present: u64,
    /// The first cell with something in it, or the present one.
    oldest: u64,
    /// Until then nothing leaves, and no other cell begins.
    steady_until: Time,
    /// What comes at moments that pass, by cells.
    passing: Vec<(Time, u64)>,
}

impl Rolling {
    pub(super) fn new(length: Span) -> Self {
        let cell = cell(length).0;
        let cells = usize::try_from(length.0 / cell + 3).unwrap_or(usize::MAX);
        let mut rolling = Self {
            length: length.0,
            cell,
            ring: vec![0; cells.next_power_of_two()],
            used: 0,
            now: Time(0),
            present: 0,
            oldest: 0,
            steady_until: Time(0),
            passing: Vec::new(),
        };
        rolling.turn();
        rolling
    }

    /// What is used at a moment, or at the last one.
    #[inline]
    pub(super) fn at(&mut self, moment: Time) -> u64 {
        self.now = self.now.max(moment);
        if self.now >= self.steady_until {
            self.turn();
        }
        self.used
    }

    /// Lets go what leaves by now, and begins the present cell.
    fn turn(&mut self) {
        self.present = self.number(self.now);
        while self.oldest < self.present && (self.leaves_at(self.oldest) <= self.now || self.is_empty()) {
            let oldest = self.oldest;
            let left = self.slot(oldest).map(std::mem::take).unwrap_or_default();
            self.used -= left;
            self.oldest = if self.used == 0 { self.present } else { oldest + 1 };
        }
        self.steady_until = self.ends(self.present).min(self.leaves_at(self.oldest));
    }

    /// Whether nothing is in the oldest cell.
    fn is_empty(&self) -> bool {
        self.amount(self.oldest) == 0
    }

    /// The number of the cell of a moment.
    fn number(&self, at: Time) -> u64 {
        at.0.checked_div(self.cell).unwrap_or(0)
    }

    /// When a cell ends.
    fn ends(&self, number: u64) -> Time {
        Time(number.saturating_add(1).saturating_mul(self.cell))
    }

    /// When a cell leaves.
    fn leaves_at(&self, number: u64) -> Time {
        self.ends(number).after(Span(self.length))
    }

    fn place(&self, number: u64) -> usize {
        usize::try_from(number).unwrap_or(0) & (self.ring.len() - 1)
    }

    fn slot(&mut self, number: u64) -> Option<&mut u64> {
        let place = self.place(number);
        self.ring.get_mut(place)
    }

    /// What is in a cell.
    fn amount(&self, number: u64) -> u64 {
        self.ring.get(self.place(number)).copied().unwrap_or(0)
    }

    /// Until when nothing leaves, and no other cell begins.
    pub(super) fn steady_until(&self) -> Time {
        self.steady_until
    }

    /// When so much has left that is used.
    pub(super) fn leaves(&self, missing: u64) -> Option<Time> {
        let mut sum = 0_u64;
        let last = (self.oldest..=self.present).find(|number| {
            sum += self.amount(*number);
            sum >= missing
        });
        last.map(|number| self.leaves_at(number))
    }

    /// What leaves next.
    pub(super) fn next(&self) -> Option<u64> {
        Some(self.amount(self.oldest)).filter(|amount| *amount > 0)
    }

    /// Counts what starts at a moment.
    pub(super) fn take(&mut self, at: Time, counts: u64) {
        self.at(at);
        let counts = counts.min(u64::MAX - self.used);
        if let Some(amount) = self.slot(self.present) {
            *amount += counts;
            self.used += counts;
        }
    }

    /// The first moment from one on at which not all fits that comes, or of which no cell is reckoned with; the number of
    /// moments if all does. In a cell what is used only grows, so that all fits if the last of it does.
    pub(super) fn until(
        &mut self,
        windows: &Windows,
        grid: &Grid<'_>,
        mut moment: u64,
        budget: &mut Budget,
    ) -> Result<u64, ReplayError> {
        let mut at = grid.arrival(moment);
        let (mut used, mut leaving) = (self.at(at), self.oldest);
        // From then on, what passes leaves.
        let horizon = self.leaves_at(self.present);
        self.passing.clear();
        for cell in 0_u64.. {
            if cell.is_multiple_of(CELLS_A_DECISION) {
                budget.spend()?;
            }
            while leaving < self.present && self.leaves_at(leaving) <= at {
                used -= self.amount(leaving);
                leaving += 1;
            }
            let ends = self.ends(self.number(at)).min(self.leaves_at(leaving));
            let end = grid.first_at(ends);
            let (fits, counts) = windows.fitting(grid, (moment, end), used);
            if counts > 0 {
                self.passing.push((at, counts));
                used += counts;
            }
            moment = fits;
            if fits < end || end == grid.moments || ends == horizon {
                break;
            }
            at = grid.arrival(moment);
        }
        Ok(moment)
    }

    /// Counts what comes at the moments up to the one that was found last.
    pub(super) fn pass(&mut self) {
        let mut passing = std::mem::take(&mut self.passing);
        for (at, counts) in passing.drain(..) {
            self.take(at, counts);
        }
        self.passing = passing;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::quota::Cells;

    proptest! {
        /// Whatever is used when, all is as in the cells of the product.
        #[test]
        fn a_ring_has_what_the_cells_of_the_product_have(
            length in prop_oneof![1_u64..400, Just(60_000_000)],
            steps in prop::collection::vec((0_u64..40, 0_u64..60, 0_u64..9), 1..200),
        ) {
            let (mut ring, mut cells) = (Rolling::new(Span(length)), Cells::new(Span(length)));
            let mut now = 0;
            for (far, quarters, counts) in steps {
                // Mostly some cells later, and sometimes many windows.
                now += if far == 0 { length * quarters } else { cell(Span(length)).0 * quarters / 4 };
                cells.pass(Time(now));
                cells.charge(Time(now), counts.into(), 0);
                ring.take(Time(now), counts);
                let parts: Vec<_> = cells.parts().collect();
                prop_assert_eq!(i128::from(ring.used), parts.iter().map(|(_, amount)| amount).sum::<i128>());
                prop_assert_eq!(ring.next().map(i128::from), parts.first().map(|(_, amount)| *amount));
                for missing in 1..=ring.used {
                    let mut sum = 0;
                    let leaves = parts.iter().find(|(_, amount)| {
                        sum += amount;
                        sum >= i128::from(missing)
                    });
                    prop_assert_eq!(ring.leaves(missing), leaves.map(|(leaves, _)| *leaves));
                }
                let steady = ring.steady_until();
                prop_assert!(Time(now) < steady && steady <= parts.first().map_or(steady, |(leaves, _)| *leaves));
                prop_assert!(steady.0 - now <= cell(Span(length)).0);
            }
        }
    }
}
