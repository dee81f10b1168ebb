//! Settings of a gateway, checked when it starts.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_client::Token;
use tidegate_tls::ClientFiles;
use tidegate_traces::TraceSettings;

use crate::gateway::StartError;
use crate::govern::Policy;
use crate::proxied::Networks;
use crate::upstream::{Protocol, Upstream};

/// Where clients connect, and which database they reach there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The database.
    pub upstream: Upstream,
}

/// The gateway's certificate for its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The chain, in PEM.
    pub chain: PathBuf,
    /// The key, in PEM.
    pub key: PathBuf,
}

/// Where `/metrics` is served, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsPage {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// TLS of the page; it is plain without.
    pub certificate: Option<Certificate>,
    /// A file, for its owner only, with the token that callers show; anybody is answered without.
    pub token: Option<PathBuf>,
    /// Listen beyond the own machine without TLS: everyone on the way can read the page.
    pub plaintext_off_loopback: bool,
    /// Listen beyond the own machine without a token: all who reach the page can read it.
    pub anonymous_off_loopback: bool,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Controllers, such as `http://127.0.0.1:7420`; they are tried in turn.
    pub endpoints: Vec<String>,
    /// Whom the gateway trusts as a controller, and what it shows, for controllers behind `https://`.
    pub controller_tls: ClientFiles,
    /// What the gateway shows controllers in place of a certificate.
    pub controller_token: Option<Token>,
    /// Identity of this gateway, the same from start to start and no other process's.
    pub identity: String,
    /// Directory in which consumption survives a crash.
    pub journal: Option<PathBuf>,
    /// The listeners, at least one.
    pub listeners: Vec<Listener>,
    /// How statements are governed.
    pub policy: Policy,
    /// Threads that serve sessions; one for each core when left open.
    pub threads: Option<NonZeroUsize>,
    /// Sessions at once over all listeners; further clients get the error that there are too many.
    pub max_sessions: usize,
    /// Load balancers, whose connections begin with a PROXY header that names the client.
    pub proxies: Networks,
    /// Connections that the kernel keeps until they are accepted, for each listener; its own limit is
    /// `net.core.somaxconn`.
    pub backlog: u32,
    /// Longest time from the first byte of a connection to a successful login.
    pub login_timeout: Duration,
    /// Silence of a client or a database after which the kernel asks whether it is still there, in whole seconds from
    /// one to 32,767. One that does not answer is gone after twice that.
    pub keepalive: Duration,
    /// The statement of a client that closes its connection, or says that it sends no more, is killed, or leaves the
    /// queue; otherwise it is run to its end, as the server does.
    pub kill_abandoned: bool,
    /// How long statements may run on when the gateway shuts down.
    pub grace: Duration,
    /// TLS for clients that want it.
    pub certificate: Option<Certificate>,
    /// Without a certificate, clients of MySQL may use TLS with one that the gateway makes, where the server offers it.
    pub self_signed: bool,
    /// Authorities for `tls=verify-full`, in PEM, in place of those the machine trusts.
    pub authorities: Option<PathBuf>,
    /// Where `/metrics` is served, if it is.
    pub metrics: Option<MetricsPage>,
    /// Where spans are sent; `None`: there are none.
    pub traces: Option<TraceSettings>,
    /// Listen for clients beyond the own machine.
    pub allow_remote: bool,
    /// MySQL's `LOAD DATA LOCAL INFILE` is passed; otherwise it fails.
    pub local_infile: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:7420".to_owned()],
            controller_tls: ClientFiles::default(),
            controller_token: None,
            identity: "gateway".to_owned(),
            journal: None,
            listeners: Vec::new(),
            policy: Policy::default(),
            threads: None,
            max_sessions: 2_000,
            proxies: Networks::default(),
            // Twice the sessions, and the kernel's own limit since Linux 5.4. A burst of more loses connections, each
            // for a second or more, until a client's kernel asks again; twice of it needs another `somaxconn`.
            backlog: 4_096,
            login_timeout: Duration::from_secs(60),
            keepalive: Duration::from_secs(60),
            kill_abandoned: false,
            grace: Duration::from_secs(10),
            certificate: None,
            self_signed: true,
            authorities: None,
            metrics: None,
            traces: None,
            allow_remote: false,
            local_infile: true,
        }
    }
}

