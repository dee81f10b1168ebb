//! Fixed window: at most a limit in each window of the clock, which begin at multiples of its length.
//!
//! State: the number of the window and its counter, 16 bytes. Error: twice the limit can pass within one length, half
//! of it on either side of a boundary. Use: spending caps and billing plans, which are stated by such windows.

use super::{Policy, Verdict, setting};
use crate::units::{Ru, Span, Time};
use setting::SettingError;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct FixedWindow {
    limit: Ru,
    window: Span,
}

/// One key's counter.
#[derive(Clone, Copy, Debug)]
pub struct FixedWindowState {
    window: u64,
    used: Ru,
}

impl FixedWindow {
    /// At most `limit` in each `window`.
    ///
    /// # Errors
    /// [`SettingError`] names the setting, its value and what to give instead.
    pub fn new(limit: Ru, window: Span) -> Result<Self, SettingError> {
        Ok(Self { limit: setting::limit(limit)?, window: setting::window(window)? })
    }

    /// What counts at a moment.
    pub fn used(&self, state: &mut FixedWindowState, now: Time) -> Ru {
        self.advance(state, now);
        state.used
    }

    /// Begins the window of `now`. A clock that stepped back stays in the window it was in.
    fn advance(&self, state: &mut FixedWindowState, now: Time) {
        let window = now.0 / self.window.0;
        if window > state.window {
            *state = FixedWindowState { window, used: Ru::ZERO };
        }
    }
}

impl Policy for FixedWindow {
    type State = FixedWindowState;

    fn fresh(&self) -> Self::State {
        FixedWindowState { window: 0, used: Ru::ZERO }
    }

    fn decide(&self, state: &mut Self::State, now: Time, cost: Ru) -> Verdict {
        if cost > self.limit {
            return Verdict::Never;
        }
        self.advance(state, now);
        if state.used + cost <= self.limit {
            state.used += cost;
            return Verdict::Admit;
        }
        Verdict::retry_at((u128::from(state.window) + 1) * u128::from(self.window.0))
    }
}
