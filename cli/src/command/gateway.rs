//! `tidegate gateway`: a SQL gateway in front of PostgreSQL and MySQL servers, until it is told to stop.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate_controller::quantity::parse_span;
use tidegate_gateway::{
    Certificate, Config, Gateway, InTransaction, Listener, Policy, Principals, Upstream,
    raise_descriptor_limit,
};

use super::controller::{LogFormat, start_log};
use crate::args::Global;
use crate::error::CliError;
use crate::output::print;
use crate::stop;

/// How to run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate gateway --upstream postgres://127.0.0.1:5432\n  \
    psql 'host=127.0.0.1 port=6432 dbname=shop user=ann'        an ordinary client, metered and throttled\n  \
    tidegate gateway --upstream postgres://db --listen 127.0.0.1:6432 \\\n    \
    --upstream 'mysql://tidegate:secret@db' --listen 127.0.0.1:6306 --admin root\n\n\
    A login is charged to the group that its user and database are bound to:\n  \
    tidegate bind add reports --tenant shop --user ann\n\n\
    Admins define groups over the same connection: CREATE RESOURCE GROUP, ALTER USER .. RESOURCE GROUP,\n\
    SELECT * FROM tidegate.statements. See docs/gateway.md.\n\n\
    Log filter: TIDEGATE_LOG, such as `debug`.")]
pub(crate) struct GatewayArgs {
    /// A database: postgres://host:port or mysql://user:password@host:port; add ?tls=require or ?tls=verify-full.
    #[arg(long, required = true, value_name = "URL")]
    upstream: Vec<String>,
    /// Where clients of the upstream in the same place connect; 127.0.0.1:6432 for PostgreSQL and :6306 for MySQL.
    #[arg(long, value_name = "ADDR")]
    listen: Vec<SocketAddr>,
    /// Controllers; the endpoint of the other commands when left out.
    #[arg(long, value_name = "URL")]
    controller: Vec<String>,
    /// Identity of this gateway, the same from start to start and no other process's.
    #[arg(long, value_name = "NAME", default_value = "gateway")]
    identity: String,
    /// Keep consumption in a file in this directory, so that it survives a crash.
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Longest wait of a statement for admission.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    max_wait: Duration,
    /// Statements inside a transaction when their group has no tokens: run and owe, or wait like others.
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    in_transaction: WhileLocked,
    /// Let statements run while no lease can be had from a controller; otherwise they wait and fail.
    #[arg(long)]
    admit_without_lease: bool,
    /// Who may define groups over SQL: users, or user@database; separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "USER")]
    admin: Vec<String>,
    /// Who may choose a group by SET RESOURCE GROUP or a hint, besides admins.
    #[arg(long, value_delimiter = ',', value_name = "USER")]
    switcher: Vec<String>,
    /// Anybody may choose a group.
    #[arg(long)]
    anybody_switches: bool,
    /// Threads that serve sessions; one for each core when left out.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    threads: Option<u16>,
    /// Sessions at once.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_sessions: u32,
    /// From the first byte of a connection to a login.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    login_timeout: Duration,
    /// How long statements may run on at shutdown.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    grace: Duration,
    /// Certificate chain for clients that want TLS, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities for tls=verify-full, in PEM; those the machine trusts when left out.
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
    /// Serve /metrics, for Prometheus, here.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Listen beyond the own machine.
    #[arg(long)]
    allow_remote: bool,
    /// Fail MySQL's LOAD DATA LOCAL INFILE instead of passing it.
    #[arg(long)]
    refuse_local_infile: bool,
    /// Shape of the log, which goes to the standard error.
    #[arg(long, value_enum, default_value_t, value_name = "SHAPE")]
    log_format: LogFormat,
    /// End with the standard input, as children of tests do.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// What a statement inside a transaction does without tokens.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum WhileLocked {
    /// It runs and its group owes, since others wait for its locks.
    #[default]
    Owe,
    /// It waits.
    Wait,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_span(text).map(|span| Duration::from_micros(span.0)).map_err(|error| error.to_string())
}

/// Runs the command.
pub(crate) async fn run(args: GatewayArgs, global: &Global) -> Result<(), CliError> {
    let (log_format, until_stdin_ends) = (args.log_format, args.until_stdin_ends);
    let config = config(args, global)?;
    start_log(log_format)?;
    raise_descriptor_limit();
    let upstreams: Vec<Upstream> =
        config.listeners.iter().map(|listener| listener.upstream.clone()).collect();
    let gateway = Gateway::start(config).await.map_err(|error| CliError::Refused(error.to_string()))?;
    for (address, upstream) in gateway.addresses.iter().zip(&upstreams) {
        print(&format!("{address} to {upstream}"))?;
    }
    if let Some(address) = gateway.metrics_address {
        print(&format!("http://{address}/metrics"))?;
    }
    stop::requested(until_stdin_ends).await?;
    let unconfirmed = gateway.shutdown().await;
    if unconfirmed.is_empty() {
        return Ok(());
    }
    let reports: Vec<String> =
        unconfirmed.iter().map(|report| format!("{} in group {}", report.ru, report.group)).collect();
    let what = "the controller did not confirm".to_owned();
    Err(CliError::Process { what, reason: format!("{}; it may not be accounted for", reports.join(", ")) })
}

fn config(args: GatewayArgs, global: &Global) -> Result<Config, CliError> {
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    if args.listen.len() > args.upstream.len() {
        let (listens, upstreams) = (args.listen.len(), args.upstream.len());
        let message =
            format!("{listens} times --listen for {upstreams} --upstream; give at most one for each");
        return Err(CliError::Usage(message));
    }
    let mut listeners = Vec::new();
    for (at, url) in args.upstream.iter().enumerate() {
        let upstream = Upstream::parse(url).map_err(|error| usage(&error))?;
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, Listener::default_port(upstream.protocol)));
        listeners.push(Listener { listen: args.listen.get(at).copied().unwrap_or(default), upstream });
    }
    let principals =
        |names: &[String]| Principals::parse(names.iter().map(String::as_str)).map_err(|error| usage(&error));
    let policy = Policy {
        max_wait: args.max_wait,
        in_transaction: match args.in_transaction {
            WhileLocked::Owe => InTransaction::Owe,
            WhileLocked::Wait => InTransaction::Wait,
        },
        admit_without_lease: args.admit_without_lease,
        admins: principals(&args.admin)?,
        switchers: principals(&args.switcher)?,
        anybody_switches: args.anybody_switches,
    };
    let endpoints = if args.controller.is_empty() { vec![global.endpoint.clone()] } else { args.controller };
    let certificate = args.tls_cert.zip(args.tls_key).map(|(chain, key)| Certificate { chain, key });
    Ok(Config {
        endpoints,
        identity: args.identity,
        journal: args.journal,
        listeners,
        policy,
        threads: args.threads.and_then(|threads| NonZeroUsize::new(usize::from(threads))),
        max_sessions: usize::try_from(args.max_sessions).unwrap_or(usize::MAX),
        login_timeout: args.login_timeout,
        grace: args.grace,
        certificate,
        authorities: args.upstream_ca,
        metrics: args.metrics,
        allow_remote: args.allow_remote,
        local_infile: !args.refuse_local_infile,
    })
}
