//! The gateway between load generators of other projects and real servers, beside other proxies in its place.
//!
//! Needs the Debian packages that an error names, and the `tidegate` binary beside this one.

mod burst;
mod cap;
mod copy;
mod cpu;
mod kill;
mod load;
mod load_beside;
mod mysql;
mod postgres;
mod stage;
mod transaction;

pub use burst::run as burst;
pub use cap::run as cap;
pub use cpu::run as cpu;
pub use kill::run as kill;
pub use load_beside::run as load_beside;
pub use mysql::run as mysql;
pub use postgres::run as postgres;
pub use transaction::run as transaction;
