//! What the configuration says of a provider.

use std::path::PathBuf;
use std::str::FromStr as _;

use http::Uri;
use jsonwebtoken::Algorithm;
use tidegate_core::units::Span;
use tidegate_tls::outgoing::is_here;

use super::mapping::{Claim, Mapping, MappingError};
use crate::name::{NameError, principal_part};
use crate::quantity::cut;

/// Algorithms that a provider may sign by: with a key pair each, so that nobody who can verify can sign. *Source:*
/// RFC 8725, 3.1 and 3.2.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];
/// Bytes of an address and of an audience: more than any provider has.
const MAX_TEXT: usize = 2_048;
/// Audiences of one provider: a controller has a few names.
const MAX_AUDIENCES: usize = 16;
/// What discovery appends to an issuer. *Source:* OpenID Connect Discovery 1.0, section 4.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// Where the keys of a provider are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Where the provider's own document says.
    Discovery,
    /// At this address.
    Url(String),
    /// In this file.
    File(PathBuf),
}

/// The settings of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// How the audit log calls it.
    pub name: String,
    /// What its JWTs have as `iss`.
    pub issuer: String,
    /// Of these, its JWTs have one in `aud`.
    pub audiences: Vec<String>,
    /// The algorithms that it signs by.
    pub algorithms: Vec<Algorithm>,
    /// Where its keys are.
    pub source: Source,
    /// Authorities that sign the certificate of its server; those the machine trusts when left out.
    pub authorities: Option<PathBuf>,
    /// How far its clock and the controller's may be apart.
    pub skew: Span,
    /// For how long the last good keys are used while no others can be had.
    pub keep: Span,
    /// The claim that is the name of an identity.
    pub name_claim: Claim,
    /// Which claims are which role; the first that fits decides.
    pub roles: Vec<Mapping>,
}

/// Why the settings of a provider cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The name.
    #[error("name: {0}")]
    Name(#[from] NameError),
    /// An address.
    #[error(
        "{key}: {text:?} is no address that keys may come from; write https://HOST/PATH (http:// is for this machine alone)"
    )]
    Address {
        /// The setting.
        key: &'static str,
        /// Its value.
        text: String,
    },
    /// The issuer.
    #[error("issuer: is empty or longer than {MAX_TEXT} bytes; write what the provider's JWTs have as iss")]
    Issuer,
    /// The audiences.
    #[error(
        "audience: write 1 to {MAX_AUDIENCES} texts of at most {MAX_TEXT} bytes, as the provider's JWTs have them in aud"
    )]
    Audience,
    /// The algorithms.
    #[error("algorithms: {0:?} is none of {list}", list = names().join(", "))]
    Algorithm(String),
    /// No algorithm.
    #[error("algorithms: is empty; name at least one of {list}", list = names().join(", "))]
    NoAlgorithm,
    /// A rule.
    #[error("role {number}: {error}")]
    Mapping {
        /// Which one, from 1 on.
        number: usize,
        /// What is wrong.
        error: MappingError,
    },
    /// No rule.
    #[error(
        "role: is missing, so that nobody could do anything; write [[provider.role]] with claim, value and role"
    )]
    NoRole,
}

fn names() -> [&'static str; 9] {
    ALGORITHMS.map(|(name, _)| name)
}

/// The word of an algorithm.
pub(super) fn word(algorithm: Algorithm) -> &'static str {
    ALGORITHMS.iter().find(|(_, of)| *of == algorithm).map_or("another", |(name, _)| name)
}

impl Provider {
    /// Algorithms by their words.
    ///
    /// # Errors
    /// One is unknown, is none at all, or signs by a shared secret.
    pub fn algorithms(words: &[String]) -> Result<Vec<Algorithm>, ProviderError> {
        let known = |word: &String| {
            let known = ALGORITHMS.iter().find(|(name, _)| name == word).map(|(_, algorithm)| *algorithm);
            known.ok_or_else(|| ProviderError::Algorithm(cut(word)))
        };
        if words.is_empty() {
            return Err(ProviderError::NoAlgorithm);
        }
        words.iter().map(known).collect()
    }

    /// The words of its algorithms.
    pub fn algorithm_words(&self) -> Vec<&'static str> {
        self.algorithms.iter().map(|algorithm| word(*algorithm)).collect()
    }

    /// Checks the parts beside each other.
    ///
    /// # Errors
    /// The first part that cannot be used.
    pub fn check(&self) -> Result<(), ProviderError> {
        principal_part("name of a provider", &self.name)?;
        if self.issuer.is_empty() || self.issuer.len() > MAX_TEXT {
            return Err(ProviderError::Issuer);
        }
        let fits = |audience: &String| (1..=MAX_TEXT).contains(&audience.len());
        if !(1..=MAX_AUDIENCES).contains(&self.audiences.len()) || !self.audiences.iter().all(fits) {
            return Err(ProviderError::Audience);
        }
        match &self.source {
            Source::Discovery => drop(address("issuer", &self.document())?),
            Source::Url(url) => drop(address("jwks_url", url)?),
            Source::File(_) => {}
        }
        if self.roles.is_empty() { Err(ProviderError::NoRole) } else { Ok(()) }
    }

    /// Where its own document is.
    pub(super) fn document(&self) -> String {
        format!("{}{WELL_KNOWN}", self.issuer.trim_end_matches('/'))
    }
}

/// An address that keys may come from: what answers there decides who is an admin.
pub(super) fn address(key: &'static str, text: &str) -> Result<Uri, ProviderError> {
    let wrong = || ProviderError::Address { key, text: cut(text) };
    let uri = Uri::from_str(text).ok().filter(|_| text.len() <= MAX_TEXT).ok_or_else(wrong)?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    match uri.scheme_str() {
        Some("https") if !host.is_empty() && !has_user => Ok(uri),
        Some("http") if is_here(&uri) && !has_user => Ok(uri),
        _ => Err(wrong()),
    }
}
