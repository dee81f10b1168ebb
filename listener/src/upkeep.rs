//! TLS while a process runs: renewed files, certificates that end soon, and the series of both.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tidegate_tls::{Change, Expiry, WARN_DAYS, Watched, date, days_left};
use tokio::sync::watch as flag;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// Time between looks at the files of TLS. A renewed file is in force at the next look, and one that cannot be used is
/// told at the one after. Half of it reads files for nothing; with five times of it, ten seconds are not kept.
const LOOK_EVERY: Duration = Duration::from_secs(2);

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

/// The series of TLS, which all listeners of a process share.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    expiries: Family<CertificateLabel, Gauge>,
    reloads: Family<OutcomeLabel, Counter>,
}

impl TlsMetrics {
    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "tls_certificate_expiry_timestamp_seconds",
            "When a certificate in force ends, in seconds since 1970",
            self.expiries.clone(),
        );
        registry.register("tls_reloads", "Changed files of TLS, by what came of them", self.reloads.clone());
    }

    fn reloaded(&self, outcome: &'static str) {
        self.reloads.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Shows when a certificate ends.
    pub fn expires(&self, certificate: &'static str, not_after: i64) {
        self.expiries.get_or_create(&CertificateLabel { certificate }).set(not_after);
    }
}

/// Looks at the files of a server, or of whom a client trusts, again and again.
pub struct Upkeep {
    watched: Arc<dyn Watched>,
    metrics: TlsMetrics,
    /// Days that were left when a warning was logged, so that there is one a day.
    warned: AtomicI64,
}

impl fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upkeep").field("warned", &self.warned).finish_non_exhaustive()
    }
}

impl Upkeep {
    /// Of these files, counted here.
    pub fn new(watched: Arc<dyn Watched>, metrics: TlsMetrics) -> Self {
        Self { watched, metrics, warned: AtomicI64::new(i64::MAX) }
    }

    /// Looks until `stopped` shows true.
    pub async fn keep(self, stopped: flag::Receiver<bool>) {
        every(LOOK_EVERY, stopped, move || self.look()).await;
    }

    /// Puts renewed files in force, and warns of certificates that end soon.
    fn look(&self) {
        match self.watched.look() {
            Change::None => {}
            Change::Renewed => {
                self.metrics.reloaded("renewed");
                self.warned.store(i64::MAX, Ordering::Relaxed);
                tracing::info!(files = %Files(&*self.watched), "renewed certificates are in force for new connections");
            }
            Change::Broken(error) => {
                self.metrics.reloaded("broken");
                tracing::error!(%error, "renewed files of TLS cannot be used; the last good ones stay in force");
            }
        }
        self.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    }

    /// What is to be said of certificates that end soon, once for each day that is left.
    fn warnings(&self) -> Vec<String> {
        let expiries = self.watched.expiries();
        let soonest = expiries.iter().map(|expiry| days_left(expiry.not_after)).min().unwrap_or(i64::MAX);
        if soonest < self.warned.swap(soonest, Ordering::Relaxed) {
            expiries.iter().filter_map(warning).collect()
        } else {
            Vec::new()
        }
    }
}

/// The files of the certificates in force, for people.
struct Files<'a>(&'a dyn Watched);

impl fmt::Display for Files<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, expiry) in self.0.expiries().iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { ", " }, expiry.path.display())?;
        }
        Ok(())
    }
}

