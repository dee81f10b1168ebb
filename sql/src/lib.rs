//! TiDB's resource control statements as text: parsed, turned into calls of the admin API, answered as a table.
//!
//! * [`may_be_ours`] decides in tens of nanoseconds which texts go to the database unread.
//! * [`Statement::parse`] reads a statement: resource groups, bindings of users and databases, the watch list, and
//!   SELECTs from tidegate's own tables.
//! * [`execute`] does it on behalf of a [`Context`], and gives an [`Answer`].
//! * [`Naming`] is what a statement of the database does with names that SQL gives to statements.
//! * [`create_group_text`] and [`query_limit_text`] print what [`Statement::parse`] and [`parse_query_limit`] read.
//!
//! Nothing here holds state or reads a clock. The grammar, the tables and the errors are in `docs/sql.md`.

mod answer;
mod code;
mod context;
mod controller;
mod cursor;
mod diagnostics;
mod digest;
mod duration;
mod error;
mod execute;
mod grammar;
mod naming;
mod print;
mod recognise;
mod statement;
mod tables;
mod tokens;

pub use answer::{Answer, Column, Kind, SessionChange, Table, Value};
pub use code::Code;
pub use context::Context;
pub use diagnostics::{Counted, Diagnostics};
pub use digest::{TextDigest, exact_digest};
pub use duration::{DurationError, duration_text, parse_duration};
pub use error::SqlError;
pub use execute::execute;
pub use grammar::parse_query_limit;
pub use naming::{Naming, POSTGRES_NAME_BYTES, may_name, may_rename};
pub use print::{create_group_text, query_limit_text};
pub use recognise::may_be_ours;
pub use statement::{MAX_TEXT, Principal, Statement, WatchedText};
pub use tables::{Select, VirtualTable, date_text};
pub use tokens::split;
