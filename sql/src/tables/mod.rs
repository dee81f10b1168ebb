//! Tables of tidegate that can be read with SELECT: what they are called and which columns they have.
//!
//! The contents come from the controller when a query asks for them ([`load`]), are put into SQLite in memory and
//! queried there ([`query`]). Names and cells of the two in `information_schema` are those of TiDB.

mod compared;
mod load;
mod query;
mod rows;
mod schema;
mod select;
mod time;

pub(crate) use compared::compared;
pub(crate) use load::load;
pub(crate) use query::query;
pub use schema::VirtualTable;
pub use select::Select;
pub use time::date_text;
