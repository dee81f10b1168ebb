//! The SQL gateway of tidegate: an ordinary driver connects to it as to the database itself, and every statement is
//! admitted, metered and charged to the resource group of its user.
//!
//! A [`Gateway`] passes the protocol through message by message. It never holds a whole result, adds no round trip,
//! and leaves what it does not know as it is. `govern/` and `session/` are the same for every protocol; `postgres/` and
//! `mysql/` know where a statement begins and ends. `docs/gateway.md` and those beside it have settings, limits and what is not covered.

mod alarm;
mod buffer;
mod clock;
mod complaints;
mod config;
mod descriptors;
mod door;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gateway;
mod govern;
mod keepalive;
mod metrics;
mod mysql;
mod page;
mod page_token;
mod postgres;
mod proxied;
mod seats;
mod session;
mod stream;
mod tls;
mod upstream;
mod workers;

pub use config::{Certificate, Config, Listener, MetricsPage};
pub use descriptors::raise_descriptor_limit;
pub use gateway::{Gateway, StartError};
pub use govern::{InTransaction, Policy, PolicyError, Principals};
pub use page_token::PageTokenError;
pub use proxied::{NetworkError, Networks};
pub use tls::TlsError;
pub use upstream::{Place, Protocol, TlsMode, Upstream, UpstreamError};
