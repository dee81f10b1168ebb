//! What is the same for every protocol: who pays, admission, metering, rules, statistics.
//!
//! A protocol's session asks the [`Governor`] for a [`Subject`] at login, and for a template and an admission before
//! each statement; it passes to the [`Running`] statement what was used as it goes, and ends it.

mod backend;
mod book;
mod case;
mod controller;
mod counters;
mod denied;
mod exits;
mod governor;
mod guess;
mod known;
mod outcomes;
mod own;
mod parallel;
mod policy;
mod report;
mod rules;
mod running;
mod share;
mod spills;
mod statements;
mod subject;
#[cfg(test)]
pub(crate) mod tests;
mod traced;
mod unowned;

pub(crate) use backend::{Backend, Proof};
pub(crate) use controller::Controller;
pub(crate) use denied::Denied;
pub(crate) use governor::{Admission, Governor, Tasks};
pub(crate) use known::{Known, SqlText};
pub(crate) use own::{EXPLAINED_ROWS, explained, explained_columns, parse_own};
pub use policy::{InTransaction, Policy, PolicyError, Principals};
pub(crate) use running::{Ended, Progress, Running, Verdict};
pub(crate) use share::Server;
pub(crate) use subject::{Login, Subject};
pub(crate) use unowned::Unowned;
