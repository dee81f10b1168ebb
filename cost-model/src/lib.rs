//! The cost model of tidegate: what an operation costs, and what it will cost.
//!
//! - [`table`], [`text`], [`coefficient`], [`builtin`]: exact prices per resource, named and versioned.
//! - [`price`]: a usage vector to request units, rounded up once per part; the breakdown behind a charge.
//!
//! Everything is synchronous and integer; there is no clock and no I/O. `docs/cost-model.md` has the formulas.

pub mod builtin;
pub mod coefficient;
pub mod field;
pub mod price;
pub mod table;
pub mod text;

pub use coefficient::{Coefficient, CoefficientError};
pub use field::{Field, Part};
pub use price::{Component, price_consumption};
pub use table::{CostTable, TableError, TableErrors};
pub use text::TableText;
