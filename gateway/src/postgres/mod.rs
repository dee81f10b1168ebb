//! PostgreSQL, protocol 3: passed through message by message, with admission before each statement.

mod cancel;
mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzed;
mod key;
mod machine;
mod message;
mod own;
mod reset;
mod serve;
mod session;
mod startup;

pub(crate) use cancel::Cancels;
pub(crate) use serve::{Shared, serve};
