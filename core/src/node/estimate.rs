//! What an operation took when it was admitted, and so how it is settled.

use crate::units::Ru;

/// What an operation took when it was admitted, and so how it is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Its cost, from the budget.
    Paid,
    /// Nothing: it is over a limit in shadow, counted as throttled, and runs all the same.
    Over,
}

impl Admitted {
    /// What an operation of this cost is settled with.
    #[inline]
    pub fn with(self, cost: Ru) -> Estimate {
        match self {
            Self::Paid => Estimate::Paid(cost),
            Self::Over => Estimate::Over(cost),
        }
    }
}

/// The estimate of an operation that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// It was taken from the budget.
    Paid(Ru),
    /// It was not: the operation is over a limit in shadow. Nothing comes back and nothing is owed at its end.
    Over(Ru),
}

impl Estimate {
    /// The amount, taken or not.
    #[inline]
    pub fn amount(self) -> Ru {
        match self {
            Self::Paid(amount) | Self::Over(amount) => amount,
        }
    }

    /// The same for another amount.
    #[must_use]
    pub fn of(self, amount: Ru) -> Self {
        match self {
            Self::Paid(_) => Self::Paid(amount),
            Self::Over(_) => Self::Over(amount),
        }
    }
}

impl From<Ru> for Estimate {
    #[inline]
    fn from(amount: Ru) -> Self {
        Self::Paid(amount)
    }
}
