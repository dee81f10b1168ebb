//! What threads spend of a group without its lock: purses, the seats of threads, and the lock that their owners take for
//! free.

mod bias;
mod purse;
mod purses;
mod seat;

pub(crate) use bias::{prepare, will_prepare};
pub(crate) use purse::{Account, Purse};
pub(crate) use purses::{Open, Purses};
#[cfg(all(test, shuttle))]
pub(crate) use seat::seat;
