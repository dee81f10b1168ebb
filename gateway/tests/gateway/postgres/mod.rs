//! PostgreSQL's protocol.

mod crowded;
mod explained;
mod faults;
mod governed;
mod mixed;
mod names;
mod newer;
mod parallel;
mod passed;
mod renewed;
mod runaways;
mod shares;
pub(crate) mod stage;
pub(crate) mod tls;
mod transactions;
