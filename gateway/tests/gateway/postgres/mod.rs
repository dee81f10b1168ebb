//! PostgreSQL's protocol.

mod explained;
mod faults;
mod governed;
mod passed;
mod runaways;
pub(crate) mod stage;
