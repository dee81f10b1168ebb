//! The tidegate controller: definitions, leases, consumption and the admin API in one process.
//!
//! A shell around `tidegate-core`, which decides the grants. Here are the clock, the store, the registries of groups,
//! bindings and nodes, and the adapters for gRPC and REST. [`Controller::start`] runs it in-process.

pub mod audit;
pub mod bindings;
pub mod catalog;
pub mod check;
pub mod clients;
pub mod clock;
pub mod config;
pub mod cost_tables;
pub mod definition;
pub mod error;
mod excerpt;
pub mod group_fields;
mod grpc;
#[doc(hidden)]
pub mod inside;
mod lag;
mod rest;
mod server;

pub use config::{Config, ConfigError};
pub use server::{Controller, Running, StartError, StopError};
pub mod history;
pub mod limited;
pub mod limits;
mod listener;
pub mod live;
mod message;
pub mod metrics;
pub mod name;
pub mod proof;
pub mod quantity;
pub mod query_limit;
pub mod restore;
pub mod runaways;
pub mod service;
pub mod standing;
pub mod statements;
pub mod store;
pub mod watches;
