//! The store of several controllers: an ordered log and its checkpoints in a shared store, and a local copy of what
//! they say.
//!
//! One controller owns the log. Its [`ReplicatedStore`] puts every batch into the log, in segments that a guard keeps
//! in order, and then into its local store, which it reads. Others are a [`Follower`] each: it applies the log to a
//! local store, and takes the log over when the owner is gone. The local store is a cache: it can be thrown away, and is
//! built from the newest checkpoint and the segments behind it.
//!
//! * `keys`: the names of everything in the shared store. `calls`: how it is asked, and again.
//! * `bytes`, `segment`, `checkpoint`: what is stored there, as bytes.
//! * `scope`: what goes into the log, and what belongs to one file. `known`, `growth`: rows of counters as what they
//!   grew by.
//! * `follower`, `ready`, `restore`: from the log to the local store; `comparing`: whether they say the same.
//!   `owned`, `writing`: the owner's half.
//! * `members`: which controllers there are. `set_back`: whether the log has what a local store has.
//!
//! When the owner is gone is not decided here: a follower looks, its caller's clock judges, and
//! [`Follower::take`] compares what was seen.

mod applied;
mod bytes;
mod calls;
mod checkpoint;
mod comparing;
mod follower;
mod growth;
mod keys;
mod known;
mod members;
mod owned;
mod owner;
mod place;
mod ready;
mod restore;
mod scope;
mod segment;
mod set_back;
#[cfg(test)]
pub(crate) mod tests;
mod writing;

pub use calls::Settings;
pub use follower::{Follower, NotTaken, Picture};
pub use members::{MemberRecord, Members, Wrote};
pub use owned::ReplicatedStore;
pub use owner::{Owner, Seen};
pub use place::{FilePlace, Fresh, Place};
pub(super) use scope::defines;
pub use set_back::Footing;
