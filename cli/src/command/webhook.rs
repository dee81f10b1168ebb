//! `tidegate webhook`: those who are told of alarms.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use tidegate_controller::Config;
use tidegate_controller::alarms::{Webhook, try_out};
use tokio::time::Instant;

use crate::args::Global;
use crate::error::{CliError, listed};
use crate::output::unless_unread;
use crate::table::{Column, Table};

/// What to do with webhooks.
#[derive(Debug, Subcommand)]
pub(crate) enum WebhookCommand {
    /// Send webhooks of a controller's settings one message that says that it is a test, and show what they answer.
    #[command(after_help = "Examples:\n  tidegate webhook test --config /etc/tidegate.toml\n  \
        tidegate webhook test ops --config /etc/tidegate.toml\n\n\
        Run it where the controller runs, as its user: it reads the secrets, and connects, as the controller does. It \
        needs no controller.")]
    Test(TestArgs),
}

/// Which webhooks.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Their names [default: all].
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// The settings of the controller, in TOML.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// What came of one.
#[derive(Serialize)]
struct Tried {
    name: String,
    /// Where it is, without its path.
    host: String,
    delivered: bool,
    took_ms: u64,
    /// Why it was not delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Runs the command.
pub(crate) async fn run(command: WebhookCommand, global: &Global) -> Result<(), CliError> {
    let WebhookCommand::Test(args) = command;
    let mut tried = Vec::new();
    for webhook in chosen(&args)? {
        tried.push(attempt(&webhook).await);
    }
    let names = || tried.iter().map(|one| one.name.clone()).collect();
    unless_unread(global.output.list(&tried, names, || table(&tried)))?;
    let failed: Vec<&str> = tried.iter().filter(|one| !one.delivered).map(|one| one.name.as_str()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(CliError::Refused(format!("not delivered: {}; the table says why", failed.join(", "))))
}

/// The webhooks that are named, or all.
fn chosen(args: &TestArgs) -> Result<Vec<Webhook>, CliError> {
    let text = std::fs::read_to_string(&args.config).map_err(CliError::file("read", &args.config))?;
    let origin = args.config.display().to_string();
    let config = Config::parse(&text).map_err(|errors| CliError::Invalid(listed(&origin, &errors)))?;
    let all = config.alarms.webhooks;
    let known = || all.iter().map(|webhook| webhook.name.as_str()).collect::<Vec<_>>().join(", ");
    if all.is_empty() {
        return Err(CliError::Invalid(format!("{origin} has no [[webhook]]; docs/alarms.md shows one")));
    }
    if let Some(name) = args.names.iter().find(|name| all.iter().all(|webhook| webhook.name != **name)) {
        return Err(CliError::Invalid(format!("{origin} has no webhook {name:?}; it has {}", known())));
    }
    let is_chosen = |webhook: &Webhook| args.names.is_empty() || args.names.contains(&webhook.name);
    Ok(all.into_iter().filter(is_chosen).collect())
}

async fn attempt(webhook: &Webhook) -> Tried {
    let began = Instant::now();
    let reason = try_out(webhook).await.err();
    Tried {
        name: webhook.name.clone(),
        host: webhook.url.to_string(),
        delivered: reason.is_none(),
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        reason,
    }
}

fn table(tried: &[Tried]) -> Table {
    let columns =
        [Column::word("WEBHOOK"), Column::word("HOST"), Column::number("ms"), Column::prose("RESULT")];
    let mut table = Table::new(columns);
    for one in tried {
        let result = one.reason.clone().unwrap_or_else(|| "delivered".to_owned());
        table.row([one.name.clone(), one.host.clone(), one.took_ms.to_string(), result]);
    }
    table
}
