//! The simulation: a network with delay, one controller, nodes, loads, and the measures taken of them.

mod books;
pub mod chaos;
mod controller;
mod definitions;
pub mod disk;
mod faults;
mod lies;
mod lifecycle;
pub mod load;
pub mod log;
pub mod measure;
mod network;
mod operations;
pub mod random;
mod reports;
pub mod script;
mod witness;
pub mod world;
