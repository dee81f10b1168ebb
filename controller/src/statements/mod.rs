//! What statements cost, the rules they go by, and those that broke them.

mod convicting;
pub mod query_limit;
mod reports;
pub(crate) mod rules;
pub mod runaways;
mod statistics;
pub mod watches;

pub use statistics::{Order, StatementList, StatementReport, StatementRow, Statements, Sums};

use crate::service::Service;

/// What adapters call.
#[derive(Clone, Copy)]
pub struct StatementCalls<'s> {
    service: &'s Service,
}

impl<'s> StatementCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service }
    }
}
