//! The simulation of tidegate: a network with delay, one controller, nodes, loads, and the measures taken of them. It drives
//! the controller and node machines that ship.
//!
//! It is deterministic: one thread, virtual time, one seed. A scenario is a text file under `scenarios/` beside the
//! transcript it must produce. [`model`] visits every state of a small system.

mod books;
mod cap;
pub mod chaos;
mod charges;
mod clocks;
mod controller;
mod copies;
mod counted;
pub mod curve;
mod definitions;
mod digest;
pub mod disk;
mod faults;
pub mod golden;
mod holding;
mod hunger;
mod lies;
mod lifecycle;
pub mod load;
pub mod log;
pub mod measure;
pub mod model;
mod network;
mod operations;
mod promise;
mod quota;
pub mod random;
mod reports;
pub mod script;
pub mod settling;
mod shadow;
mod share;
mod witness;
mod words;
mod work;
pub mod world;
