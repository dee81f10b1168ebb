//! TLS of both listeners while the controller runs: renewed files, and certificates that end soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tidegate_tls::{Change, Expiry, Server, WARN_DAYS, date, days_left};

use crate::metrics::Metrics;

/// What a client and a server agree on in a handshake. A gRPC listener answers HTTP/1.1, too: that it is one.
pub(crate) const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Looks at the files again and again.
pub(crate) struct Upkeep {
    server: Arc<Server>,
    metrics: Arc<Metrics>,
    /// Days that were left when a warning was logged, so that there is one a day.
    warned: AtomicI64,
}

impl Upkeep {
    pub(crate) fn new(server: Arc<Server>, metrics: Arc<Metrics>) -> Self {
        Self { server, metrics, warned: AtomicI64::new(i64::MAX) }
    }

    /// Puts renewed files in force, and warns of certificates that end soon.
    pub(crate) fn look(&self) {
        match self.server.look() {
            Change::None => {}
            Change::Renewed => {
                self.metrics.tls.reloaded("renewed");
                self.warned.store(i64::MAX, Ordering::Relaxed);
                tracing::info!("renewed certificates are in force for new connections");
            }
            Change::Broken(error) => {
                self.metrics.tls.reloaded("broken");
                tracing::error!(%error, "renewed files of TLS cannot be used; the last good ones stay in force");
            }
        }
        let expiries = self.server.expiries();
        let soonest = expiries.iter().map(|expiry| days_left(expiry.not_after)).min().unwrap_or(i64::MAX);
        if soonest < WARN_DAYS && soonest < self.warned.swap(soonest, Ordering::Relaxed) {
            expiries.iter().filter_map(warning).for_each(|warning| tracing::warn!("{warning}"));
        }
    }
}

/// What to say of a certificate that ends soon.
pub(crate) fn warning(expiry: &Expiry) -> Option<String> {
    let days = days_left(expiry.not_after);
    let (path, at) = (expiry.path.display(), date(expiry.not_after));
    let whose = match expiry.role {
        "client_ca" => "the authority of clients",
        _ => "the certificate",
    };
    let (subject, unit) = (&expiry.subject, if days == 1 { "day" } else { "days" });
    match days {
        ..0 => Some(format!("{whose} {subject} in {path} expired on {at}: it is refused; renew it")),
        0..WARN_DAYS => {
            Some(format!("{whose} {subject} in {path} expires in {days} {unit}, on {at}: renew it"))
        }
        _ => None,
    }
}