impl Config {
    /// What other machines would reach, though that is not allowed.
    pub fn exposed(&self) -> impl Iterator<Item = StartError> {
        let addresses = self.listeners.iter().map(|listener| listener.listen);
        let addresses = addresses.filter(|address| !self.allow_remote && !address.ip().is_loopback());
        let clients = addresses.map(|address| StartError::Remote { address });
        clients.chain(self.metrics.as_ref().and_then(MetricsPage::exposed))
    }
}

impl MetricsPage {
    /// At this address, plain and for all who reach it.
    pub const fn at(listen: SocketAddr) -> Self {
        Self {
            listen,
            certificate: None,
            token: None,
            plaintext_off_loopback: false,
            anonymous_off_loopback: false,
        }
    }

    /// What it lacks beyond the own machine that nobody gave up by name.
    fn exposed(&self) -> Option<StartError> {
        let is_plain = self.certificate.is_none() && !self.plaintext_off_loopback;
        let is_open = self.token.is_none() && !self.anonymous_off_loopback;
        if self.listen.ip().is_loopback() || !(is_plain || is_open) {
            return None;
        }
        let mut gaps = String::new();
        if is_plain {
            gaps += "; without TLS everyone on the way can read it: set metrics_tls_cert and metrics_tls_key, or \
                     metrics_plaintext_off_loopback if the network is trusted";
        }
        if is_open {
            gaps += "; nobody proves who they are: set metrics_token_file, or metrics_anonymous_off_loopback if all \
                     who reach it may read it";
        }
        Some(StartError::Page { address: self.listen, gaps })
    }
}

impl Listener {
    /// The port on which a gateway for this protocol listens by default.
    pub const fn default_port(protocol: Protocol) -> u16 {
        match protocol {
            Protocol::Postgres => 6432,
            Protocol::MySql => 6306,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gateway;

    fn listening(addresses: &[&str]) -> Config {
        let upstream = Upstream::parse("postgres://127.0.0.1:1").unwrap();
        let listener = |text: &&str| Listener { listen: text.parse().unwrap(), upstream: upstream.clone() };
        Config { listeners: addresses.iter().map(listener).collect(), ..Config::default() }
    }

    #[test]
    fn a_page_for_other_machines_has_tls_and_a_token_unless_each_is_given_up_by_its_name() {
        for bits in 0..16_u8 {
            let is = |bit: u8| bits & (1 << bit) != 0;
            let certificate = Certificate { chain: "chain.pem".into(), key: "key.pem".into() };
            let page = |listen: &str| MetricsPage {
                certificate: is(0).then(|| certificate.clone()),
                token: is(1).then(|| "token".into()),
                plaintext_off_loopback: is(2),
                anonymous_off_loopback: is(3),
                ..MetricsPage::at(listen.parse().unwrap())
            };
            let said = |listen: &str| {
                let config = Config { metrics: Some(page(listen)), allow_remote: true, ..Config::default() };
                config.exposed().map(|error| error.to_string()).collect::<Vec<_>>().concat()
            };
            let lacks = [!is(0) && !is(2), !is(1) && !is(3)];
            for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
                let said = said(listen);
                let named = ["metrics_plaintext_off_loopback", "metrics_anonymous_off_loopback"];
                assert_eq!(named.map(|name| said.contains(name)), lacks, "{bits:04b}: {said}");
                assert_eq!(said.is_empty(), lacks == [false; 2], "{bits:04b}: {said}");
            }
            assert_eq!((said("127.0.0.1:0"), said("[::1]:0")), (String::new(), String::new()));
        }
    }

    #[tokio::test]
    async fn other_machines_reach_no_listener_unless_they_may() {
        for (addresses, remote) in [
            (&["127.0.0.1:0", "127.9.9.9:0", "[::1]:0"][..], &[][..]),
            (&["127.0.0.1:0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"], &["0.0.0.0:0", "[::]:0", "192.0.2.1:0"]),
        ] {
            let config = listening(addresses);
            let said: Vec<String> = config.exposed().map(|error| error.to_string()).collect();
            assert_eq!(said.len(), remote.len(), "{said:?}");
            for (said, address) in said.iter().zip(remote) {
                assert!(said.starts_with(&format!("{address} is reachable")), "{said}");
            }
            assert_eq!(Config { allow_remote: true, ..config }.exposed().count(), 0);
        }
        let started = Gateway::start(listening(&["127.0.0.1:0", "0.0.0.0:0"])).await;
        assert!(matches!(started.err(), Some(StartError::Remote { .. })));
        let started = Gateway::start(listening(&[])).await;
        assert!(matches!(started.err(), Some(StartError::NoListener)));
    }
}
