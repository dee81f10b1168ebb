//! Sub-windows: the window cut into cells of the clock, a counter each, as Sentinel's LeapArray.
//!
//! The cells that count are the current one and those before it, one window together. The cell that leaves counts no
//! more as soon as a new one begins ([`SubWindows::new`]), or by the part of it that is still inside
//! ([`SubWindows::weighted`]), as if its load had been even.
//!
//! State: 48 bytes, and 8 for each cell; one cell more when weighted. A decision takes constant time, and the number
//! of cells after a pause or at a refusal. Error: unweighted, up to twice the limit within one window, in two bursts a
//! cell short of a window apart; the weighted one is wrong by how uneven the leaving cell was. Use: any limit for which
//! a log is too large.

use super::{Policy, Verdict, left, micro, quotient, setting};
use crate::units::{Ru, Span, Time};
use setting::SettingError;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct SubWindows {
    limit: Ru,
    cell: Span,
    cells: u64,
    weighted: bool,
}

/// One key's counters.
#[derive(Clone, Debug)]
pub struct SubWindowsState {
    /// The number of the current cell, its place, and when it ends, or time does.
    newest: u64,
    place: usize,
    ends: Time,
    /// What is in the cells that count in full.
    whole: Ru,
    /// The counter of cell `n` is at `n` modulo the length.
    ring: Box<[Ru]>,
}

impl SubWindows {
    /// At most `limit` in a `window` of so many cells.
    ///
    /// # Errors
    /// [`SettingError`] names the setting, its value and what to give instead.
    pub fn new(limit: Ru, window: Span, cells: u32) -> Result<Self, SettingError> {
        let cell = setting::cell(setting::window(window)?, cells)?;
        Ok(Self { limit: setting::limit(limit)?, cell, cells: cells.into(), weighted: false })
    }

    /// The same, and the cell that leaves counts by its part.
    ///
    /// # Errors
    /// As [`SubWindows::new`].
    pub fn weighted(limit: Ru, window: Span, cells: u32) -> Result<Self, SettingError> {
        Ok(Self { weighted: true, ..Self::new(limit, window, cells)? })
    }

    /// What counts at a moment, in whole micro-RU, rounded up.
    pub fn used(&self, state: &mut SubWindowsState, now: Time) -> Ru {
        self.advance(state, now);
        let counted = self.counted(state, now).div_ceil(u128::from(self.cell.0));
        Ru(i64::try_from(counted).unwrap_or(i64::MAX))
    }

    /// What counts, times the length of a cell.
    fn counted(&self, state: &SubWindowsState, now: Time) -> u128 {
        self.part(state, now) + micro(state.whole) * u128::from(self.cell.0)
    }

    /// What counts of the cell that leaves, times the length of a cell.
    fn part(&self, state: &SubWindowsState, now: Time) -> u128 {
        if !self.weighted {
            return 0;
        }
        // A ring of one cell more: the one that leaves is overwritten next. In the first window it is empty.
        let next = state.ring.get(state.place + 1).or_else(|| state.ring.first());
        micro(next.copied().unwrap_or_default()) * left(now, state.newest, self.cell)
    }

    /// Begins the cell of `now`. A clock that stepped back stays in the cell it was in.
    fn advance(&self, state: &mut SubWindowsState, now: Time) {
        let current = now.0 / self.cell.0;
        let kept = self.cells + u64::from(self.weighted);
        if current.saturating_sub(state.newest) >= kept {
            state.ring.fill(Ru::ZERO);
            (state.newest, state.whole) = (current, Ru::ZERO);
        }
        while state.newest < current {
            state.newest += 1;
            if let Some(over) = state.newest.checked_sub(self.cells) {
                state.whole -= state.cell(over);
            }
            state.place = state.slot(state.newest);
            *state.cell_mut() = Ru::ZERO;
        }
        state.place = state.slot(state.newest);
        state.ends = Time(state.newest.saturating_add(1).saturating_mul(self.cell.0));
    }

    /// The first moment at which `cost` fits if nothing else is admitted.
    fn retry(&self, state: &SubWindowsState, cost: Ru) -> Verdict {
        let length = u128::from(self.cell.0);
        let mut whole = state.whole;
        for ahead in 0..=self.cells + 1 {
            // The cell that leaves while cell `newest + ahead` is current.
            let back = self.cells.checked_sub(ahead);
            let leaving = back.and_then(|back| state.newest.checked_sub(back));
            let amount = leaving.map_or(Ru::ZERO, |number| state.cell(number));
            if ahead > 0 {
                whole -= amount;
            }
            let room = self.limit - cost - whole;
            // By then so much of its time is over that what counts of it fits.
            let over = match micro(amount) {
                amount if self.weighted && amount > 0 => {
                    length - quotient(micro(room) * length, amount).min(length)
                }
                _ => 0,
            };
            if room >= Ru::ZERO && over < length {
                return Verdict::retry_at((u128::from(state.newest) + u128::from(ahead)) * length + over);
            }
        }
        Verdict::Never
    }
}

impl SubWindowsState {
    /// A counter by the number of its cell, which must be one of those that are kept.
    fn cell(&self, number: u64) -> Ru {
        self.ring.get(self.slot(number)).copied().unwrap_or_default()
    }

    fn cell_mut(&mut self) -> &mut Ru {
        #[expect(clippy::indexing_slicing, reason = "a remainder by the length, which is never 0")]
        &mut self.ring[self.place]
    }

    fn slot(&self, number: u64) -> usize {
        usize::try_from(number % self.ring.len() as u64).unwrap_or_default()
    }
}

impl Policy for SubWindows {
    type State = SubWindowsState;

    fn fresh(&self) -> Self::State {
        let kept = usize::try_from(self.cells).unwrap_or_default() + usize::from(self.weighted);
        let ring = vec![Ru::ZERO; kept].into_boxed_slice();
        SubWindowsState { newest: 0, place: 0, ends: Time(self.cell.0), whole: Ru::ZERO, ring }
    }

    fn decide(&self, state: &mut Self::State, now: Time, cost: Ru) -> Verdict {
        if cost > self.limit {
            return Verdict::Never;
        }
        if now >= state.ends {
            self.advance(state, now);
        }
        let room = self.limit - cost - state.whole;
        if room < Ru::ZERO || self.part(state, now) > micro(room) * u128::from(self.cell.0) {
            return self.retry(state, cost);
        }
        state.whole += cost;
        *state.cell_mut() += cost;
        Verdict::Admit
    }
}
