//! SQL on the embedded database: texts cut into statements, statements run and metered.

mod run;
mod split;

pub(crate) use run::{Measured, Statement, run};
pub(crate) use split::split;
