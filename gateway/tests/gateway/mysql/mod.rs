//! MySQL's protocol: clients of MariaDB and a MariaDB server.

mod governed;
mod itself;
mod names;
mod opening;
mod passed;
mod payers;
mod runaways;
mod sha2;
mod shares;
pub(crate) mod stage;
mod tls;
mod warnings;
