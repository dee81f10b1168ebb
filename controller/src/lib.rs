//! The tidegate controller: definitions, leases, consumption and the admin API in one process.
//!
//! A shell around `tidegate-core`, which decides the grants. This crate has the clock, the store, the registries of
//! groups, bindings and nodes, and the adapters for gRPC and REST. [`Controller::start`] runs it in-process.

pub mod accounts;
pub mod alarms;
mod answers;
pub mod check;
pub mod clock;
mod cluster;
pub mod config;
pub mod definitions;
pub mod error;
mod excerpt;
mod grpc;
pub mod identity;
#[doc(hidden)]
pub mod inside;
pub mod leasing;
pub mod limits;
#[cfg(test)]
mod listening;
mod message;
pub mod metrics;
pub mod name;
pub mod quantity;
pub mod rekey;
mod rest;
pub mod restore;
mod server;
pub mod service;
mod sockets;
mod spans;
pub mod statements;
pub mod store;
mod web;

pub use cluster::{ClusterCalls, EndError, Lost, Member, Namesake, Restored, RestoredError, restored};
pub use config::{Config, ConfigError};
pub use definitions::{audit, bindings, definition, group_fields, quota};
pub use server::{Controller, Running, StartError, StopError};
