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
pub(crate) mod stage;
mod tls;
