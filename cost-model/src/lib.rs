//! The cost model of tidegate: what an operation costs, and what it will cost.
//!
//! - [`table`], [`text`], [`coefficient`], [`builtin`]: exact prices per resource, named and versioned.
//! - [`price`]: a usage vector to request units, rounded up once per part; the breakdown behind a charge.
//! - [`sql`]: SQL text to a statement template with a stable fingerprint, through a cache that hits in 0.1 µs.
//! - [`estimate`]: what a statement will probably cost, from what its template cost before.
//!
//! Everything is synchronous and integer; there is no clock and no I/O. `docs/cost-model.md` has the formulas.

pub mod builtin;
pub mod coefficient;
pub mod estimate;
pub mod field;
mod mix;
pub mod price;
pub mod sql;
pub mod table;
pub mod text;
mod ways;

pub use coefficient::{Coefficient, CoefficientError};
pub use estimate::{Aim, Estimator, Forecast};
pub use field::{Field, Part};
pub use price::{Charge, Component};
pub use sql::{Fingerprint, Fingerprinter, SqlDialect, StatementKind, Template};
pub use table::{CostTable, TableError, TableErrors};
pub use text::TableText;
