//! Providers of identity: who shows a JWT that one of them signed.
//!
//! `settings` is what the configuration says of a provider, `mapping` makes a role of its claims, `claims` reads and
//! judges them; `signature` verifies by ring; `jwks` reads keys, `fetch` brings them, and `keys` keeps the last good
//! ones. [`Providers`] puts it together: a text goes in, an identity and the end of it come out.

mod claims;
mod error;
mod fetch;
mod jwks;
mod keys;
mod mapping;
mod settings;
mod signature;
#[cfg(test)]
mod tests;
mod verify;

pub use error::JwtError;
pub use mapping::{Claim, Mapping};
pub use settings::{Provider, ProviderError, Source};
pub use verify::{Providers, is_jwt};

pub(crate) use keys::keep;
