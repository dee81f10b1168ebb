//! What is used of a quota that rolls: the cells of the product, with each operation in the cell of the moment at which
//! it starts. Cells begin at multiples of their length.
//!
//! Not in it: that the controller hears of an operation when its node renews, after its end.

use super::grid::Grid;
use super::windows::Windows;
use super::{Budget, ReplayError, Span, Time};
use crate::quota::Cells;

/// Cells that are looked at for one decision of the budget, which takes about as long.
const CELLS_A_DECISION: u64 = 4;

/// It. What is charged to the present cell is added to the others when that is over, since it is by far the most.
#[derive(Debug)]
pub(super) struct Rolling {
    /// How long what is used counts.
    length: Span,
    cells: Cells,
    /// What is in the cells.
    used: u64,
    /// Nothing is before this moment any more.
    now: Time,
    /// The part of what is used that is in the present cell, and a moment of it.
    present: (Time, u64),
    /// Until then nothing leaves, and no other cell begins.
    steady_until: Time,
    /// What comes at moments that pass, by cells.
    passing: Vec<(Time, u64)>,
}

impl Rolling {
    pub(super) fn new(length: Span) -> Self {
        let (cells, present) = (Cells::new(length), (Time(0), 0));
        Self { length, cells, used: 0, now: Time(0), present, steady_until: Time(0), passing: Vec::new() }
    }

    /// What is used at a moment, or at the last one.
    pub(super) fn at(&mut self, moment: Time) -> u64 {
        self.now = self.now.max(moment);
        if self.now >= self.steady_until {
            self.turn();
        }
        self.used
    }

    /// Lets go what leaves by now, and begins the present cell.
    fn turn(&mut self) {
        let (at, charged) = std::mem::replace(&mut self.present, (self.now, 0));
        self.cells.charge(at, charged.into(), 0);
        let (left, _) = self.cells.pass(self.now);
        self.used = self.used.saturating_sub(amount(left));
        let next = self.cells.parts().next().map_or(Time(u64::MAX), |(leaves, _)| leaves);
        self.steady_until = self.ends(self.now).min(next);
    }

    /// When the cell of a moment ends.
    fn ends(&self, at: Time) -> Time {
        let ends = self.cells.leaves(at).0.saturating_sub(self.length.0);
        Time(ends).max(at.after(Span(1)))
    }

    /// Until when nothing leaves, and no other cell begins.
    pub(super) fn steady_until(&self) -> Time {
        self.steady_until
    }

    /// What is in the cells, and when it leaves.
    fn parts(&self) -> impl Iterator<Item = (Time, u64)> {
        let (at, charged) = self.present;
        let present = (charged > 0).then(|| (self.cells.leaves(at), charged));
        self.cells.parts().map(|(leaves, part)| (leaves, amount(part))).chain(present)
    }

    /// When so much has left that is used.
    pub(super) fn leaves(&self, missing: u64) -> Option<Time> {
        let mut sum = 0_u64;
        let last = self.parts().find(|(_, part)| {
            sum = sum.saturating_add(*part);
            sum >= missing
        });
        last.map(|(leaves, _)| leaves)
    }

    /// What leaves next.
    pub(super) fn next(&self) -> Option<u64> {
        self.parts().next().map(|(_, part)| part)
    }

    /// Counts what starts at a moment.
    pub(super) fn take(&mut self, at: Time, counts: u64) {
        self.at(at);
        self.used = self.used.saturating_add(counts);
        self.present.1 = self.present.1.saturating_add(counts);
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
        let first = grid.arrival(moment);
        let mut used = self.at(first);
        // From then on, what passes leaves.
        let horizon = self.cells.leaves(first);
        self.passing.clear();
        let mut parts = self.cells.parts().peekable();
        for cell in 0_u64.. {
            if cell.is_multiple_of(CELLS_A_DECISION) {
                budget.spend()?;
            }
            let at = grid.arrival(moment);
            while let Some((_, left)) = parts.next_if(|(leaves, _)| *leaves <= at) {
                used = used.saturating_sub(amount(left));
            }
            let ends = self.ends(at).min(horizon);
            let ends = parts.peek().map_or(ends, |(leaves, _)| ends.min(*leaves));
            let end = grid.first_at(ends);
            let fits = windows.fitting(grid, (moment, end), used);
            let counts = windows.comes(grid, (moment, fits));
            if counts > 0 {
                self.passing.push((at, counts));
                used = used.saturating_add(counts);
            }
            moment = fits;
            if fits < end || end == grid.moments || ends == horizon {
                break;
            }
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

/// What is in a cell, which is never more than the quota.
fn amount(of: i128) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}
