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

    use super::*;

    /// Files that are as they are said to be.
    #[derive(Default)]
    struct Said(Mutex<(Vec<Expiry>, bool)>);

    impl Said {
        /// Certificates of a server and of an authority end in so many days.
        fn end_in(&self, days: [i64; 2], is_renewed: bool) {
            let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
            let expiry = |(role, days): (&'static str, i64)| Expiry {
                role,
                path: format!("{role}.pem").into(),
                subject: format!("CN={role}"),
                // In the middle of that day, whatever the test takes.
                not_after: now + days * 86_400 + 43_200,
            };
            let [server, authority] = days;
            let expiries = [("server", server), ("client_ca", authority)].map(expiry);
            *self.0.lock().unwrap() = (expiries.into(), is_renewed);
        }
    }

    impl Watched for Said {
        fn look(&self) -> Change {
            if std::mem::take(&mut self.0.lock().unwrap().1) { Change::Renewed } else { Change::None }
        }

        fn expiries(&self) -> Vec<Expiry> {
            self.0.lock().unwrap().0.clone()
        }
    }

    #[test]
    fn certificates_that_end_soon_are_warned_of_once_a_day() {
        let said = Arc::new(Said::default());
        let upkeep = Upkeep::new(Arc::clone(&said) as Arc<dyn Watched>, TlsMetrics::default());
        let due = |days| {
            said.end_in(days, false);
            upkeep
                .warnings()
                .iter()
                .map(|text| text.split(" in ").next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let (server, authority) = ("the certificate CN=server", "the authority of clients CN=client_ca");
        assert!(due([400, WARN_DAYS]).is_empty());
        assert_eq!(due([400, WARN_DAYS - 1]), [authority]);
        assert!(due([400, WARN_DAYS - 1]).is_empty(), "it was said today");
        assert_eq!(due([5, WARN_DAYS - 2]), [server, authority]);
        // Another one that ends as soon is said at once, though a day did not pass.
        said.end_in([5, 400], true);
        upkeep.look();
        assert_eq!(upkeep.warned.load(Ordering::Relaxed), 5);
        said.end_in([400, 400], true);
        upkeep.look();
        assert_eq!(due([5, 400]), [server]);
    }

    #[test]
    fn the_series_show_when_certificates_end_and_what_came_of_renewed_files() {
        let (said, metrics, mut registry) =
            (Arc::new(Said::default()), TlsMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        let upkeep = Upkeep::new(Arc::clone(&said) as Arc<dyn Watched>, metrics.clone());
        said.end_in([90, 90], true);
        upkeep.look();
        upkeep.look();
        metrics.expires("server", 1_900_000_000);
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        for line in [
            "tls_certificate_expiry_timestamp_seconds{certificate=\"server\"} 1900000000",
            "tls_reloads_total{outcome=\"renewed\"} 1",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} in {page}");
        }
    }
}
