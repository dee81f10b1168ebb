//! Who calls, and what they may do.
//!
//! The identity of a caller is taken once per connection, from the certificate that the handshake verified, and travels
//! with each request. `rules` makes it of the names in the certificate; `matrix` says which calls a role may make;
//! `guard` puts both before the handlers of each listener. While authentication is off, nothing here is asked.

mod caller;
pub mod guard;
pub mod matrix;
mod role;
mod rules;

pub use caller::{Identity, Kind, Scope};
pub use role::Role;
pub use rules::{Rule, RuleError, Rules, Unproven};
