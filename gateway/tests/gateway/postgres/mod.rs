//! PostgreSQL's protocol.

mod crowded;
mod explained;
mod faults;
mod governed;
mod names;
mod newer;
mod parallel;
mod passed;
mod runaways;
mod shares;
pub(crate) mod stage;
mod tls;
mod transactions;
