//! The simulation: a network with delay, one controller, nodes, loads, and the measures taken of them.

pub mod chaos;
mod faults;
pub mod load;
pub mod log;
pub mod measure;
mod network;
mod operations;
pub mod random;
pub mod script;
pub mod world;
