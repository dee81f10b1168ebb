//! Settings of a gateway: flags, and a TOML file with the same names, over which flags go.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use tidegate_client::Token;
use tidegate_controller::quantity::parse_span;
use tidegate_gateway::{
    Certificate, Config, InTransaction, Listener, MetricsPage, Networks, Policy, Principals, Upstream,
};

use tidegate_tls::ClientFiles;
use tidegate_traces::{TraceSettings, Written};

use crate::endpoints;
use crate::error::{CliError, listed};

/// Most threads, and most sessions.
const MAX_THREADS: u16 = 1_024;
const MAX_SESSIONS: u32 = 1_000_000;

/// Shortest and longest silence after which a peer is asked; the kernel counts in seconds.
const KEEPALIVE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);

/// Settings from flags or from a file. A setting left out has its default.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    /// A database: postgres://host:port or mysql://user:password@host:port; add ?tls=require or ?tls=verify-full.
    #[arg(long, value_name = "URL")]
    upstream: Vec<String>,
    /// Where clients of the upstream in the same place connect; 127.0.0.1:6432 for PostgreSQL and :6306 for MySQL.
    #[arg(long, value_name = "ADDR")]
    listen: Vec<SocketAddr>,
    /// Controllers; the endpoint of the other commands when left out.
    #[arg(long, value_name = "URL")]
    controller: Vec<String>,
    /// Authorities that sign the certificates of controllers behind https://, in PEM [default: --ca].
    #[arg(long, value_name = "FILE")]
    controller_ca: Option<PathBuf>,
    /// Certificate to show controllers, in PEM [default: --cert].
    #[arg(long, value_name = "FILE")]
    controller_cert: Option<PathBuf>,
    /// Its key, in PEM [default: --key].
    #[arg(long, value_name = "FILE")]
    controller_key: Option<PathBuf>,
    /// File with a token to show controllers in place of a certificate, for its owner only [default: --token-file].
    #[arg(long, value_name = "FILE")]
    controller_token_file: Option<PathBuf>,
    /// Identity of this gateway, the same from start to start and no other process's [default: the name in its
    /// certificate for controllers; else gateway].
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Keep consumption in a file in this directory, which is made when absent, so that it survives a crash.
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Longest wait of a statement for admission [default: 10s].
    #[arg(long, value_name = "TIME")]
    max_wait: Option<Time>,
    /// What statements inside a transaction do when their group has no tokens [default: owe-some].
    #[arg(long, value_enum, value_name = "WHAT")]
    in_transaction: Option<WhileLocked>,
    /// With owe-some: how much a group may owe when they are admitted, as the time in which it pays that [default: 1s].
    #[arg(long, value_name = "TIME")]
    max_debt: Option<Time>,
    /// Let statements run while no controller grants a lease; otherwise they wait and fail.
    #[arg(long)]
    admit_without_lease: bool,
    /// Who may define groups over SQL: users, or user@database; separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "USER")]
    admin: Vec<String>,
    /// Who may choose a group by SET RESOURCE GROUP or a hint, besides admins.
    #[arg(long, value_delimiter = ',', value_name = "USER")]
    switcher: Vec<String>,
    /// Every user may choose a group.
    #[arg(long)]
    anybody_switches: bool,
    /// Threads that serve sessions, 1 to 1024; one for each core when left out.
    #[arg(long, value_name = "N")]
    threads: Option<u16>,
    /// Sessions at once, 1 to 1000000 [default: 2000].
    #[arg(long, value_name = "N")]
    max_sessions: Option<u32>,
    /// Load balancers, whose connections begin with a PROXY header (version 1 or 2) that names the client: addresses and
    /// networks such as 10.0.0.0/8; separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NETWORK")]
    proxy_from: Vec<String>,
    /// Connections that the kernel keeps until they are accepted, 1 to 65535; net.core.somaxconn is its own limit
    /// [default: 4096].
    #[arg(long, value_name = "N")]
    backlog: Option<u16>,
    /// Longest time from the first byte of a connection to its login [default: 60s].
    #[arg(long, value_name = "TIME")]
    login_timeout: Option<Time>,
    /// Silence after which a client or database is asked whether it is still there, 1s to 1h; it is gone after twice
    /// that without an answer [default: 60s].
    #[arg(long, value_name = "TIME")]
    keepalive: Option<Time>,
    /// Kill the statement of a client that closes its connection; otherwise it runs to its end, as at the server.
    #[arg(long)]
    kill_abandoned: bool,
    /// How long statements may run on at shutdown [default: 10s].
    #[arg(long, value_name = "TIME")]
    grace: Option<Time>,
    /// Certificate chain for clients that want TLS, in PEM.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its key, in PEM.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Without --tls-cert, do not offer MySQL's clients TLS with a certificate that the gateway makes for itself.
    #[arg(long)]
    no_self_signed: bool,
    /// Authorities for tls=verify-full, in PEM; those the machine trusts when left out.
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
    /// Address at which to serve /metrics, for Prometheus.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Certificate chain for /metrics, in PEM, which may be that of --tls-cert; plain HTTP when left out.
    #[arg(long, value_name = "FILE")]
    metrics_tls_cert: Option<PathBuf>,
    /// Its key, in PEM.
    #[arg(long, value_name = "FILE")]
    metrics_tls_key: Option<PathBuf>,
    /// File with a token of 32 characters or more that callers of /metrics show, for its owner only.
    #[arg(long, value_name = "FILE")]
    metrics_token_file: Option<PathBuf>,
    /// Serve /metrics beyond the own machine without TLS: everyone on the way can read it.
    #[arg(long)]
    metrics_plaintext_off_loopback: bool,
    /// Serve /metrics beyond the own machine without a token: all who reach it can read it.
    #[arg(long)]
    metrics_anonymous_off_loopback: bool,
    /// An OpenTelemetry collector to send spans of statements to, over OTLP/HTTP: http://HOST:4318, or https:// beyond
    /// the own machine.
    #[arg(long, value_name = "URL")]
    trace_endpoint: Option<String>,
    /// Share of the traces that begin here which are recorded, 0 to 1; callers decide about theirs [default: 0.01].
    #[arg(long, value_name = "SHARE")]
    trace_sample: Option<Decimal>,
    /// File with headers that the collector wants, `name: value` a line, for its owner only.
    #[arg(long, value_name = "FILE")]
    trace_headers_file: Option<PathBuf>,
    /// Authorities that sign the collector's certificate, in PEM; those the machine trusts when left out.
    #[arg(long, value_name = "FILE")]
    trace_ca: Option<PathBuf>,
    /// Send spans to another machine without TLS: everyone on the way can read groups and statements.
    #[arg(long)]
    trace_plaintext_off_loopback: bool,
    /// Listen for clients beyond the own machine.
    #[arg(long)]
    allow_remote: bool,
    /// Refuse MySQL's LOAD DATA LOCAL INFILE instead of passing it on.
    #[arg(long)]
    refuse_local_infile: bool,
}

