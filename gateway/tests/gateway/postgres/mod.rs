//! PostgreSQL's protocol.

mod faults;
mod governed;
mod passed;
mod runaways;
pub(crate) mod stage;
