//! From the text of a JWT to an identity and its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use jsonwebtoken::crypto::verify;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch as flag;

use super::error::JwtError;
use super::keys::Live;
use super::settings::{Provider, word};
use super::{claims, mapping, signature};
use crate::clock::Clock;
use crate::identity::tokens::Shown;
use crate::quantity::cut;

/// Bytes of a JWT: half of a request's head. Half of it is less than what some providers write for who is in many
/// groups.
pub(super) const MAX_JWT: usize = 8 << 10;

/// Whether a text looks like a JWT: three parts, and no token of tidegate's own, which has two.
pub fn is_jwt(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// What of the first part counts before its signature is verified.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    /// What the reader has to know; nothing is known here.
    crit: Option<Value>,
}

/// What of the second part counts before its signature is verified: whose keys to look among.
#[derive(Deserialize)]
struct Issued {
    iss: String,
}

/// All providers of a configuration, with the keys that they have now.
pub struct Providers {
    all: Vec<Arc<Live>>,
    clock: Clock,
    /// Shows true at the end of a JWT, by that end: who is connected by it holds a receiver.
    ends: Mutex<BTreeMap<u64, flag::Sender<bool>>>,
}

impl Providers {
    /// Providers without keys yet.
    pub fn new(settings: Vec<Provider>, clock: Clock) -> Arc<Self> {
        signature::install();
        let all = settings.into_iter().map(|settings| Arc::new(Live::new(settings))).collect();
        Arc::new(Self { all, clock, ends: Mutex::default() })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn all(&self) -> &[Arc<Live>] {
        &self.all
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Puts this JWK set in force for the provider of this name, as a fetch would.
    ///
    /// # Errors
    /// It has no key that can verify.
    pub fn put_keys(&self, provider: &str, set: &[u8]) -> Result<(), String> {
        let keys = super::jwks::read(set)?;
        let named = self.all.iter().filter(|live| &*live.name == provider);
        named.for_each(|live| live.note(self.clock.now(), Ok(keys.clone())));
        Ok(())
    }

    /// Who shows this JWT.
    ///
    /// # Errors
    /// Why it proves nothing.
    pub fn identify(&self, text: &str) -> Result<Shown, JwtError> {
        if text.len() > MAX_JWT {
            return Err(JwtError::Long(text.len()));
        }
        let mut parts = text.split('.');
        let (Some(head), Some(body), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(JwtError::Malformed("it has not three parts"));
        };
        let head: Head = part(head).ok_or(JwtError::Malformed("its first part is no header"))?;
        if head.crit.is_some() {
            return Err(JwtError::Malformed("it demands to be read in a way that is not known here (crit)"));
        }
        let issued: Issued = part(body).ok_or(JwtError::Malformed("its second part names no issuer"))?;
        let live = self.all.iter().find(|live| live.settings.issuer == issued.iss);
        let live =
            live.ok_or_else(|| JwtError::Issuer { issuer: cut(&issued.iss), known: self.issuers() })?;
        let algorithm = allowed(&live.settings, &head.alg)?;
        let key = live.key(self.clock.now(), head.kid.as_deref(), algorithm)?;
        let claims = verified(text, algorithm, &key.key)?;
        let settings = &live.settings;
        let end = claims::judge(&claims, &settings.audiences, settings.skew.0 / 1_000, self.clock.unix_ms())?;
        let identity = mapping::identify(&live.name, &settings.name_claim, &settings.roles, &claims)?;
        Ok(Shown { identity, over: self.over_at(end) })
    }

    fn issuers(&self) -> String {
        let quoted = self.all.iter().map(|live| format!("{:?}", live.settings.issuer));
        cut(&quoted.collect::<Vec<_>>().join(", "))
    }

    /// A signal at this time.
    pub(crate) fn over_at(&self, end_ms: u64) -> flag::Receiver<bool> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.entry(end_ms).or_insert_with(|| flag::Sender::new(false)).subscribe()
    }

    /// Cuts off who is connected by a JWT that is over, and forgets the ends that nobody waits for.
    pub(crate) fn expire(&self) {
        let unix_ms = self.clock.unix_ms();
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.retain(|end, over| {
            let is_over = *end <= unix_ms;
            if is_over {
                over.send_replace(true);
            }
            !is_over && over.receiver_count() > 0
        });
    }

    #[cfg(test)]
    pub(super) fn waited_for(&self) -> usize {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// The algorithm of this word, if the provider may sign by it.
fn allowed(settings: &Provider, alg: &str) -> Result<Algorithm, JwtError> {
    let allowed = settings.algorithms.iter().find(|algorithm| word(**algorithm) == alg);
    allowed.copied().ok_or_else(|| JwtError::Algorithm {
        alg: cut(alg),
        provider: settings.name.clone(),
        allowed: settings.algorithm_words().join(", "),
    })
}

/// The claims, once the signature is verified. They are read here and nowhere else: another reader could take them for
/// something else.
fn verified(text: &str, algorithm: Algorithm, key: &jsonwebtoken::DecodingKey) -> Result<Value, JwtError> {
    let (message, signature) = text.rsplit_once('.').ok_or(JwtError::Signature)?;
    let is_right = verify(signature, message.as_bytes(), key, algorithm);
    is_right.ok().filter(|is_right| *is_right).ok_or(JwtError::Signature)?;
    let claims = message.rsplit_once('.').and_then(|(_, claims)| part(claims));
    claims.ok_or(JwtError::Malformed("its claims are no JSON"))
}

/// A part of a JWT.
fn part<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}