/// What a statement inside a transaction does without tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WhileLocked {
    /// It runs and its group owes, up to --max-debt; beyond that it waits like others, except COMMIT and ROLLBACK.
    #[default]
    OweSome,
    /// It runs and its group owes, without limit: no holder of locks waits for tokens, and the cap may be exceeded.
    Owe,
    /// It waits like others.
    Wait,
}

/// A time with its unit, such as `10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Time(Duration);

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_span(text).map(|span| Self(Duration::from_micros(span.0))).map_err(|error| error.to_string())
    }
}

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A decimal as it is written, in a file with quotes or without.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "toml::Value")]
struct Decimal(String);

impl From<String> for Decimal {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<toml::Value> for Decimal {
    fn from(value: toml::Value) -> Self {
        match value {
            toml::Value::String(text) => Self(text),
            other => Self(other.to_string()),
        }
    }
}

impl Settings {
    /// Reads a file. An error names the line and never quotes it: it may hold a password.
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        let text = std::fs::read_to_string(path).map_err(CliError::file("read", path))?;
        Self::parse(&text).map_err(|message| CliError::Invalid(format!("{}: {message}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            format!("line {line}: {}", without_url(error.message().trim()))
        })
    }

    /// These settings, and those of the file where these say nothing. Upstreams and where they listen go together, and so
    /// do a collector and what proves who sends to it.
    pub(super) fn over(self, file: Self) -> Self {
        let list = |own: Vec<String>, other| if own.is_empty() { other } else { own };
        let (upstream, listen) = match (self.upstream.is_empty(), self.listen.is_empty()) {
            (true, true) => (file.upstream, file.listen),
            (true, false) => (file.upstream, self.listen),
            (false, _) => (self.upstream, self.listen),
        };
        let trace_headers = file.trace_headers_file.filter(|_| self.trace_endpoint.is_none());
        Self {
            upstream,
            listen,
            controller: list(self.controller, file.controller),
            controller_ca: self.controller_ca.or(file.controller_ca),
            controller_cert: self.controller_cert.or(file.controller_cert),
            controller_key: self.controller_key.or(file.controller_key),
            controller_token_file: self.controller_token_file.or(file.controller_token_file),
            identity: self.identity.or(file.identity),
            journal: self.journal.or(file.journal),
            max_wait: self.max_wait.or(file.max_wait),
            in_transaction: self.in_transaction.or(file.in_transaction),
            max_debt: self.max_debt.or(file.max_debt),
            admit_without_lease: self.admit_without_lease || file.admit_without_lease,
            admin: list(self.admin, file.admin),
            switcher: list(self.switcher, file.switcher),
            anybody_switches: self.anybody_switches || file.anybody_switches,
            threads: self.threads.or(file.threads),
            max_sessions: self.max_sessions.or(file.max_sessions),
            proxy_from: list(self.proxy_from, file.proxy_from),
            backlog: self.backlog.or(file.backlog),
            login_timeout: self.login_timeout.or(file.login_timeout),
            keepalive: self.keepalive.or(file.keepalive),
            kill_abandoned: self.kill_abandoned || file.kill_abandoned,
            grace: self.grace.or(file.grace),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            no_self_signed: self.no_self_signed || file.no_self_signed,
            upstream_ca: self.upstream_ca.or(file.upstream_ca),
            metrics: self.metrics.or(file.metrics),
            metrics_tls_cert: self.metrics_tls_cert.or(file.metrics_tls_cert),
            metrics_tls_key: self.metrics_tls_key.or(file.metrics_tls_key),
            metrics_token_file: self.metrics_token_file.or(file.metrics_token_file),
            metrics_plaintext_off_loopback: self.metrics_plaintext_off_loopback
                || file.metrics_plaintext_off_loopback,
            metrics_anonymous_off_loopback: self.metrics_anonymous_off_loopback
                || file.metrics_anonymous_off_loopback,
            trace_endpoint: self.trace_endpoint.or(file.trace_endpoint),
            trace_sample: self.trace_sample.or(file.trace_sample),
            trace_headers_file: self.trace_headers_file.or(trace_headers),
            trace_ca: self.trace_ca.or(file.trace_ca),
            trace_plaintext_off_loopback: self.trace_plaintext_off_loopback
                || file.trace_plaintext_off_loopback,
            allow_remote: self.allow_remote || file.allow_remote,
            refuse_local_infile: self.refuse_local_infile || file.refuse_local_infile,
        }
    }

