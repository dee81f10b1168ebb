//! The gateway between real clients and real servers.

#[cfg(test)]
mod common;
#[cfg(test)]
mod drivers;
#[cfg(test)]
mod mysql;
#[cfg(test)]
mod postgres;
