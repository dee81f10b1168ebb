//! The lab of tidegate: how it compares with others, without a clock.
//!
//! `rivals` models other allocators; `comparison` puts them and tidegate, which the simulation drives, under the same
//! loads. `policies` shows what limiter policies admit, by a virtual clock, `arrangements` what becomes of a bucket that
//! many nodes share, and `what_if` what recorded consumption would have met under other settings.

pub mod arrangements;
pub mod command;
pub mod comparison;
pub mod frame;
pub mod policies;
pub mod rivals;
pub mod what_if;
