//! Real processes: a cluster on loopback that can be killed, stopped and cut off, and the log each load node keeps.

pub mod chaos;
pub mod child;
pub mod cluster;
pub mod controllers;
pub mod error;
pub mod finding;
pub mod glance;
pub mod load;
pub mod log;
pub mod proxy;
pub mod trial;
