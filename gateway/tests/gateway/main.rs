//! The gateway between real clients and real servers.

#[cfg(test)]
mod common;
#[cfg(test)]
mod demoted;
#[cfg(test)]
mod drivers;
#[cfg(test)]
mod ending;
#[cfg(test)]
mod gone;
#[cfg(test)]
mod halves;
#[cfg(test)]
mod keepalive;
#[cfg(test)]
mod kernel;
#[cfg(test)]
mod mysql;
#[cfg(test)]
mod page;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod pressure;
#[cfg(test)]
mod proxied;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod sockets;
#[cfg(test)]
mod traced;
#[cfg(test)]
mod unparsed;
#[cfg(test)]
mod ways;
