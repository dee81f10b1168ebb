//! Costs of statements, the rules for them, and convictions.

mod convicting;
pub(crate) mod kept;
pub mod query_limit;
mod recent;
mod reports;
pub(crate) mod rules;
pub mod runaways;
mod statistics;
#[cfg(test)]
pub(crate) mod testing;
pub mod watches;

pub use recent::Range;
pub use statistics::{Order, StatementList, StatementReport, StatementRow, Statistics, Sums};

use crate::identity::{Identity, Sight};
use crate::service::Service;
use runaways::Runaways;
use watches::Watches;

/// Convictions: statements to convict before they run, and records of those that were.
pub(crate) struct Convictions {
    watches: Watches,
    runaways: Runaways,
}

/// The calls of adapters.
#[derive(Clone, Copy)]
pub struct StatementCalls<'s> {
    service: &'s Service,
    sight: Sight<'s>,
}

impl<'s> StatementCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service, sight: Sight::default() }
    }

    /// The same, with answers of what this caller sees.
    pub fn seen_by(self, identity: Option<&'s Identity>) -> Self {
        Self { sight: Sight::of(identity), ..self }
    }
}
