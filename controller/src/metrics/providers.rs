//! Metrics of providers of identity.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Two labels: the provider, of which a configuration has a few, and what came of a fetch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FetchLabel {
    provider: String,
    outcome: &'static str,
}

/// One label: the provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabel {
    provider: String,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProviderMetrics {
    fetches: Family<FetchLabel, Counter>,
    keys: Family<ProviderLabel, Gauge>,
}

impl ProviderMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Fetches of the keys of a provider of identity, by what came of them";
        registry.register("provider_fetches", help, self.fetches.clone());
        registry.register(
            "provider_keys_timestamp_seconds",
            "When the keys of a provider that are in use were fetched, in seconds since 1970",
            self.keys.clone(),
        );
    }

    /// Counts a fetch, and notes when it brought keys.
    pub(crate) fn fetched(&self, provider: &str, at: Option<u64>) {
        let outcome = if at.is_some() { "fetched" } else { "failed" };
        self.fetches.get_or_create(&FetchLabel { provider: provider.to_owned(), outcome }).inc();
        if let Some(at) = at {
            let label = ProviderLabel { provider: provider.to_owned() };
            self.keys.get_or_create(&label).set(i64::try_from(at).unwrap_or(i64::MAX));
        }
    }
}
