//! Metrics of TLS.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tidegate_tls::Expiry;

/// One label: whose certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: &'static str,
}

/// One label: what came of renewed files.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsMetrics {
    expiries: Family<CertificateLabel, Gauge>,
    reloads: Family<OutcomeLabel, Counter>,
}

impl TlsMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tls_certificate_expiry_timestamp_seconds",
            "When a certificate in force ends, in seconds since 1970",
            self.expiries.clone(),
        );
        registry.register("tls_reloads", "Changed files of TLS, by what came of them", self.reloads.clone());
    }

    /// Counts changed files: `renewed` or `broken`.
    pub(crate) fn reloaded(&self, outcome: &'static str) {
        self.reloads.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Shows when certificates end.
    pub(crate) fn expire(&self, expiries: &[Expiry]) {
        for Expiry { role, not_after, .. } in expiries {
            self.expiries.get_or_create(&CertificateLabel { certificate: role }).set(*not_after);
        }
    }
}
