//! SQL text: read, and for the embedded database cut into statements, run and metered.

mod read;
mod run;
mod split;

pub(crate) use read::read;
pub(crate) use run::{Measured, Statement, run};
pub(crate) use split::split;
