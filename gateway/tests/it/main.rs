//! The gateway between real clients and a real PostgreSQL.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod governed;
#[cfg(test)]
mod passed;
#[cfg(test)]
mod runaways;
#[cfg(test)]
mod server;
#[cfg(test)]
mod stage;
