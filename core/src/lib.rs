//! The pure core of tidegate: synchronous state machines without a clock, I/O, floats or dependencies.
//!
//! * [`bound`]: the worst window of admitted RU, as the promise counts it.
//! * [`units`]: micro-RU, micro-RU per second, microseconds; exact.
//! * [`group`]: what a resource group is.
//! * [`exchange`]: the messages of a node and the controller.
//! * [`engine`]: the controller's grant decision over the group tree.
//! * [`node`]: a group on a node: local bucket, waiters, debt, renewal.
//! * [`ledger`]: consumption, counted exactly once.
//! * [`policy`]: limiter policies for one key, beside the leased token bucket of groups.
//! * [`ranks`]: a queue that any member may leave.
//! * [`replay`]: what recorded demand would have met under other settings.
//! * [`usage`]: what an operation used and was charged.
//! * [`view`]: inspecting the engine, and saving it across a clean restart.
//! * [`waited`]: how long operations waited, by length.
//! * [`warmth`]: how warm a group is whose rate warms up.
//!
//! The same inputs in the same order give the same outputs, byte for byte (invariant I8): maps are ordered, time is
//! an argument. The specification is docs/algorithm.md.

pub mod bound;
mod children;
mod decide;
mod define;
mod demand;
mod division;
pub mod engine;
pub mod exchange;
mod fill;
pub mod group;
mod hear;
mod index;
mod invariants;
mod lease;
pub mod ledger;
mod live;
mod lumps;
pub mod node;
mod ordered;
mod parts;
mod plausible;
pub mod policy;
mod pool;
pub mod quota;
pub mod ranks;
mod recall;
pub mod replay;
pub mod slew;
mod tree;
pub mod units;
pub mod usage;
pub mod view;
pub mod waited;
mod waiters;
mod want;
pub mod warmth;

pub use define::GroupError;
pub use tree::MAX_DEPTH;
