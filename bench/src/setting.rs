//! How long and how often is measured.

use std::time::Duration;

/// Settings of one run.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Rounds of each contender.
    pub rounds: usize,
    /// Length of a round.
    pub round: Duration,
    /// A look, not a measurement: smaller cases, too.
    pub quick: bool,
}

impl Setting {
    /// The setting of published figures.
    pub const FULL: Self = Self { rounds: 11, round: Duration::from_millis(150), quick: false };
    /// Enough to see that everything runs.
    pub const QUICK: Self = Self { rounds: 3, round: Duration::from_millis(40), quick: true };

    /// The same with another number of rounds, for cases whose round is long; fewer when quick.
    #[must_use]
    pub fn with_rounds(self, rounds: usize) -> Self {
        Self { rounds: if self.quick { rounds.min(self.rounds) } else { rounds }, ..self }
    }

    /// `full`, or `quick` when only a look is asked for.
    pub fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}
