//! What is charged to a quota that rolls: [`CELLS`] cells of equal length, each with what was charged or lost in it. A cell
//! leaves the sum, as a whole, when its end is longer ago than the length of the window. So nothing leaves early, and
//! nothing stays longer than a cell beyond the window.
//!
//! By the clock of the core, which nobody sets; a controller that starts again says how long ago cells were.

use std::collections::VecDeque;

use crate::units::{Span, Time};

/// Cells in a window. With half of them, what left the window comes back in steps that are felt, of a thirtieth of the
/// quota; with twice as many, a row on disk has 2 kB, and each busy minute writes 120 of them.
pub const CELLS: u64 = 60;

/// The length of a cell of such a window.
pub fn cell(window: Span) -> Span {
    Span((window.0 / CELLS).max(1))
}

/// A cell with something in it, in micro-RU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cell {
    /// The moment at which it leaves: a multiple of the length of a cell.
    leaves: Time,
    charged: i128,
    lost: i128,
}

/// What nodes may use until then, without a word of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Unheard {
    until: Time,
    lost: i128,
}

/// Cells in the order in which they leave.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cells {
    /// Of the window.
    length: Span,
    cells: VecDeque<Cell>,
    /// What goes into a cell when it cannot be used any more: what is used of it until then counts until a window later.
    unheard: Option<Unheard>,
    /// All that left.
    gone: i128,
}

impl Cells {
    /// Cells of a window of this length.
    pub(crate) fn new(length: Span) -> Self {
        Self { length, cells: VecDeque::new(), unheard: None, gone: 0 }
    }

    fn cell(&self) -> u64 {
        cell(self.length).0
    }

    /// When that leaves which is charged now.
    pub(crate) fn leaves(&self, now: Time) -> Time {
        let cell = self.cell();
        Time(now.0 / cell * cell).after(Span(cell)).after(self.length)
    }

    /// Adds to the cell of this moment.
    pub(crate) fn charge(&mut self, now: Time, charged: i128, lost: i128) {
        self.add(Cell { leaves: self.leaves(now), charged, lost });
    }

    /// Counts as lost what nodes may use until then.
    pub(crate) fn lose(&mut self, now: Time, until: Time, lost: i128) {
        if until > now {
            self.unheard = Some(Unheard { until, lost });
        } else {
            self.charge(now, 0, lost);
        }
    }

    /// Adds what was charged earlier and leaves after this time.
    pub(crate) fn restore(&mut self, now: Time, leaves_in: Span, charged: i128) {
        let cell = self.cell();
        let leaves = Time(now.after(leaves_in).0.div_ceil(cell).saturating_mul(cell)).min(self.leaves(now));
        self.add(Cell { leaves, charged, lost: 0 });
    }

    fn add(&mut self, more: Cell) {
        if more.charged == 0 && more.lost == 0 {
            return;
        }
        // Mostly what is charged is the newest.
        let at = match self.cells.back() {
            Some(newest) if newest.leaves > more.leaves => {
                self.cells.partition_point(|cell| cell.leaves < more.leaves)
            }
            Some(newest) if newest.leaves == more.leaves => self.cells.len() - 1,
            _ => self.cells.len(),
        };
        match self.cells.get_mut(at).filter(|cell| cell.leaves == more.leaves) {
            Some(cell) => (cell.charged, cell.lost) = (cell.charged + more.charged, cell.lost + more.lost),
            None => self.cells.insert(at, more),
        }
    }

    /// Takes out what leaves by this moment; returns all of it, and what of it was lost.
    pub(crate) fn pass(&mut self, now: Time) -> (i128, i128) {
        if let Some(Unheard { until, lost }) = self.unheard.take_if(|unheard| unheard.until <= now) {
            self.charge(until, 0, lost);
        }
        let (mut all, mut lost) = (0, 0);
        while let Some(cell) = self.cells.pop_front_if(|cell| cell.leaves <= now) {
            all += cell.charged + cell.lost;
            lost += cell.lost;
        }
        self.gone += all;
        (all, lost)
    }

    /// When something leaves; if nothing is there, when that leaves which is charged now.
    pub(crate) fn next_leaves(&self, now: Time) -> Time {
        let newest = self.unheard.map_or(now, |unheard| unheard.until.max(now));
        self.cells.front().map_or_else(|| self.leaves(newest), |cell| cell.leaves)
    }

