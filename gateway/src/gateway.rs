//! A gateway from start to shutdown: the session with the controller, the listeners, their sessions.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tidegate_client::{Client, ClientBuilder, ConnectError, Unconfirmed};
use tidegate_listener::{PROTOCOLS, Upkeep, every};
use tidegate_tls::{Dial, Server, Trust, Watched};
use tidegate_traces::{Exporter, Source, TraceError, TraceSettings, Traces};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tonic::transport::{Channel, Endpoint};

use crate::clock;
use crate::complaints::Complaints;
use crate::config::{Config, Listener};
use crate::descriptors;
use crate::door::{Door, Porch};
use crate::govern::{Controller, Governor, Tasks};
use crate::keepalive::Keepalive;
use crate::metrics::Metrics;
use crate::mysql;
use crate::page::Page;
use crate::page_token::{PageToken, PageTokenError};
use crate::postgres;
use crate::seats::Seats;
use crate::session::Listening;
use crate::tls::{self, Acceptor, Connector, TlsError};
use crate::upstream::{Protocol, Upstream};
use crate::workers::Workers;

/// How long a connection to one of several controllers may take. Half of it is short for a path that loses packets; with
/// twice of it, a controller that is away without a word keeps the next one waiting.
const CONNECT_WITHIN: Duration = Duration::from_secs(4);
/// Time between looks at the file with the token of the page of metrics. Half of it reads it for nothing; with five
/// times of it, a token that was taken back is good for ten seconds.
const TOKEN_EVERY: Duration = Duration::from_secs(2);

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no upstream.
    #[error("no upstream is given; name at least one, such as postgres://127.0.0.1:5432")]
    NoListener,
    /// It would be reachable from elsewhere.
    #[error(
        "{address} is reachable from other machines; listen on 127.0.0.1, or allow it with allow_remote when the \
         network is trusted or clients use TLS"
    )]
    Remote {
        /// The address.
        address: SocketAddr,
    },
    /// So would the page of metrics, and lacks what that takes.
    #[error("the page of metrics at {address} is reachable from other machines{gaps}")]
    Page {
        /// The address.
        address: SocketAddr,
        /// What is missing, and how to give it or do without.
        gaps: String,
    },
    /// The token of the page of metrics.
    #[error(transparent)]
    PageToken(#[from] PageTokenError),
    /// Spans cannot be sent.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// The address is taken, or not this machine's.
    #[error("cannot listen on {address}: {reason}; choose another address, port 0 takes a free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        reason: io::Error,
    },
    /// The session with the controller.
    #[error(transparent)]
    Client(#[from] ConnectError),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system gives no more threads or descriptors.
    #[error("cannot start the threads that serve sessions: {0}; ask for fewer threads")]
    Threads(#[source] io::Error),
}

/// A gateway that runs.
pub struct Gateway {
    /// Where it listens, in the order of the settings.
    pub addresses: Vec<SocketAddr>,
    /// Where `/metrics` is, when it is served.
    pub metrics_address: Option<SocketAddr>,
    governor: Arc<Governor>,
    tasks: Tasks,
    exporter: Option<Exporter>,
    accepting: Vec<JoinHandle<()>>,
    _workers: Arc<Workers>,
    closing: watch::Sender<bool>,
    seats: Arc<Seats>,
    grace: Duration,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Starts it. The controller need not be there yet: until it is, statements wait.
    pub async fn start(mut config: Config) -> Result<Self, StartError> {
        check(&config)?;
        let tls = Tls::of(&config)?;
        let bound = listeners(&config, &tls)?;
        let exposition = Exposition::of(&config)?;
        let builder = client(&config);
        let controller = Controller::new(channel(&config)?, config.controller_token.clone());
        let seats = Arc::new(Seats::new(config.max_sessions));
        let metrics = Arc::new(Metrics::new(seats.max(), config.traces.is_some()));
        let client = builder.start()?;
        let policy = std::mem::take(&mut config.policy);
        let (traces, exporter) = config.traces.take().map(|to| trace(to, &config.identity, &metrics)).unzip();
        let (governor, tasks) =
            Governor::start(client, controller, &config.identity, policy, Arc::clone(&metrics), traces);
        let (closing, closed) = watch::channel(false);
        descriptors::warn_if_few(seats.max());
        let workers = Arc::new(Workers::start(config.threads).map_err(StartError::Threads)?);
        let keepalive = Keepalive::after(config.keepalive);
        let complaints = Arc::<Complaints>::default();
        let porch = Arc::new(Porch {
            proxies: config.proxies.clone(),
            login_timeout: config.login_timeout,
            complaints: Arc::clone(&complaints),
        });
        let (mut addresses, mut accepting) = (Vec::new(), Vec::new());
        for (listener, upstream, connector) in bound {
            if let Ok(address) = listener.local_addr() {
                tracing::info!(%address, %upstream, "listening");
                addresses.push(address);
            }
            let door = Door {
                listener,
                workers: Arc::clone(&workers),
                seats: Arc::clone(&seats),
                metrics: Arc::clone(&metrics),
                porch: Arc::clone(&porch),
            };
            let listening = Listening {
                governor: Arc::clone(&governor),
                unowned: Arc::new(governor.metrics().unowned()),
                acceptor: tls.of_clients(upstream.protocol),
                upstream,
                connector,
                login_timeout: config.login_timeout,
                keepalive,
                kills_abandoned: config.kill_abandoned,
                complaints: Arc::clone(&complaints),
                closing: closed.clone(),
            };
            accepting.push(accept(door, listening, &config, &tls));
        }
        let metrics_address = exposition.as_ref().and_then(|page| page.listener.local_addr().ok());
        let figures = (Arc::clone(&governor), Arc::clone(&seats), metrics);
        accepting.extend(beside(exposition, tls, figures, &closed));
        Ok(Self {
            addresses,
            metrics_address,
            governor,
            tasks,
            exporter,
            accepting,
            _workers: workers,
            closing,
            seats,
            grace: config.grace,
        })
    }

    /// Takes no more clients, lets statements end for the grace period, and hands what was counted to the controller.
    /// Returns what it did not confirm.
    pub async fn shutdown(self) -> Vec<Unconfirmed> {
        for listener in &self.accepting {
            listener.abort();
        }
        self.closing.send_replace(true);
        if clock::within(self.grace, self.seats.all_free()).await.is_none() {
            tracing::warn!("statements still run after {:?}; they are left to the database", self.grace);
        }
        let unconfirmed = self.governor.shutdown(self.tasks).await;
        if let Some(exporter) = self.exporter {
            exporter.end().await;
        }
        unconfirmed
    }
}

/// Begins to send spans.
fn trace(settings: TraceSettings, identity: &str, metrics: &Metrics) -> (Traces, Exporter) {
    let source = Source { service: "tidegate-gateway", instance: identity.to_owned() };
    Traces::start(settings, source, metrics.traces.clone())
}

fn check(config: &Config) -> Result<(), StartError> {
    if config.listeners.is_empty() {
        return Err(StartError::NoListener);
    }
    config.exposed().next().map_or(Ok(()), Err)?;
    Ok(config.traces.as_ref().map_or(Ok(()), TraceSettings::check_headers)?)
}

/// The page of metrics, before it is served.
struct Exposition {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<Server>>,
    token: Option<Arc<PageToken>>,
}

impl Exposition {
    /// `None` where there is no page.
    fn of(config: &Config) -> Result<Option<Self>, StartError> {
        let Some(page) = &config.metrics else { return Ok(None) };
        let tls = page.certificate.as_ref().map(|own| tls::served(own, &PROTOCOLS)).transpose()?;
        let token = page.token.as_deref().map(PageToken::load).transpose()?.map(Arc::new);
        let listener = bind(page.listen, config.backlog)?;
        Ok(Some(Self { listener, address: page.listen, tls, token }))
    }
}

/// The tasks beside those that serve clients: they serve the page, and keep its token and all certificates as their
/// files are.
fn beside(
    page: Option<Exposition>,
    tls: Tls,
    (governor, seats, metrics): (Arc<Governor>, Arc<Seats>, Arc<Metrics>),
    closed: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let own = page.as_ref().and_then(|page| page.tls.clone());
    let certificates: [(_, Option<Arc<dyn Watched>>); 3] = [
        ("server", tls.given.map(|server| server as _)),
        ("page", own.map(|server| server as _)),
        ("upstream_ca", tls.trust.map(|trust| trust as _)),
    ];
    let certificates: Vec<_> =
        certificates.into_iter().filter_map(|(name, files)| Some((name, files?))).collect();
    let upkeep = certificates.iter().map(|(_, files)| {
        let upkeep = Upkeep::new(Arc::clone(files), metrics.tls.clone());
        tokio::spawn(upkeep.keep(closed.clone()))
    });
    let mut tasks: Vec<_> = upkeep.collect();
    let Some(Exposition { listener, address, tls, token }) = page else { return tasks };
    if let Some(token) = token.clone() {
        tasks.push(tokio::spawn(every(TOKEN_EVERY, closed.clone(), move || token.look())));
    }
    let page = Page { governor, seats, metrics, certificates, token, failures: Arc::default() };
    tasks.push(tokio::spawn(page.door(address, tls).serve(listener, closed.clone())));
    tasks
}

/// A socket for each upstream, and TLS towards it.
fn listeners(
    config: &Config,
    tls: &Tls,
) -> Result<Vec<(TcpListener, Upstream, Option<Connector>)>, StartError> {
    let open = |&Listener { listen: address, ref upstream }: &Listener| {
        let connector = tls::connector(upstream.tls, tls.trust.as_ref())?;
        let listener = bind(address, config.backlog)?;
        Keepalive::after(config.keepalive)
            .set_for_all(&listener)
            .map_err(|reason| StartError::Listen { address, reason })?;
        Ok((listener, upstream.clone(), connector))
    };
    config.listeners.iter().map(open).collect()
}

/// The client that speaks to the controller, before it starts.
fn client(config: &Config) -> ClientBuilder {
    let builder = Client::builder(&config.endpoints, &config.identity)
        .tls(config.controller_tls.clone())
        .agent(concat!("tidegate-gateway/", env!("CARGO_PKG_VERSION")));
    let builder = match &config.controller_token {
        Some(token) => builder.token(token.clone()),
        None => builder,
    };
    match &config.journal {
        Some(journal) => builder.journal_dir(journal),
        None => builder,
    }
}

/// Serves the clients of a listener, in a task of its own.
fn accept(door: Door, listening: Listening, config: &Config, tls: &Tls) -> JoinHandle<()> {
    match listening.upstream.protocol {
        Protocol::Postgres => {
            let shared = Arc::new(postgres::Shared { listening, cancels: postgres::Cancels::default() });
            let serve =
                move |stream, client, seat| postgres::serve(Arc::clone(&shared), stream, client, seat);
            tokio::spawn(door.accept(serve))
        }
        Protocol::MySql => {
            let control = mysql::Control::new(&listening.upstream, tls.trust.clone(), listening.keepalive);
            let (self_signed, local_infile) = (tls.own.is_some(), config.local_infile);
            let shared = Arc::new(mysql::Shared { listening, control, self_signed, local_infile });
            let serve = move |stream, client, seat| mysql::serve(Arc::clone(&shared), stream, client, seat);
            tokio::spawn(door.accept(serve))
        }
    }
}

/// TLS on either side.
struct Tls {
    /// Towards clients, by the certificate of the configuration.
    given: Option<Arc<Server>>,
    /// Towards clients of MySQL by one that the gateway makes, where the configuration has none.
    own: Option<TlsAcceptor>,
    /// The authorities of databases that the configuration names.
    trust: Option<Arc<Trust>>,
}

impl Tls {
    fn of(config: &Config) -> Result<Self, TlsError> {
        let given = config.certificate.as_ref();
        let given = given.map(|given| tls::served(given, &[tls::ALPN])).transpose()?;
        let is_mysql = |listener: &Listener| listener.upstream.protocol == Protocol::MySql;
        let wanted = config.self_signed && given.is_none() && config.listeners.iter().any(is_mysql);
        let trust = config.authorities.as_deref().map(Trust::load).transpose()?;
        Ok(Self { given, own: wanted.then(tls::self_signed).transpose()?, trust })
    }

    fn of_clients(&self, protocol: Protocol) -> Option<Acceptor> {
        let own = self.own.as_ref().filter(|_| protocol == Protocol::MySql);
        let given = self.given.clone().map(Acceptor::Given);
        given.or_else(|| own.cloned().map(Acceptor::Own))
    }
}

fn bind(address: SocketAddr, backlog: u32) -> Result<TcpListener, StartError> {
    tidegate_listener::open(address, backlog).map_err(|reason| StartError::Listen { address, reason })
}

/// One channel for the admin API, to the first controller that answers.
fn channel(config: &Config) -> Result<Channel, ConnectError> {
    let mut places = Vec::new();
    for text in &config.endpoints {
        let unusable = |reason: String| ConnectError::Endpoint { endpoint: text.clone(), reason };
        places.push(text.parse::<Uri>().map_err(|error| unusable(error.to_string()))?);
    }
    let endpoint = Endpoint::from(places.first().cloned().ok_or(ConnectError::NoEndpoint)?)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_while_idle(true);
    let dial = Dial::new(config.controller_tls.clone(), CONNECT_WITHIN).over(places);
    Ok(endpoint.connect_with_connector_lazy(dial))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::config::MetricsPage;
    use crate::govern::tests::eventually;
    use crate::seats::Seat;
    use crate::stream::Stream;

    /// Connects until the kernel takes no more, as nothing accepts; a connection that waits for room is not made
    /// meanwhile.
    fn taken(listener: &TcpListener, most: usize) -> usize {
        let address = listener.local_addr().unwrap();
        // A second is when the kernel asks again for room.
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok();
        let connections: Vec<TcpStream> = (0..most).map_while(|_| connect()).collect();
        connections.len()
    }

    type Serve<T, F> = fn(Arc<T>, Stream, SocketAddr, Result<Arc<Seat>, String>) -> F;

    /// The size of what a session is held in.
    fn held<T, F>(_: Serve<T, F>) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_session_is_held_in_little() {
        // It is moved several times before it first runs, and stays until the client leaves. An async function that takes
        // `mut self` holds that twice, and a handshake that is not in a box is held to the end.
        let sizes = [held(mysql::serve), held(postgres::serve)];
        assert!(sizes.iter().all(|size| *size <= 4_096), "{sizes:?}");
    }

    #[tokio::test]
    async fn a_burst_of_connections_waits_to_be_accepted_and_is_not_lost() {
        let address = "127.0.0.1:0".parse().unwrap();
        // Each takes two descriptors, and most machines give 1,024.
        assert_eq!(taken(&bind(address, Config::default().backlog).unwrap(), 400), 400);
        // The kernel takes one connection more than the backlog.
        assert_eq!(taken(&bind(address, 7).unwrap(), 400), 8);
    }

    /// Else a client that comes later waits for an answer, and no other process can listen there.
    #[tokio::test]
    async fn a_gateway_that_has_shut_down_listens_no_more() {
        let any = "127.0.0.1:0".parse().unwrap();
        let upstream = Upstream::parse("mysql://127.0.0.1:1").unwrap();
        let gateway = Gateway::start(Config {
            listeners: vec![Listener { listen: any, upstream }],
            metrics: Some(MetricsPage::at(any)),
            ..Config::default()
        });
        let gateway = gateway.await.unwrap();
        let addresses = [gateway.addresses[0], gateway.metrics_address.unwrap()];
        let listens = |address: &SocketAddr| TcpStream::connect(address).is_ok();
        assert!(addresses.iter().all(listens));
        gateway.shutdown().await;
        eventually("both are closed", || !addresses.iter().any(listens)).await;
    }

    #[test]
    fn a_certificate_that_the_gateway_makes_is_for_clients_of_mysql_alone() {
        let config = |protocols: &[&str], self_signed| {
            let upstream = |text: &&str| Upstream::parse(text).unwrap();
            let listen = "127.0.0.1:0".parse().unwrap();
            let listeners =
                protocols.iter().map(|text| Listener { listen, upstream: upstream(text) }).collect();
            Config { listeners, self_signed, ..Config::default() }
        };
        let (postgres, mysql) = ("postgres://127.0.0.1:1", "mysql://127.0.0.1:1");
        for (protocols, self_signed, made) in
            [(&[postgres][..], true, false), (&[postgres, mysql], true, true), (&[mysql], false, false)]
        {
            let tls = Tls::of(&config(protocols, self_signed)).unwrap();
            assert!(tls.of_clients(Protocol::Postgres).is_none(), "{protocols:?}");
            assert_eq!(tls.of_clients(Protocol::MySql).is_some(), made, "{protocols:?}");
        }
    }
}