/// What to say of a certificate that ends soon.
pub fn warning(expiry: &Expiry) -> Option<String> {
    let days = days_left(expiry.not_after);
    let (path, at) = (expiry.path.display(), date(expiry.not_after));
    let whose = match expiry.role {
        "client_ca" => "the authority of clients",
        "upstream_ca" => "the authority of databases",
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

/// Repeats a call that waits for the disk, until `stopped` shows true; never runs it twice at once, and never cuts it
/// off.
pub async fn every(
    period: Duration,
    mut stopped: flag::Receiver<bool>,
    call: impl Fn() + Send + Sync + 'static,
) {
    let call = Arc::new(call);
    // An error means that the sender is gone, which is a stop, too.
    let mut stop = pin!(async move { drop(stopped.wait_for(|stopped| *stopped).await) });
    let mut again = interval(period);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = &mut stop => return,
            _ = again.tick() => {}
        }
        let call = Arc::clone(&call);
        if let Err(error) = spawn_blocking(move || call()).await {
            tracing::error!(%error, "upkeep failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use prometheus_client::encoding::text::encode;
    use tokio::time::sleep;

    use super::*;

    fn expiry(role: &'static str, days: i64) -> Expiry {
        // Half a day is left over on a machine that is slow, too.
        let not_after = i64::try_from(unix_seconds()).unwrap() + days * 86_400 + 43_200;
        Expiry { role, path: format!("{role}.pem").into(), subject: "CN=a".to_owned(), not_after }
    }

    fn unix_seconds() -> u64 {
        #[expect(clippy::disallowed_methods, reason = "what certificates end by is the clock of the machine")]
        let now = std::time::SystemTime::now();
        now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    }

    #[test]
    fn a_certificate_is_warned_of_in_its_last_month_and_called_refused_after_it() {
        for (role, days, expected) in [
            ("server", 30, None),
            ("server", 29, Some("the certificate CN=a in server.pem expires in 29 days, on ")),
            ("client_ca", 1, Some("the authority of clients CN=a in client_ca.pem expires in 1 day, on ")),
            (
                "upstream_ca",
                0,
                Some("the authority of databases CN=a in upstream_ca.pem expires in 0 days, on "),
            ),
            ("server", -1, Some("the certificate CN=a in server.pem expired on ")),
        ] {
            let said = warning(&expiry(role, days));
            assert_eq!(said.is_some(), expected.is_some(), "{role} {days}: {said:?}");
            let (said, expected) = (said.unwrap_or_default(), expected.unwrap_or_default());
            assert!(said.starts_with(expected) && (said.is_empty() || said.ends_with("renew it")), "{said}");
            assert_eq!(said.contains("it is refused"), days < 0, "{said}");
        }
    }

    /// Files of which each look finds something else.
    #[derive(Default)]
    struct Looks {
        changes: Mutex<Vec<Change>>,
        expiries: Mutex<Vec<Expiry>>,
    }

    impl Looks {
        /// Certificates of a server and of an authority end in so many days.
        fn end_in(&self, server: i64, authority: i64) {
            *self.expiries.lock().unwrap() = vec![expiry("server", server), expiry("client_ca", authority)];
        }
    }

    impl Watched for Looks {
        fn look(&self) -> Change {
            self.changes.lock().unwrap().pop().unwrap_or(Change::None)
        }

        fn expiries(&self) -> Vec<Expiry> {
            self.expiries.lock().unwrap().clone()
        }
    }

    #[test]
    fn certificates_that_end_soon_are_warned_of_once_a_day() {
        let looks = Arc::<Looks>::default();
        let upkeep = Upkeep::new(Arc::clone(&looks) as _, TlsMetrics::default());
        let due = |server, authority| {
            looks.end_in(server, authority);
            upkeep.warnings().len()
        };
        assert_eq!(due(400, WARN_DAYS), 0);
        assert_eq!(due(400, WARN_DAYS - 1), 1);
        assert_eq!(due(400, WARN_DAYS - 1), 0, "it was said today");
        assert_eq!(due(5, WARN_DAYS - 2), 2);
        assert_eq!((due(400, 400), due(5, 400)), (0, 1), "another one is in force");
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_of_changed_files_is_counted() {
        let broken = tidegate_tls::TlsError::NoAuthorities("x".to_owned());
        let looks = Arc::<Looks>::default();
        *looks.changes.lock().unwrap() =
            vec![Change::Broken(broken), Change::None, Change::Renewed, Change::Renewed];
        let (metrics, mut registry) = (TlsMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        metrics.expires("server", 1_900_000_000);
        let (stop, stopped) = flag::channel(false);
        let keeping = tokio::spawn(Upkeep::new(Arc::clone(&looks) as _, metrics).keep(stopped));
        while !looks.changes.lock().unwrap().is_empty() {
            sleep(Duration::from_secs(1)).await;
        }
        stop.send_replace(true);
        keeping.await.unwrap();
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        for line in [
            "tls_certificate_expiry_timestamp_seconds{certificate=\"server\"} 1900000000",
            "tls_reloads_total{outcome=\"renewed\"} 2",
            "tls_reloads_total{outcome=\"broken\"} 1",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} in {page}");
        }
    }
}