    /// What leaves by this moment.
    pub(crate) fn leaving(&self, by: Time) -> i128 {
        let early = self.cells.iter().take_while(|cell| cell.leaves <= by);
        early.map(|cell| cell.charged + cell.lost).sum()
    }

    /// All that left so far.
    pub(crate) fn gone(&self) -> i128 {
        self.gone
    }

    /// What is in the cells, and when it leaves. What nodes may use still is in none.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Time, i128)> {
        self.cells.iter().map(|cell| (cell.leaves, cell.charged + cell.lost))
    }

    /// All that is in them, and what of it is lost.
    pub(crate) fn sums(&self) -> (i128, i128) {
        let unheard = self.unheard.map_or(0, |unheard| unheard.lost);
        let all: i128 = self.parts().map(|(_, amount)| amount).sum();
        let lost: i128 = self.cells.iter().map(|cell| cell.lost).sum();
        (all + unheard, lost + unheard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Span = Span::secs(60);

    fn at(millis: u64) -> Time {
        Time(millis * 1_000)
    }

    #[test]
    fn a_cell_leaves_when_its_end_is_as_old_as_the_window() {
        let mut cells = Cells::new(MINUTE);
        cells.charge(at(1_000), 5, 0);
        cells.charge(at(1_999), 1, 2);
        cells.charge(at(2_000), 3, 0);
        assert_eq!(cells.next_leaves(at(2_000)), at(62_000));
        assert_eq!(cells.pass(at(61_999)), (0, 0));
        assert_eq!((cells.sums(), cells.leaving(at(62_000))), ((11, 2), 8));
        assert_eq!((cells.pass(at(62_000)), cells.gone()), ((8, 2), 8));
        assert_eq!(cells.pass(at(63_000)), (3, 0));
        assert_eq!((cells.sums(), cells.gone()), ((0, 0), 11));
        assert_eq!(cells.next_leaves(at(63_500)), at(124_000));
    }

    #[test]
    fn what_may_be_used_until_later_leaves_a_window_after_that() {
        let mut cells = Cells::new(MINUTE);
        cells.charge(at(500), 3, 0);
        cells.lose(at(500), at(5_200), 7);
        assert_eq!((cells.sums(), cells.parts().count()), ((10, 7), 1), "on disk it is above what is used");
        assert_eq!(cells.pass(at(61_000)), (3, 0));
        assert_eq!((cells.sums(), cells.next_leaves(at(61_000))), ((7, 7), at(66_000)));
        assert_eq!(cells.pass(at(66_000)), (7, 7));
        cells.lose(at(70_000), at(69_000), 1);
        assert_eq!(cells.next_leaves(at(70_000)), at(131_000), "nobody can use it any more");
        let mut cells = Cells::new(MINUTE);
        cells.lose(at(500), at(5_200), 7);
        assert_eq!(cells.next_leaves(at(500)), at(66_000));
    }

    #[test]
    fn there_are_never_more_cells_than_a_window_has_and_the_one_that_begins() {
        let mut cells = Cells::new(MINUTE);
        for millis in 0..300_000 {
            if millis % 7 == 0 {
                cells.charge(at(millis), 1, 1);
                cells.restore(at(millis), Span(millis * 313 % 70_000_000), 1);
            }
            cells.pass(at(millis));
            assert!(cells.parts().count() as u64 <= CELLS + 1);
            assert!(cells.parts().is_sorted_by_key(|(leaves, _)| leaves));
        }
    }

    #[test]
    fn what_is_restored_leaves_no_earlier_and_a_cell_later_at_most() {
        for leaves_in in [1, 400_000, 1_000_000, 59_999_999, 60_000_000, 61_000_000, u64::MAX] {
            let (mut cells, now) = (Cells::new(MINUTE), Time(500_000));
            cells.restore(now, Span(leaves_in), 1);
            let leaves = cells.next_leaves(now).since(now).0;
            let latest = 60_500_000;
            assert!(
                leaves >= leaves_in.min(latest) && leaves <= leaves_in.saturating_add(1_000_000).min(latest)
            );
        }
    }
}
