//! The node side of tidegate.
mod clock;
mod journal;
pub mod meter;
mod names;
