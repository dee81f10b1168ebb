//! TLS, once for every listener and every client: files of certificates and keys, what a server and a client make of
//! them, and a private authority.
//!
//! [`Server`] is the server's side: it keeps a configuration in force, and [`Watched::look`] puts renewed files in force
//! for new connections. [`ClientFiles`] is the client's side, read again for each connection; [`Dial`] connects by it.
//! [`outgoing`] asks over HTTP.
//! [`Authority`] signs certificates, [`Certificate`] is what one says. All PEM; TLS 1.2 and 1.3 by rustls and ring.
//! Errors name the file, what is wrong with it, and what to do.

mod address;
mod authority;
mod certificate;
mod client;
mod clock;
mod dial;
mod explain;
mod files;
mod kept;
#[cfg(test)]
mod lists;
pub mod outgoing;
mod revocation;
mod server;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod told;
mod trust;

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

pub use address::{Address, AddressError};
pub use authority::{Authority, IssueError, Issued, Name, Purpose, Request, Unwritable, write};
pub use certificate::{Certificate, date, days_left};
pub use client::{ClientFiles, trusted};
pub use dial::{Dial, DialError, check_scheme};
pub use explain::{ONLY_TLS, explain, root_cause};
pub use files::{Material, TlsError};
pub use kept::{Change, Expiry, Watched};
pub use server::{Clients, Server, ServerFiles};
pub use stream::Stream;
pub use trust::{Trust, Trusted};

/// Days before its end from which a certificate is warned about. Half of it is short for a change that waits for a
/// window of maintenance; twice of it would warn for most of the life of a certificate of 90 days.
pub const WARN_DAYS: i64 = 30;

/// What both sides encrypt with.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
