//! The keys of a provider that are in use: fetched in the background, the last good ones kept.
//!
//! A JWT by a key that is not there makes the next fetch come sooner, and at most one in [`AGAIN`]. No caller waits for
//! a provider.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::units::Time;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::error::JwtError;
use super::jwks::{self, Key};
use super::settings::{Provider, Source};
use super::verify::Providers;
use super::{fetch, settings};
use crate::metrics::Metrics;

/// Time between fetches while nothing is missing. Half of it asks for nothing; with twice of it, a key that the provider
/// took back is believed for ten minutes.
const REFRESH: Duration = Duration::from_secs(300);
/// Shortest time between two fetches, whoever shows a key that is not there. Half of it lets strangers make the
/// controller ask as often; with twice of it, a new key is refused for twenty seconds.
const AGAIN: Duration = Duration::from_secs(10);
/// The same for a file, which nobody minds being read.
const AGAIN_FILE: Duration = Duration::from_secs(2);

/// A provider and its keys.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) settings: Provider,
    pub(super) name: Arc<str>,
    known: Mutex<Known>,
    wanted: Notify,
}

#[derive(Debug, Default)]
struct Known {
    keys: Arc<[Key]>,
    /// When they were fetched.
    at: Option<Time>,
    /// What the last fetch said, if it failed.
    fault: Option<String>,
    /// Whether they were in use at that fetch.
    used: bool,
}

impl Live {
    pub(super) fn new(settings: Provider) -> Self {
        let name = Arc::from(settings.name.as_str());
        Self { settings, name, known: Mutex::default(), wanted: Notify::new() }
    }

    /// The key of this name for this algorithm; without a name, the only one for it.
    pub(super) fn key(
        &self,
        now: Time,
        id: Option<&str>,
        algorithm: jsonwebtoken::Algorithm,
    ) -> Result<Key, JwtError> {
        let keys = self.keys(now)?;
        let mut fitting = keys
            .iter()
            .filter(|key| key.serves(algorithm) && id.is_none_or(|id| key.id.as_deref() == Some(id)));
        match (fitting.next(), fitting.next(), id) {
            (Some(key), None, _) | (Some(key), Some(_), Some(_)) => Ok(key.clone()),
            (Some(_), Some(_), None) => Err(JwtError::NoKey(self.name.to_string())),
            (None, ..) => {
                self.wanted.notify_one();
                Err(JwtError::Key {
                    kid: crate::quantity::cut(id.unwrap_or_default()),
                    provider: self.name.to_string(),
                    alg: settings::word(algorithm),
                })
            }
        }
    }

    fn keys(&self, now: Time) -> Result<Arc<[Key]>, JwtError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |reason: &str| JwtError::NoKeys {
            provider: self.name.to_string(),
            reason: crate::quantity::cut(reason),
        };
        match known.at {
            Some(_) if self.uses(&known, now) => Ok(Arc::clone(&known.keys)),
            Some(_) => Err(missing("those that were had are too old: keys_kept")),
            None => Err(missing(known.fault.as_deref().unwrap_or("the first fetch is under way"))),
        }
    }

    /// Whether there are keys that are not too old.
    fn uses(&self, known: &Known, now: Time) -> bool {
        known.at.is_some_and(|at| now.since(at) <= self.settings.keep)
    }

    /// Puts what a fetch brought in force, or notes why it brought nothing.
    pub(super) fn note(&self, now: Time, fetched: Result<Vec<Key>, String>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.fault.take();
        match fetched {
            Ok(keys) => {
                if before.is_some() || known.at.is_none() {
                    tracing::info!(provider = %self.name, keys = keys.len(), "the keys of a provider were fetched");
                }
                *known = Known { keys: keys.into(), at: Some(now), fault: None, used: true };
            }
            Err(reason) => {
                let uses = self.uses(&known, now);
                // The same again and again says nothing more.
                if before.as_ref() != Some(&reason) || known.used != uses {
                    let then = if uses { "those from before are used on" } else { "its JWTs are refused" };
                    tracing::error!(provider = %self.name, %reason, "the keys of a provider cannot be had; {then}");
                }
                (known.fault, known.used) = (Some(reason), uses);
            }
        }
    }

    async fn look_for_ever(&self, providers: &Providers, metrics: &Metrics) {
        let again = if matches!(self.settings.source, Source::File(_)) { AGAIN_FILE } else { AGAIN };
        loop {
            let fetched = fetch::keys(&self.settings).await.and_then(|bytes| jwks::read(&bytes));
            let clock = providers.clock();
            metrics.providers.fetched(&self.name, fetched.is_ok().then(|| clock.unix_ms() / 1_000));
            let pause = match (&fetched, &self.settings.source) {
                (Ok(_), Source::Discovery | Source::Url(_)) => REFRESH,
                _ => again,
            };
            self.note(clock.now(), fetched);
            sleep(again).await;
            let _ = timeout(pause.saturating_sub(again), self.wanted.notified()).await;
        }
    }
}

/// Fetches the keys of all providers again and again.
pub(crate) fn keep(providers: &Arc<Providers>, metrics: &Arc<Metrics>) -> Vec<JoinHandle<()>> {
    let one = |live: &Arc<Live>| {
        let (live, providers, metrics) = (Arc::clone(live), Arc::clone(providers), Arc::clone(metrics));
        tokio::spawn(async move { live.look_for_ever(&providers, &metrics).await })
    };
    providers.all().iter().map(one).collect()
}
