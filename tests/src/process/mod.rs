//! Real processes: a cluster on loopback that can be killed, and the log each load node keeps.

pub mod cluster;
pub mod log;
