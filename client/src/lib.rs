//! The node side of tidegate, used inside services and databases.
//!
//! A [`Client`] keeps one stream to a controller, holds leases on request units (RU) for the groups in use, and
//! reports what they consumed. A [`Group`] admits an operation by an estimate ([`Group::acquire`]) and settles it
//! with what it used ([`Permit::settle`]). [`meter`] measures that use; [`tower`] does all of it for an HTTP or gRPC
//! service.
//!
//! The decisions are made by `tidegate_core::node`, one pure state machine per group; this crate is the shell: time,
//! sockets, waiters, files.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tidegate_client::{Client, Ru, meter};
//!
//! let client = Client::connect(["http://127.0.0.1:7420"], "node-1").await?;
//! let group = client.group("analytics").await?;
//! let permit = group.acquire(Ru::whole(2), Duration::from_millis(500)).await?;
//! let (answer, usage) = meter::measure(|| 6 * 7);
//! let charge = permit.settle(&usage);
//! println!("{answer} cost {}", charge.total());
//! let unconfirmed = client.shutdown().await.unconfirmed;
//! # Ok(())
//! # }
//! ```

mod backoff;
mod bindings;
mod builder;
mod cell;
mod checksum;
mod client;
mod clock;
#[cfg(all(test, shuttle))]
mod concurrency;
mod demotion;
mod group;
mod groups;
mod hub;
mod journal;
mod known;
mod lending;
pub mod meter;
mod names;
mod permit;
mod pricing;
mod process;
mod refused;
mod reports;
mod resolved;
mod session;
mod shared;
mod stats;
mod sync;
mod token;
pub mod tower;
pub mod transport;
#[cfg(all(test, shuttle))]
mod virtual_time;
mod wait;
mod waited;
mod watch;

pub use builder::{ClientBuilder, ConnectError, Limits};
pub use client::{Client, Shutdown};
pub use group::{Group, GroupError};
pub use hub::Link;
pub use journal::JournalError;
pub use names::{GroupName, Identity, MAX_GROUP_NAME, MAX_IDENTITY, NameError};
pub use permit::Permit;
pub use process::ProcessTotals;
pub use refused::Refused;
pub use reports::Unconfirmed;
pub use resolved::Resolved;
pub use session::convert::usage_message;
pub use shared::Counts;
pub use stats::ClientStats;
pub use tidegate_core::group::Fallback;
pub use tidegate_core::node::{LeaseState, NodeState, QuotaLeft};
pub use tidegate_core::quota::Unit as QuotaUnit;
pub use tidegate_core::units::{Rate, Ru, RuTotal, Span};
pub use tidegate_core::usage::{Consumption, RuParts, Total, Usage};
pub use tidegate_tls::{ClientFiles, TlsError};
pub use token::{Token, TokenError};
