//! placeholder
pub mod group;
pub mod units;
pub mod usage;
