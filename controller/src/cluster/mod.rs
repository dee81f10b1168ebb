//! Controllers that share one log: one leads, the others stand by and take over when it is gone.
//!
//! The log's owner is in the shared store, and every write compares it. It leads as long as its beats are stored there:
//! it speaks to nodes until its fence after the sending of the last one. `observer` judges by a clock of its own when
//! the owner is silent; `standby` follows the log until then, with what `held` keeps ready, and takes it over; `leadership`
//! writes beats. `member` takes turns at both, `waiting` is what a standby answers, `doubt` what a leader does not that may have a successor, and
//! `strict` what its answers wait for. Beside that, `presence` shows that a controller runs, `roster` is which others do,
//! and `calls` what operators ask and want. `restored` goes on with a log that was set back, and `lost` says what that
//! costs; no controller runs then.

mod calls;
pub(crate) mod doubt;
mod held;
mod leadership;
mod lost;
mod member;
mod observer;
mod presence;
mod restored;
mod roster;
mod standby;
mod strict;
#[cfg(test)]
mod tests;
mod waiting;

pub use calls::ClusterCalls;
pub(crate) use calls::LONGEST_REST;
pub use lost::Lost;
pub use member::{EndError, Member};
pub use presence::Namesake;
pub use restored::{Restored, RestoredError, restored};
pub(crate) use roster::Roster;
pub(crate) use strict::Gate;
