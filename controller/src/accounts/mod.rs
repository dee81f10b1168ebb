//! What was consumed: counted exactly once, stored, folded, shown.

mod flush;
pub(crate) mod fold;
pub mod history;
pub mod live;
pub(crate) mod prune;
pub(crate) mod usage;
