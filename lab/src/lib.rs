//! The lab of tidegate: what the shipped code costs, and how it compares with others.
//!
//! `bench` (a feature) measures beside peers and floors in the same run. `rivals` models other allocators; `comparison` puts them
//! and tidegate, which the simulation of `tidegate-tests` drives, under the same loads. `policies` shows what limiter
//! policies admit, by a virtual clock, and `arrangements` what becomes of a bucket that many nodes share.

pub mod arrangements;
#[cfg(feature = "bench")]
pub mod bench;
pub mod command;
pub mod comparison;
mod frame;
pub mod policies;
pub mod rivals;
