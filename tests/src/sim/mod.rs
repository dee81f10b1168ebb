//! The simulation: a network with delay, one controller, nodes, loads, and the measures taken of them.

mod books;
mod cap;
pub mod chaos;
mod controller;
mod copies;
mod definitions;
pub mod disk;
mod faults;
mod holding;
mod hunger;
mod lies;
mod lifecycle;
pub mod load;
pub mod log;
pub mod measure;
mod network;
mod operations;
mod promise;
mod quota;
pub mod random;
mod reports;
pub mod script;
pub mod settling;
mod witness;
mod words;
mod work;
pub mod world;
