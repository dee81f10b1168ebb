//! The gateway between real clients and a real MariaDB.

#[cfg(test)]
mod governed;
#[cfg(test)]
mod passed;
#[cfg(test)]
mod server;
#[cfg(test)]
mod stage;
