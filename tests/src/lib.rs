//! Test support of tidegate: a discrete-event simulation that drives the shipped controller and node machines.
//!
//! `sim` is deterministic: one thread, virtual time, one seed. A scenario is a text file under `scenarios/` beside
//! the transcript it must produce. `model` visits every state of a small system. `process` runs the real binaries, stops,
//! kills and cuts them off, and reads what the nodes logged. `fuzz` holds the properties that hold for any input.
//!
//! Without the feature `processes` only `sim` and `model` are there: what a program needs that simulates.

#[cfg(feature = "processes")]
pub mod fuzz;
pub mod model;
#[cfg(feature = "processes")]
pub mod process;
pub mod sim;
