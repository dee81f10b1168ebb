//! Sliding log: at most a limit in any window, exactly. An admission counts from its moment to one window later.
//!
//! State: 56 bytes, and 16 for each entry of the log. An entry is an admission, or several of one microsecond; its
//! number is bounded, and while the log is full everything waits for its oldest entry to leave. A decision takes
//! amortised constant time, a refusal the logarithm of the entries. Error: none; between entries and RU, the first
//! bound that is met refuses. Use: exact limits on rare and expensive operations.

use std::collections::VecDeque;

use super::{Policy, Verdict, setting};
use crate::units::{Ru, Span, Time};
use setting::{MOST_ENTRIES, SettingError};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct SlidingLog {
    limit: u64,
    window: Span,
    entries: usize,
}

/// One key's log.
#[derive(Clone, Debug)]
pub struct SlidingLogState {
    /// From the oldest to the newest.
    log: VecDeque<Entry>,
    /// The latest moment seen, which a clock that steps back does not undo.
    latest: Time,
    /// All that ever left the log, in micro-RU, modulo 2^64.
    left: u64,
    /// All that ever entered, likewise: what is in the log is their difference, which fits.
    entered: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Time,
    /// All that had entered with it.
    entered: u64,
}

impl SlidingLog {
    /// At most `limit` in any `window`, by at most `entries` admissions of different microseconds.
    ///
    /// # Errors
    /// [`SettingError`] names the setting, its value and what to give instead.
    pub fn new(limit: Ru, window: Span, entries: u32) -> Result<Self, SettingError> {
        let room = usize::try_from(entries).ok().filter(|_| (1..=MOST_ENTRIES).contains(&entries));
        Ok(Self {
            limit: setting::limit(limit)?.0.unsigned_abs(),
            window: setting::window(window)?,
            entries: room.ok_or(SettingError::Entries(entries))?,
        })
    }

    /// When an entry leaves.
    fn leaves(&self, entry: &Entry) -> u128 {
        u128::from(entry.at.0) + u128::from(self.window.0)
    }

    /// When enough has left for `cost`, given that it does not fit now.
    fn retry(&self, state: &SlidingLogState, cost: u64) -> Verdict {
        let room = self.limit - cost;
        let is_over = |entry: &Entry| state.entered.wrapping_sub(entry.entered) > room;
        // The first entry after whose leaving what remains fits: among operations of one cost it is the oldest.
        let oldest = state.log.front().filter(|oldest| !is_over(oldest));
        let enough = || state.log.get(state.log.partition_point(is_over));
        oldest.or_else(enough).map_or(Verdict::Never, |entry| Verdict::retry_at(self.leaves(entry)))
    }
}

impl Policy for SlidingLog {
    type State = SlidingLogState;

    fn fresh(&self) -> Self::State {
        let log = VecDeque::with_capacity(self.entries);
        SlidingLogState { log, latest: Time(0), left: 0, entered: 0 }
    }

    fn decide(&self, state: &mut Self::State, now: Time, cost: Ru) -> Verdict {
        let cost = cost.0.unsigned_abs();
        if cost > self.limit {
            return Verdict::Never;
        }
        state.latest = state.latest.max(now);
        while let Some(oldest) =
            state.log.front().filter(|oldest| self.leaves(oldest) <= state.latest.0.into())
        {
            state.left = oldest.entered;
            state.log.pop_front();
        }
        if state.entered.wrapping_sub(state.left) > self.limit - cost {
            return self.retry(state, cost);
        }
        let entry = Entry { at: state.latest, entered: state.entered.wrapping_add(cost) };
        let is_full = state.log.len() >= self.entries;
        match state.log.back_mut().filter(|newest| newest.at == entry.at) {
            Some(newest) => *newest = entry,
            None if is_full => {
                return state
                    .log
                    .front()
                    .map_or(Verdict::Never, |oldest| Verdict::retry_at(self.leaves(oldest)));
            }
            None => state.log.push_back(entry),
        }
        state.entered = entry.entered;
        Verdict::Admit
    }
}
