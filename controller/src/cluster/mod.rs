//! Controllers that share one log: one leads, the others stand by and take over when it is gone.
//!
//! The log's owner is in the shared store, and every write compares it. It leads as long as its beats are stored there:
//! it speaks to nodes until its fence after the sending of the last one. `observer` judges by a clock of its own when
//! the owner is silent; `standby` follows the log until then and takes it over; `leadership` writes beats. `member` takes
//! turns at both, `waiting` is what a standby answers, and `doubt` what a leader does not that may have a successor.

pub(crate) mod doubt;
mod leadership;
mod member;
mod observer;
mod standby;
#[cfg(test)]
mod tests;
mod waiting;

pub use member::{EndError, Member};