    /// The gateway's settings; the controller is at `endpoint` when none is named, and reached by the files of `tls` and
    /// `token` where the settings name none. An error names all that is wrong.
    pub(super) fn config(
        self,
        endpoint: &str,
        tls: ClientFiles,
        token: Option<Token>,
    ) -> Result<Config, CliError> {
        let mut faults = Faults::default();
        let (metrics, traces) = (faults.page(&self), faults.traces(&self));
        let defaults = Config::default();
        let time = |time: Option<Time>, default| time.map_or(default, |Time(span)| span);
        let policy = Policy {
            max_wait: time(self.max_wait, defaults.policy.max_wait),
            in_transaction: match self.in_transaction.unwrap_or_default() {
                WhileLocked::OweSome => InTransaction::OweSome,
                WhileLocked::Owe => InTransaction::Owe,
                WhileLocked::Wait => InTransaction::Wait,
            },
            max_debt: time(self.max_debt, defaults.policy.max_debt),
            admit_without_lease: self.admit_without_lease,
            admins: faults.principals("admin", &self.admin),
            switchers: faults.principals("switcher", &self.switcher),
            anybody_switches: self.anybody_switches,
        };
        let threads = faults.in_range("threads", self.threads, MAX_THREADS);
        let sessions = faults.in_range("max-sessions", self.max_sessions, MAX_SESSIONS);
        let backlog = faults.in_range("backlog", self.backlog, u16::MAX);
        let keepalive = time(self.keepalive, defaults.keepalive);
        if !KEEPALIVE.contains(&keepalive) {
            faults.add(format!("keepalive: {keepalive:?} is out of range: 1s to 1h"));
        }
        let certificate = faults.pair("tls", self.tls_cert, self.tls_key);
        let certificate = certificate.map(|(chain, key)| Certificate { chain, key });
        let shown = faults.pair("controller", self.controller_cert, self.controller_key);
        let controller_tls = ClientFiles {
            authorities: self.controller_ca.or(tls.authorities),
            identity: shown.or(tls.identity),
        };
        let certified = || controller_tls.own_name().unwrap_or(defaults.identity);
        let identity = self.identity.unwrap_or_else(certified);
        let proxies = Networks::parse(self.proxy_from.iter().map(String::as_str));
        let config = Config {
            endpoints: if self.controller.is_empty() { endpoints::all(endpoint) } else { self.controller },
            controller_tls,
            controller_token: self.controller_token_file.map(Token::file).or(token),
            identity,
            journal: self.journal,
            listeners: faults.listeners(&self.upstream, &self.listen),
            policy,
            threads: threads.and_then(|threads| NonZeroUsize::new(usize::from(threads))),
            max_sessions: sessions
                .map_or(defaults.max_sessions, |most| usize::try_from(most).unwrap_or(usize::MAX)),
            proxies: faults.value(proxies).unwrap_or_default(),
            backlog: backlog.map_or(defaults.backlog, u32::from),
            login_timeout: time(self.login_timeout, defaults.login_timeout),
            keepalive,
            kill_abandoned: self.kill_abandoned,
            grace: time(self.grace, defaults.grace),
            certificate,
            self_signed: !self.no_self_signed,
            authorities: self.upstream_ca,
            metrics,
            traces,
            allow_remote: self.allow_remote,
            local_infile: !self.refuse_local_infile,
        };
        config.exposed().for_each(|exposed| faults.add(exposed));
        faults.none()?;
        Ok(config)
    }
}

/// What is wrong with settings.
#[derive(Debug, Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, fault: impl fmt::Display) {
        self.0.push(fault.to_string());
    }

    fn value<T>(&mut self, value: Result<T, impl fmt::Display>) -> Option<T> {
        value.map_err(|fault| self.add(fault)).ok()
    }

    /// A certificate and its key, which go together.
    fn pair(
        &mut self,
        of: &str,
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> Option<(PathBuf, PathBuf)> {
        if certificate.is_some() != key.is_some() {
            self.add(format!("{of}-cert and {of}-key go together; give both"));
        }
        certificate.zip(key)
    }

    /// The page of metrics, and what is said of it.
    fn page(&mut self, settings: &Settings) -> Option<MetricsPage> {
        let (chain, key) = (settings.metrics_tls_cert.clone(), settings.metrics_tls_key.clone());
        let own = self.pair("metrics-tls", chain, key);
        let token = settings.metrics_token_file.clone();
        if settings.metrics.is_none() && (own.is_some() || token.is_some()) {
            self.add(
                "metrics-tls-cert and metrics-token-file have no effect without metrics; give its address",
            );
        }
        Some(MetricsPage {
            listen: settings.metrics?,
            certificate: own.map(|(chain, key)| Certificate { chain, key }),
            token,
            plaintext_off_loopback: settings.metrics_plaintext_off_loopback,
            anonymous_off_loopback: settings.metrics_anonymous_off_loopback,
        })
    }

    /// Where spans are sent.
    fn traces(&mut self, settings: &Settings) -> Option<TraceSettings> {
        let written = Written {
            endpoint: settings.trace_endpoint.clone(),
            sample: settings.trace_sample.as_ref().map(|Decimal(text)| text.clone()),
            headers_file: settings.trace_headers_file.clone(),
            ca: settings.trace_ca.clone(),
            plaintext: settings.trace_plaintext_off_loopback,
        };
        self.value(written.check()).flatten()
    }

    fn principals(&mut self, flag: &str, names: &[String]) -> Principals {
        let parsed = Principals::parse(names.iter().map(String::as_str));
        self.value(parsed.map_err(|fault| format!("{flag}: {fault}"))).unwrap_or_default()
    }

    fn in_range<T>(&mut self, flag: &str, number: Option<T>, most: T) -> Option<T>
    where
        T: Copy + PartialOrd + From<u8> + fmt::Display,
    {
        let wrong = number.filter(|number| !(T::from(1)..=most).contains(number));
        wrong.inspect(|number| self.add(format!("{flag}: {number} is out of range: 1 to {most}")));
        number
    }

    fn listeners(&mut self, upstreams: &[String], listens: &[SocketAddr]) -> Vec<Listener> {
        if upstreams.is_empty() {
            self.add("no upstream; give --upstream postgres://host:5432, or name one in the file");
        }
        if listens.len() > upstreams.len() {
            let (listens, upstreams) = (listens.len(), upstreams.len());
            self.add(format!(
                "{listens} times --listen for {upstreams} --upstream; give at most one for each"
            ));
        }
        let listener = |(at, url): (usize, &String)| {
            let upstream = self.value(Upstream::parse(url))?;
            let default = SocketAddr::from((Ipv4Addr::LOCALHOST, Listener::default_port(upstream.protocol)));
            Some(Listener { listen: listens.get(at).copied().unwrap_or(default), upstream })
        };
        upstreams.iter().enumerate().filter_map(listener).collect()
    }

    /// The error that names all of them; several have a line each.
    fn none(self) -> Result<(), CliError> {
        match self.0.as_slice() {
            [] => Ok(()),
            [fault] => Err(CliError::Usage(fault.clone())),
            faults => Err(CliError::Invalid(listed("the settings", faults))),
        }
    }
}

