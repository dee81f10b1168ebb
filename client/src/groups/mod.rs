//! The groups of one client: by name, those that are awake, and which of them is looked at when.

mod awake;
pub(crate) mod driver;
mod registry;
mod schedule;

pub(crate) use awake::Awake;
pub(crate) use registry::Registry;
pub(crate) use schedule::{DueSet, Schedule};
