//! Settings of policies: what is refused, and what to do about it.

use std::fmt;

use crate::units::{Rate, Ru, Span};

/// Longest window and warm-up: a year. Longer ones are slips of a unit, and the products of [`super`] have room for it.
pub const LONGEST: Span = Span::secs(366 * 86_400);
/// Most cells of a window, eight bytes each: an hour by the second. With more, a log costs less.
pub const MOST_CELLS: u32 = 3_600;
/// Most entries of a log, sixteen bytes each: 16 MB for one key.
pub const MOST_ENTRIES: u32 = 1_000_000;
/// Highest cold factor: at a hundredth of its rate nothing warms up in reasonable time.
pub const COLDEST: u32 = 100;
/// Most that a warm-up stores. Its products need the room above; 10^9 RU/s over a second reach it.
pub const MOST_STORED: Ru = Ru::whole(1_000_000_000);

/// Why a policy cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// The limit of a window is not positive, or too large.
    Limit(Ru),
    /// The window is empty, or absurdly long.
    Window(Span),
    /// The window does not divide into so many cells.
    Cells {
        /// How many.
        cells: u32,
        /// Of what.
        window: Span,
    },
    /// The log has no entry, or too many.
    Entries(u32),
    /// The rate is not positive, or too high.
    Rate(Rate),
    /// The capacity of a bucket is not positive, or too large.
    Capacity(Ru),
    /// The queue is negative, too large, or holds nothing where operations are to wait in it.
    Queue(Ru),
    /// What of the queue need not wait is negative.
    Undelayed(Ru),
    /// The warm-up is empty, or absurdly long.
    WarmUp(Span),
    /// A cold rate is not lower than the stable one, or hardly a rate.
    ColdFactor(u32),
    /// The rate over the warm-up is more than can be stored.
    Stored {
        /// The stable rate.
        rate: Rate,
        /// How long until it is reached.
        warm_up: Span,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, most) = (LONGEST, Ru::MAX);
        match self {
            Self::Limit(limit) => write!(f, "limit {limit}: give more than 0 and at most {most}"),
            Self::Window(window) => write!(f, "window {window}: give more than 0 and at most {year}"),
            Self::Cells { cells, window } => write!(
                f,
                "{cells} cells of a window of {window}: give 1 to {MOST_CELLS}, each a whole number of microseconds"
            ),
            Self::Entries(entries) => {
                write!(f, "log of {entries} entries: give 1 to {MOST_ENTRIES}, or count by sub-windows")
            }
            Self::Rate(rate) => write!(f, "rate {rate}: give more than 0 and at most {}", Rate::MAX),
            Self::Capacity(capacity) => write!(f, "capacity {capacity}: give more than 0 and at most {most}"),
            Self::Queue(queue) if queue.0 == 0 => {
                write!(f, "queue {queue}: nothing can wait in it; give more than 0, or admit without delay")
            }
            Self::Queue(queue) => write!(f, "queue {queue}: give 0 to {most}"),
            Self::Undelayed(part) => {
                write!(f, "undelayed part {part} of the queue: give 0 to {most}, 0 to delay all")
            }
            Self::WarmUp(warm_up) => write!(f, "warm-up {warm_up}: give more than 0 and at most {year}"),
            Self::ColdFactor(factor) => {
                write!(f, "cold factor {factor}: give 2 to {COLDEST}, or a token bucket for no warm-up")
            }
            Self::Stored { rate, warm_up } => write!(
                f,
                "{rate} over a warm-up of {warm_up} store more than {MOST_STORED}: give a lower rate or a shorter warm-up"
            ),
        }
    }
}

impl std::error::Error for SettingError {}

pub(super) fn limit(limit: Ru) -> Result<Ru, SettingError> {
    if limit.is_positive() && limit <= Ru::MAX { Ok(limit) } else { Err(SettingError::Limit(limit)) }
}

pub(super) fn window(window: Span) -> Result<Span, SettingError> {
    if window.0 > 0 && window <= LONGEST { Ok(window) } else { Err(SettingError::Window(window)) }
}

/// The length of a cell.
pub(super) fn cell(window: Span, cells: u32) -> Result<Span, SettingError> {
    let divides = (1..=MOST_CELLS).contains(&cells) && window.0.is_multiple_of(u64::from(cells));
    let length = divides.then(|| window.0.checked_div(u64::from(cells))).flatten();
    length.map(Span).ok_or(SettingError::Cells { cells, window })
}

pub(super) fn rate(rate: Rate) -> Result<Rate, SettingError> {
    if rate > Rate::ZERO && rate <= Rate::MAX { Ok(rate) } else { Err(SettingError::Rate(rate)) }
}

pub(super) fn capacity(capacity: Ru) -> Result<Ru, SettingError> {
    if capacity.is_positive() && capacity <= Ru::MAX {
        Ok(capacity)
    } else {
        Err(SettingError::Capacity(capacity))
    }
}
