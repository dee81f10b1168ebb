//! Who calls, and what they may do.
//!
//! The identity of a caller is taken once per connection, from the certificate that the handshake verified, and travels
//! with each request. `rules` makes it of the names in the certificate; `matrix` says which calls a role may make;
//! `provider` makes an identity of a JWT, `tokens` of a token; `guard` puts all of it before the handlers of each
//! listener; `sight` says what a tenant sees of the answers, `narrowed` what a node is sent of the bindings.
//! While authentication is off, nothing here is asked.

mod caller;
mod first_token;
pub mod guard;
mod load;
pub mod matrix;
mod narrowed;
mod parts;
pub mod provider;
mod role;
mod rules;
mod sight;
mod token_calls;
pub mod tokens;

pub use caller::{Identity, Kind, Scope};
pub(crate) use first_token::FirstToken;
pub(crate) use load::{load_tokens, token_of};
pub(crate) use narrowed::Narrowed;
pub use parts::PartError;
pub use role::Role;
pub use rules::{Rule, RuleError, Rules, Unproven};
pub(crate) use sight::{Seen, Sight};
pub use token_calls::TokenCalls;
