//! What statements cost, the rules they go by, and those that broke them.

mod convicting;
pub mod query_limit;
mod reports;
pub(crate) mod rules;
pub mod runaways;
mod statistics;
pub mod watches;

pub use statistics::{Order, StatementList, StatementReport, StatementRow, Statements, Sums};
