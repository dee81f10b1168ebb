//! `tidegate gateway`: a SQL gateway in front of PostgreSQL and MySQL servers, until a signal stops it.

mod settings;

use std::path::PathBuf;

use clap::Args;
use tidegate_gateway::{Gateway, StartError, Upstream, raise_descriptor_limit};

use super::controller::{LogFormat, start_log};
use crate::args::Global;
use crate::error::CliError;
use crate::output::{print, unless_unread};
use crate::stop;
use crate::unconfirmed;
use settings::Settings;

/// How to run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate gateway --upstream postgres://127.0.0.1:5432\n  \
    psql 'host=127.0.0.1 port=6432 dbname=shop user=ann'     an ordinary client, now throttled\n  \
    tidegate gateway --upstream postgres://db --listen 127.0.0.1:6432 \\\n    \
    --upstream 'mysql://tidegate@db' --listen 127.0.0.1:6306 --admin root\n  \
    tidegate gateway --config /etc/tidegate-gateway.toml\n\n\
    The file has the names of the flags, with underscores; a password belongs there, as other users\n\
    of the machine can read flags:\n  \
    upstream = [\"mysql://tidegate:secret@db\"]\n  listen = [\"127.0.0.1:6306\"]\n  max_wait = \"5s\"\n\n\
    A login is charged to the group that its user and database are bound to:\n  \
    tidegate bind add reports --tenant shop --user ann\n\n\
    Admins define groups over the same connection: CREATE RESOURCE GROUP, ALTER USER .. RESOURCE GROUP,\n\
    SELECT * FROM tidegate.statements. See docs/gateway.md.\n\n\
    Log filter: TIDEGATE_LOG, such as `debug`.")]
pub(crate) struct GatewayArgs {
    /// Settings, in TOML: the flags below, with underscores. Flags override the file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Shape of the log, which goes to the standard error.
    #[arg(long, value_enum, default_value_t, value_name = "SHAPE")]
    log_format: LogFormat,
    /// End with the standard input, as children of tests do.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// Runs the command.
pub(crate) async fn run(args: GatewayArgs, global: &Global) -> Result<(), CliError> {
    let file = args.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
    let config = args.settings.over(file).config(&global.endpoint, global.tls(), global.token())?;
    start_log(args.log_format)?;
    raise_descriptor_limit();
    if let Some(journal) = &config.journal {
        std::fs::create_dir_all(journal).map_err(CliError::file("make the directory", journal))?;
    }
    let upstreams: Vec<Upstream> =
        config.listeners.iter().map(|listener| listener.upstream.clone()).collect();
    let has_journal = config.journal.is_some();
    let is_secure = config.metrics.as_ref().is_some_and(|page| page.certificate.is_some());
    let scheme = if is_secure { "https" } else { "http" };
    let gateway = Gateway::start(config).await.map_err(refused)?;
    for (address, upstream) in gateway.addresses.iter().zip(&upstreams) {
        unless_unread(print(&format!("{address} to {upstream}")))?;
    }
    if let Some(address) = gateway.metrics_address {
        unless_unread(print(&format!("{scheme}://{address}/metrics")))?;
    }
    stop::requested(args.until_stdin_ends).await?;
    let left = gateway.shutdown().await;
    let reports: Vec<String> =
        left.iter().map(|report| format!("{} in group {}", report.ru, report.group)).collect();
    unconfirmed::check(&reports, has_journal)
}

/// Settings that no gateway can have are a mistake in how it was called.
fn refused(error: StartError) -> CliError {
    match error {
        StartError::NoListener | StartError::Remote { .. } | StartError::Page { .. } => {
            CliError::Invalid(error.to_string())
        }
        StartError::Client(error) => CliError::Connect(error),
        StartError::Listen { .. }
        | StartError::Tls(_)
        | StartError::PageToken(_)
        | StartError::Traces(_)
        | StartError::Threads(_) => CliError::Refused(error.to_string()),
    }
}