/// A message that quotes something like a URL without what it quotes, which may have a password in it.
fn without_url(message: &str) -> String {
    let is_url = message.contains("://") || message.contains('@');
    let quoted = message.find(['"', '`']).zip(message.rfind(['"', '`']));
    match quoted.and_then(|(from, to)| message.get(..from).zip(message.get(to..)?.get(1..))) {
        Some((before, behind)) if is_url => format!("{before}..{behind}"),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        settings: Settings,
    }

    fn flags(words: &str) -> Settings {
        Flags::parse_from(["gateway"].into_iter().chain(words.split_whitespace())).settings
    }

    const FILE: &str = r#"
        upstream = ["postgres://db", "mysql://tidegate:secret@db:3307"]
        listen = ["127.0.0.1:1", "127.0.0.1:2"]
        controller = ["http://127.0.0.1:7420", "http://127.0.0.2:7420"]
        controller_ca = "controller-ca.pem"
        controller_cert = "node.pem"
        controller_key = "node-key.pem"
        controller_token_file = "gw.token"
        identity = "gw-1"
        journal = "/var/lib/tidegate"
        max_wait = "3s"
        in_transaction = "owe-some"
        max_debt = "2s"
        admit_without_lease = true
        admin = ["root", "ann@shop"]
        switcher = ["bob"]
        anybody_switches = true
        threads = 4
        max_sessions = 10
        proxy_from = ["10.0.0.0/8", "::1"]
        backlog = 1024
        login_timeout = "5s"
        keepalive = "30s"
        kill_abandoned = true
        grace = "1m"
        tls_cert = "cert.pem"
        tls_key = "key.pem"
        no_self_signed = true
        upstream_ca = "ca.pem"
        metrics = "127.0.0.1:7431"
        metrics_tls_cert = "page.pem"
        metrics_tls_key = "page-key.pem"
        metrics_token_file = "page.token"
        metrics_plaintext_off_loopback = true
        metrics_anonymous_off_loopback = true
        trace_endpoint = "https://otel.example"
        trace_sample = 0.5
        trace_headers_file = "otel.headers"
        trace_ca = "otel-ca.pem"
        trace_plaintext_off_loopback = true
        allow_remote = true
        refuse_local_infile = true
    "#;

    #[test]
    fn a_file_says_what_flags_say() {
        let flags = flags(
            "--upstream postgres://db --upstream mysql://tidegate:secret@db:3307 --listen 127.0.0.1:1 \
             --listen 127.0.0.1:2 --controller http://127.0.0.1:7420 --controller http://127.0.0.2:7420 \
             --controller-ca controller-ca.pem --controller-cert node.pem --controller-key node-key.pem --controller-token-file gw.token \
             --identity gw-1 --journal /var/lib/tidegate --max-wait 3s --in-transaction owe-some --max-debt 2s \
             --admit-without-lease --admin root,ann@shop --switcher bob --anybody-switches --threads 4 \
             --max-sessions 10 --login-timeout 5s --keepalive 30s --grace 1m --tls-cert cert.pem --tls-key key.pem \
             --proxy-from 10.0.0.0/8,::1 --backlog 1024 --kill-abandoned --no-self-signed --upstream-ca ca.pem --metrics 127.0.0.1:7431 \
             --metrics-tls-cert page.pem --metrics-tls-key page-key.pem --metrics-token-file page.token \
             --metrics-plaintext-off-loopback --metrics-anonymous-off-loopback --allow-remote --refuse-local-infile \
             --trace-endpoint https://otel.example --trace-sample 0.5 --trace-headers-file otel.headers \
             --trace-ca otel-ca.pem --trace-plaintext-off-loopback",
        );
        let file = Settings::parse(FILE).unwrap();
        assert_eq!(file, flags);
        assert_eq!(Settings::default().over(file.clone()), file);
        let config = file.config("http://127.0.0.1:9", ClientFiles::default(), None).unwrap();
        assert_eq!(config.listeners.len(), 2);
        assert_eq!((config.grace, config.max_sessions), (Duration::from_secs(60), 10));
        assert_eq!(config.keepalive, Duration::from_secs(30));
        assert_eq!((config.backlog, config.kill_abandoned), (1_024, true));
        assert_eq!(config.proxies, Networks::parse(["10.0.0.0/8", "::1"]).unwrap());
        let debt = (config.policy.in_transaction, config.policy.max_debt);
        assert_eq!(debt, (InTransaction::OweSome, Duration::from_secs(2)));
        assert!(!config.self_signed && Config::default().self_signed);
        assert_eq!(config.controller_token, Some(Token::file("gw.token")));
        let traces = config.traces.unwrap();
        assert_eq!(
            (traces.share.to_string(), traces.headers_file),
            ("0.5".to_owned(), Some("otel.headers".into()))
        );
    }

    #[test]
    fn flags_go_over_the_file_and_the_rest_has_defaults() {
        let file = Settings::parse(FILE).unwrap();
        let both = flags("--upstream postgres://other --max-wait 1s --admin carl").over(file);
        let config = both.config("", ClientFiles::default(), None).unwrap();
        assert_eq!(config.listeners[0].listen, "127.0.0.1:6432".parse().unwrap());
        assert_eq!((config.listeners.len(), config.policy.max_wait), (1, Duration::from_secs(1)));
        assert!(config.policy.admins.contains("", "carl") && !config.policy.admins.contains("", "root"));
        assert_eq!(config.identity, "gw-1");
        let other =
            flags("--upstream mysql://db").config("", ClientFiles::default(), Some(Token::text("tdg_1.0")));
        assert_eq!(other.unwrap().controller_token, Some(Token::text("tdg_1.0")));
        let plain = flags("--upstream mysql://db")
            .config("http://127.0.0.1:9", ClientFiles::default(), None)
            .unwrap();
        let expected = Config::default();
        assert_eq!(plain.listeners[0].listen, "127.0.0.1:6306".parse().unwrap());
        assert_eq!((plain.max_sessions, plain.identity), (expected.max_sessions, expected.identity));
        assert_eq!((plain.grace, plain.endpoints), (expected.grace, vec!["http://127.0.0.1:9".to_owned()]));
    }

    /// A file in which each setting that is more than a switch has another value.
    const OTHER: &str = r#"
        upstream = ["postgres://other"]
        listen = ["127.0.0.1:3"]
        controller = ["http://127.0.0.3:7420"]
        controller_ca = "other-controller-ca.pem"
        controller_cert = "other-node.pem"
        controller_key = "other-node-key.pem"
        controller_token_file = "other-gw.token"
        identity = "gw-2"
        journal = "/var/lib/other"
        max_wait = "4s"
        in_transaction = "wait"
        max_debt = "3s"
        admin = ["carl"]
        switcher = ["dan"]
        threads = 5
        max_sessions = 11
        proxy_from = ["192.168.0.0/16"]
        backlog = 2048
        login_timeout = "6s"
        keepalive = "31s"
        grace = "2m"
        tls_cert = "other-cert.pem"
        tls_key = "other-key.pem"
        upstream_ca = "other-ca.pem"
        metrics = "127.0.0.1:7432"
        metrics_tls_cert = "other-page.pem"
        metrics_tls_key = "other-page-key.pem"
        metrics_token_file = "other-page.token"
        trace_endpoint = "https://other.example"
        trace_sample = 0.25
        trace_headers_file = "other.headers"
        trace_ca = "other-otel-ca.pem"
    "#;

    #[test]
    fn a_flag_goes_over_the_file_whichever_it_is() {
        let tables = [FILE, OTHER].map(|text| text.parse::<toml::Table>().unwrap());
        for (key, value) in tables[0].iter().filter(|(_, value)| !value.is_bool()) {
            assert!(tables[1].get(key).is_some_and(|other| other != value), "{key}");
        }
        let [flags, file] = [FILE, OTHER].map(|text| Settings::parse(text).unwrap());
        assert_eq!(flags.clone().over(file), flags);
    }

    /// Where a database is and where its clients connect go together, and so do a collector and its headers; each other
    /// setting stands by itself.
    #[test]
    fn one_flag_over_a_file_changes_its_own_setting_only() {
        let [flags, file] = [FILE, OTHER].map(|text| text.parse::<toml::Table>().unwrap());
        let read = |table: &toml::Table| Settings::parse(&table.to_string()).unwrap();
        let changes_more = |(key, value): &(&String, &toml::Value)| {
            let flag = toml::Table::from_iter([((*key).clone(), (*value).clone())]);
            let mut expected = file.clone();
            expected.extend(flag.clone());
            read(&flag).over(read(&file)) != read(&expected)
        };
        let wrong: Vec<_> = flags.iter().filter(changes_more).map(|(key, _)| key.as_str()).collect();
        assert_eq!(wrong, ["trace_endpoint", "upstream"]);
        let over = |flags: &str| Settings::parse(flags).unwrap().over(Settings::parse(FILE).unwrap());
        let elsewhere = "trace_endpoint = \"https://elsewhere\"\n";
        assert_eq!(
            over(elsewhere).trace_headers_file,
            None,
            "what proves who sends is not for another collector"
        );
        let own = over(&format!("{elsewhere}trace_headers_file = \"own\"")).trace_headers_file;
        assert_eq!((own, over("").trace_headers_file), (Some("own".into()), Some("otel.headers".into())));
    }

    /// What an operator's environment holds is not shown in place of what the gateway's own settings name.
    #[test]
    fn each_setting_reaches_the_gateway_and_goes_over_the_options_of_every_command() {
        let pair = |chain: &str, key: &str| (PathBuf::from(chain), PathBuf::from(key));
        let certificate = |chain, key| {
            let (chain, key) = pair(chain, key);
            Some(Certificate { chain, key })
        };
        let ours = ClientFiles {
            authorities: Some("ann-ca.pem".into()),
            identity: Some(pair("ann.pem", "ann-key.pem")),
        };
        let token = Token::text("tdg_1.0");
        let config = |settings: Settings| {
            settings
                .config("http://127.0.0.1:8, http://127.0.0.1:9", ours.clone(), Some(token.clone()))
                .unwrap()
        };
        let settings = || Settings::parse(FILE).unwrap();
        let listener = |url, listen: &str| Listener {
            listen: listen.parse().unwrap(),
            upstream: Upstream::parse(url).unwrap(),
        };
        let expected = Config {
            endpoints: vec!["http://127.0.0.1:7420".to_owned(), "http://127.0.0.2:7420".to_owned()],
            controller_tls: ClientFiles {
                authorities: Some("controller-ca.pem".into()),
                identity: Some(pair("node.pem", "node-key.pem")),
            },
            controller_token: Some(Token::file("gw.token")),
            identity: "gw-1".to_owned(),
            journal: Some("/var/lib/tidegate".into()),
            listeners: vec![
                listener("postgres://db", "127.0.0.1:1"),
                listener("mysql://tidegate:secret@db:3307", "127.0.0.1:2"),
            ],
            policy: Policy {
                max_wait: Duration::from_secs(3),
                in_transaction: InTransaction::OweSome,
                max_debt: Duration::from_secs(2),
                admit_without_lease: true,
                admins: Principals::parse(["root", "ann@shop"]).unwrap(),
                switchers: Principals::parse(["bob"]).unwrap(),
                anybody_switches: true,
            },
            threads: NonZeroUsize::new(4),
            max_sessions: 10,
            proxies: Networks::parse(["10.0.0.0/8", "::1"]).unwrap(),
            backlog: 1_024,
            login_timeout: Duration::from_secs(5),
            keepalive: Duration::from_secs(30),
            kill_abandoned: true,
            grace: Duration::from_secs(60),
            certificate: certificate("cert.pem", "key.pem"),
            self_signed: false,
            authorities: Some("ca.pem".into()),
            metrics: Some(MetricsPage {
                listen: "127.0.0.1:7431".parse().unwrap(),
                certificate: certificate("page.pem", "page-key.pem"),
                token: Some("page.token".into()),
                plaintext_off_loopback: true,
                anonymous_off_loopback: true,
            }),
            traces: Faults::default().traces(&settings()),
            allow_remote: true,
            local_infile: false,
        };
        let named = config(settings());
        assert_eq!(format!("{named:#?}"), format!("{expected:#?}"));
        assert_eq!(named.controller_token, expected.controller_token);
        assert!(named.traces.is_some_and(|traces| traces.plaintext && traces.authorities.is_some()));
        let unnamed = config(flags("--upstream mysql://db"));
        assert_eq!(unnamed.endpoints, ["http://127.0.0.1:8", "http://127.0.0.1:9"]);
        assert_eq!(format!("{:?}", unnamed.controller_tls), format!("{ours:?}"));
        assert_eq!(unnamed.controller_token, Some(token.clone()));
        for (word, expected) in [("owe", InTransaction::Owe), ("wait", InTransaction::Wait)] {
            let chosen = config(flags(&format!("--upstream mysql://db --in-transaction {word}")));
            assert_eq!(chosen.policy.in_transaction, expected);
        }
    }

    #[test]
    fn a_number_at_its_bound_is_taken_and_one_beyond_is_not() {
        for (flag, taken, refused) in [
            ("threads", ["1", "1024"], ["0", "1025"]),
            ("max-sessions", ["1", "1000000"], ["0", "1000001"]),
            ("backlog", ["1", "65535"], ["0", "0"]),
            ("keepalive", ["1s", "1h"], ["999ms", "3601s"]),
        ] {
            let config = |value| {
                let settings = flags(&format!("--upstream mysql://db --{flag} {value}"));
                settings.config("", ClientFiles::default(), None)
            };
            for value in taken {
                assert!(config(value).is_ok(), "{flag} {value}");
            }
            for value in refused {
                assert!(config(value).unwrap_err().to_string().starts_with(flag), "{flag} {value}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_no_line_is_quoted() {
        for (text, expected) in [
            ("\nthread = 4", "line 2: unknown field `thread`"),
            ("max_wait = 3", "line 1: "),
            ("\n\ngrace = \"soon\"", "line 3: "),
            ("listen = [\"here\"]", "line 1: "),
            ("in_transaction = \"never\"", "line 1: unknown variant `never`"),
            ("upstream = [\"mysql://root:secret@db]", "line 1: "),
            (
                "\nupstream = \"mysql://root:secret@db\"",
                "line 2: invalid type: string .., expected a sequence",
            ),
            ("upstreams = [\"mysql://root:secret@db\"]", "line 1: unknown field `upstreams`"),
            ("\"mysql://root:secret@db\" = 1", "line 1: unknown field .."),
        ] {
            let error = Settings::parse(text).unwrap_err();
            assert!(error.starts_with(expected) && !error.contains("secret"), "{text}: {error}");
        }
        let refused =
            |words: &str| flags(words).config("", ClientFiles::default(), None).unwrap_err().to_string();
        assert!(refused("").contains("no upstream"));
        assert!(
            refused("--upstream postgres://a --threads 0").contains("threads: 0 is out of range: 1 to 1024")
        );
        assert!(refused("--upstream postgres://a --max-sessions 2000000").contains("1 to 1000000"));
        assert!(
            refused("--upstream postgres://a --keepalive 10ms").contains("10ms is out of range: 1s to 1h")
        );
        assert!(refused("--upstream postgres://a --tls-cert c").contains("give both"));
        assert!(
            refused("--upstream postgres://a --metrics 127.0.0.1:1 --metrics-tls-key k")
                .contains("metrics-tls-key go")
        );
        assert!(
            refused("--upstream postgres://a --metrics-token-file t").contains("no effect without metrics")
        );
        assert!(
            refused("--upstream postgres://a --trace-sample 0.5")
                .contains("no effect without trace_endpoint")
        );
        let shared = refused("--upstream postgres://a --trace-endpoint http://otel.example/s3cret");
        assert!(shared.contains("trace_plaintext_off_loopback") && !shared.contains("s3cret"), "{shared}");
        assert!(refused("--upstream postgres://a --backlog 0").contains("1 to 65535"));
        assert!(refused("--upstream postgres://a --proxy-from lb").contains("\"lb\" is no address"));
        assert!(
            refused("--upstream postgres://a --listen 127.0.0.1:1 --listen 127.0.0.1:2").contains("2 times")
        );
        let several = refused(
            "--upstream redis://a --upstream postgres://b --listen 127.0.0.1:1 --listen 0.0.0.0:1 --threads 0 \
             --admin @shop --metrics 0.0.0.0:2",
        );
        let lines: Vec<&str> = several.lines().collect();
        assert!(lines.len() == 6 && lines[0].ends_with("5 errors in the settings:"), "{several}");
        let named = ["admin: ", "threads: 0", "redis", "0.0.0.0:1", "0.0.0.0:2"];
        for (line, named) in lines[1..].iter().zip(named) {
            assert!(line.contains(named), "{line} without {named}");
        }
    }
}
