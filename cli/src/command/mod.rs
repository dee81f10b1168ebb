//! The commands, one file each: arguments, the call, the answer.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod bind;
pub(crate) mod cert;
pub(crate) mod client;
pub(crate) mod completions;
pub(crate) mod controller;
pub(crate) mod cost_table;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod gateway;
pub(crate) mod group;
pub(crate) mod lab;
pub(crate) mod lease;
pub(crate) mod node;
mod of_group;
pub(crate) mod resolve;
pub(crate) mod runaway;
pub(crate) mod sql;
pub(crate) mod statement;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod usage;
pub(crate) mod watch;
