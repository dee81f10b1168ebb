//! Replay: what recorded demand would have met under other settings of its group, by the policies that ship.
//!
//! A [`Record`] says how much was wanted in each stretch of time, not when within it. [`Spread`] is what is assumed of
//! that: evenly, or all at the first moment. What happened lies between them, mostly, and near the first where operations
//! are many.
//!
//! The operations of a stretch cost the same and start in the order of arrival. Each waits at most the patience; one
//! that would wait longer is refused at once and not asked again. Many operations of a moment are decided together, as
//! many as fit. Integers only, so that the same record gives the same answer everywhere.
//!
//! A [`Budget`] of decisions bounds the time of a replay.

mod classes;
mod compare;
mod grid;
mod held;
mod line;
mod pressed;
mod queued;
mod record;
mod rolling;
mod search;
mod tally;
#[cfg(test)]
mod tests;
mod warming;
mod windows;

use std::fmt;

use crate::decide::LOCAL_CAP;
use crate::policy::paced::{Delay, Grain, Paced, PacedSettings};
use crate::policy::setting::SettingError;
use crate::units::{Rate, Ru, Span, Time};

pub use compare::{Comparison, Outcomes, compare};
use held::{Drained, Held};
use line::Line;
pub use record::{Counted, MOST_SAMPLES, Record, RecordError, Sample};
pub use search::{LEAST, cheapest};
pub use tally::Outcome;
use tally::Tally;
use warming::Warming;
pub use windows::Windows;

/// Decisions of one answer: some seconds of a processor. A month of minutes that are all over the limit needs half; twice
/// as many would hold up who waits for an answer.
pub const MOST_DECISIONS: u64 = 50_000_000;

/// How operations follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Saved up to the burst.
    TokenBucket,
    /// One after another; the burst is the largest operation.
    Paced,
    /// The same, at a rate that rises with use from cold to warm.
    WarmUp {
        /// How long it takes at full use.
        period: Span,
        /// By this the limit is divided when it is cold.
        factor: u32,
    },
}

impl fmt::Display for Shape {
    /// As a group's definition says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenBucket => f.write_str("token_bucket"),
            Self::Paced => f.write_str("paced"),
            Self::WarmUp { period, factor } => write!(f, "warm_up({period}, {factor})"),
        }
    }
}

/// What a group would be set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How operations follow each other.
    pub shape: Shape,
    /// The limit.
    pub rate: Rate,
    /// The burst; `None` is one second of the rate, as a group's default is.
    pub burst: Option<Ru>,
    /// How long operations wait before they are refused.
    pub patience: Span,
    /// What may be used in each window of a calendar or in one that rolls; the first one is taken for unused.
    pub quota: Option<Windows>,
}

impl Settings {
    /// The burst: that of the settings, or one second of the rate.
    pub fn burst(&self) -> Ru {
        self.burst.unwrap_or(Ru(self.rate.0))
    }

    /// Whether a rate that warms up has a curve.
    fn has_curve(&self) -> bool {
        match self.shape {
            Shape::TokenBucket | Shape::Paced => true,
            Shape::WarmUp { period, factor } => Warming::new(self.rate, period, factor).is_ok(),
        }
    }

    /// The longest time between two moments of an even stretch: while nobody comes, half of nodes' buckets fills in that
    /// time, or those who wait keep them busy. With twice as long, a part of the rate would be lost that operations one
    /// by one use, since what is too little for one of them stays in a bucket; half takes twice the time. What is paced
    /// saves nothing up, and a quarter of a second is how exact its waits are.
    fn pause(&self) -> Span {
        let half =
            self.rate.time_for(self.burst().scale(1, 4)).unwrap_or_default().min(Span(LOCAL_CAP.0 / 2));
        let pause = match self.shape {
            Shape::TokenBucket => half.0.saturating_add(self.patience.0),
            Shape::Paced | Shape::WarmUp { .. } => self.patience.0.max(250_000),
        };
        let most = self.quota.as_ref().map_or(Span(u64::MAX), Windows::pause);
        Span(pause.max(1)).min(most)
    }
}

/// When operations come within their stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// At equal distances, in as many parts as [`Record`] has of a sample.
    Even,
    /// All at its first moment.
    AtOnce,
}

impl Spread {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Even, Self::AtOnce];
}

/// Decisions that are left.
#[derive(Clone, Copy, Debug)]
pub struct Budget(u64);

impl Default for Budget {
    fn default() -> Self {
        Self(MOST_DECISIONS)
    }
}

impl Budget {
    /// So many decisions.
    pub const fn of(decisions: u64) -> Self {
        Self(decisions)
    }

    fn spend(&mut self) -> Result<(), ReplayError> {
        self.0 = self.0.checked_sub(1).ok_or(ReplayError::TooLong)?;
        Ok(())
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The policy cannot be set so.
    Setting(SettingError),
    /// Operations count in a quota, and the record does not have their number.
    Uncounted,
    /// The budget is used up.
    TooLong,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(error) => error.fmt(f),
            Self::Uncounted => f.write_str(
                "a quota of requests needs the number of operations, which the record does not have: give them, or a quota \
                 of RU",
            ),
            Self::TooLong => {
                f.write_str("the replay needs too many decisions: give a larger burst or a shorter record")
            }
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<SettingError> for ReplayError {
    fn from(error: SettingError) -> Self {
        Self::Setting(error)
    }
}

/// What a record would have met, and what of each sample would have been refused, in micro-RU.
///
/// # Errors
/// Settings that no policy has, or a used up budget.
pub fn replay(
    record: &Record,
    settings: &Settings,
    spread: Spread,
    budget: &mut Budget,
) -> Result<(Outcome, Vec<u64>), ReplayError> {
    let (mut tally, mut refused) = (Tally::default(), vec![0_u64; record.samples().len()]);
    each(record, settings, (spread, true), budget, &mut |index, part| {
        if let (Part::Refused(amount), Some(sum)) = (part, refused.get_mut(index)) {
            *sum += amount.0.unsigned_abs();
        }
        tally.add(part);
        true
    })?;
    Ok((tally.outcome(record, settings, &refused), refused))
}

/// What is paced at a rate. The patience bounds the queue, not its length.
fn drained(rate: Rate) -> Result<Drained, SettingError> {
    let queue = PacedSettings { rate, burst: Ru::MAX, delay: Delay::All, grain: Grain::Exact };
    Ok(Drained { queue: Paced::new(queue)?, rate })
}

/// What became of a part of a sample.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// So much started after this wait.
    Started(Ru, Span),
    /// So much was refused.
    Refused(Ru),
}

/// Who hears of the parts, and of which sample they are; `false` ends the replay.
type Hear<'h> = &'h mut dyn FnMut(usize, Part) -> bool;

fn each(
    record: &Record,
    settings: &Settings,
    (spread, hears_waits): (Spread, bool),
    budget: &mut Budget,
    hear: Hear<'_>,
) -> Result<(), ReplayError> {
    let burst = settings.burst();
    match settings.shape {
        Shape::TokenBucket => Line::new(Held::new(settings.rate, burst)?, settings, hears_waits)
            .run(record, spread, budget, hear),
        Shape::Paced => {
            Held::new(settings.rate, burst)?;
            Line::new(drained(settings.rate)?, settings, hears_waits).run(record, spread, budget, hear)
        }
        Shape::WarmUp { period, factor } => {
            Held::new(settings.rate, burst)?;
            Line::new(Warming::new(settings.rate, period, factor)?, settings, hears_waits)
                .run(record, spread, budget, hear)
        }
    }
}
