//! Paced: a queue of bounded length, drained at a rate, so that what starts is smooth (a leaky bucket that shapes).
//!
//! An operation is admitted iff at most `burst` is still to be drained before it, and starts when it is: at once, with
//! no delay for the first part of the queue or for all of it, or when its turn comes. What waits is therefore at most
//! `burst`; an operation itself may cost any amount, which those after it wait for.
//!
//! State: what is to be drained and when that was reckoned, 32 bytes. Error: none by the finest clock. Use: smooth
//! output to a fragile backend.
//!
//! Source: nginx's `ngx_http_limit_req_module`, with its `rate`, `burst`, `nodelay` and `delay`. nginx keeps the excess
//! without the operation itself and adds the next one's cost, which is the same where all cost one. It counts in
//! milliseconds and thousandths of a request, rounds what drains down at every admission and starts down to a
//! millisecond; [`Grain::Milli`] does the same, and then the decisions are equal. Different: nginx believes a clock that
//! stepped back by more than a minute; this waits until the clock has caught up.

use super::{Policy, Verdict, fine, quotient, setting};
use crate::units::{Rate, Ru, Time};
use setting::SettingError;

/// What is set.
#[derive(Clone, Copy, Debug)]
pub struct PacedSettings {
    /// How fast the queue drains.
    pub rate: Rate,
    /// How much may be before an operation that is admitted; nginx counts requests, each one RU.
    pub burst: Ru,
    /// What waits.
    pub delay: Delay,
    /// How finely it counts.
    pub grain: Grain,
}

/// Which of the operations in the queue wait for their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// All: nginx's default.
    All,
    /// Those with more than this before them: nginx's `delay`.
    Beyond(Ru),
    /// None, and the queue only counts: nginx's `nodelay`.
    None,
}

/// A thousandth of an RU in millionths of a micro-RU.
const MILLI: u64 = 1_000_000_000;

/// How finely a queue counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// Microseconds, and nothing is rounded but a start, down to its microsecond.
    Exact,
    /// Milliseconds and thousandths of an RU, as nginx.
    Milli,
}

impl Grain {
    /// A step of the clock, in microseconds.
    const fn tick(self) -> u64 {
        match self {
            Self::Exact => 1,
            Self::Milli => 1_000,
        }
    }

    /// The step of the clock that a moment is in. By a constant, which is no division.
    const fn tick_of(self, now: Time) -> u64 {
        match self {
            Self::Exact => now.0,
            Self::Milli => now.0 / 1_000,
        }
    }

    /// What drains of an amount, in millionths of a micro-RU.
    fn drains(self, amount: u128) -> u128 {
        match self {
            Self::Exact => amount,
            Self::Milli => amount - amount_over(amount),
        }
    }

    /// The least that has to be given to drain, so that an amount does.
    const fn to_drain(self, amount: u128) -> u128 {
        match self {
            Self::Exact => amount,
            Self::Milli => amount.next_multiple_of(MILLI as u128),
        }
    }
}

/// What of an amount is no whole thousandth.
fn amount_over(amount: u128) -> u128 {
    // 18 million RU at a time have room in 64 bits, where it is no division.
    u64::try_from(amount).map_or_else(|_| amount % u128::from(MILLI), |amount| u128::from(amount % MILLI))
}

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// In millionths of a micro-RU, as the two below: what drains, what fits, and what of it need not wait.
    per_tick: u128,
    burst: u128,
    undelayed: u128,
    /// The most ticks that an operation waits.
    longest: u128,
    grain: Grain,
}

/// One key's queue.
#[derive(Clone, Copy, Debug)]
pub struct PacedState {
    /// In millionths of a micro-RU.
    queued: u128,
    /// In ticks.
    at: u64,
}

impl PacedState {
    /// What is to be drained, in millionths of a micro-RU, and when that was reckoned, by the finest clock.
    pub(crate) fn queue(&self) -> (u128, Time) {
        (self.queued, Time(self.at))
    }

    /// So much is to be drained from a moment on.
    pub(crate) fn of(queued: u128, at: Time) -> Self {
        Self { queued, at: at.0 }
    }
}

impl Paced {
    /// A queue as it is set.
    ///
    /// # Errors
    /// [`SettingError`] names the setting, its value and what to give instead.
    pub fn new(settings: PacedSettings) -> Result<Self, SettingError> {
        let PacedSettings { rate, burst, delay, grain } = settings;
        let rate = u128::from(setting::rate(rate)?.0.unsigned_abs());
        let least = Ru(i64::from(delay != Delay::None));
        if burst < least || burst > Ru::MAX {
            return Err(SettingError::Queue(burst));
        }
        let undelayed = match delay {
            Delay::All => Ru::ZERO,
            Delay::Beyond(part) if part < Ru::ZERO || part > Ru::MAX => {
                return Err(SettingError::Undelayed(part));
            }
            Delay::Beyond(part) => part,
            Delay::None => burst,
        };
        let (per_tick, burst, undelayed) = (rate * u128::from(grain.tick()), fine(burst), fine(undelayed));
        let longest = burst.saturating_sub(undelayed) / per_tick;
        Ok(Self { per_tick, burst, undelayed, longest, grain })
    }

    /// What drains in so many ticks.
    fn drained(&self, ticks: u64) -> u128 {
        self.grain.drains(u128::from(ticks) * self.per_tick)
    }

    /// What of the queue is still before an operation that comes at a tick.
    fn before(&self, state: &PacedState, tick: u64) -> u128 {
        state.queued.saturating_sub(self.drained(tick.saturating_sub(state.at)))
    }

    /// When an operation starts that comes at a tick and has so much before it, unless time ends before.
    fn start(&self, tick: u64, before: u128) -> Option<Time> {
        let waits = before.saturating_sub(self.undelayed);
        let ticks = u128::from(tick) + if waits == 0 { 0 } else { quotient(waits, self.per_tick) };
        u64::try_from(ticks * u128::from(self.grain.tick())).ok().map(Time)
    }

    /// When no more than the queue holds is still before an operation, given that more is.
    fn retry(&self, state: &PacedState) -> Verdict {
        let over = self.grain.to_drain(state.queued - self.burst);
        let ticks = u128::from(state.at) + over.div_ceil(self.per_tick);
        let promise = Verdict::retry_at(ticks * u128::from(self.grain.tick()));
        if (ticks + self.longest) * u128::from(self.grain.tick()) <= u128::from(u64::MAX) {
            return promise;
        }
        // It has to start before time ends, too.
        let starts = |tick: u64| self.start(tick, self.before(state, tick)).is_some();
        if u64::try_from(ticks).is_ok_and(starts) { promise } else { Verdict::Never }
    }
}

impl Policy for Paced {
    type State = PacedState;

    fn fresh(&self) -> Self::State {
        PacedState { queued: 0, at: 0 }
    }

    fn decide(&self, state: &mut Self::State, now: Time, cost: Ru) -> Verdict {
        if cost > Ru::MAX {
            return Verdict::Never;
        }
        let tick = self.grain.tick_of(now);
        let before = self.before(state, tick);
        if before > self.burst {
            return self.retry(state);
        }
        let Some(start) = self.start(tick, before) else { return Verdict::Never };
        *state = PacedState { queued: before + fine(cost), at: state.at.max(tick) };
        if start > now { Verdict::AdmitAt(start) } else { Verdict::Admit }
    }
}
