//! The gateway between load generators that nobody here wrote and real servers, beside what else could stand there.
//!
//! Needs the Debian packages that an error names, and the `tidegate` binary beside this one.

mod cap;
mod copy;
mod cpu;
mod kill;
mod load;
mod mysql;
mod postgres;
mod stage;

pub use cap::run as cap;
pub use cpu::run as cpu;
pub use kill::run as kill;
pub use mysql::run as mysql;
pub use postgres::run as postgres;
