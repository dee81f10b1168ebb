//! MySQL's protocol: clients of MariaDB and a MariaDB server.

mod governed;
mod passed;
pub(crate) mod stage;
