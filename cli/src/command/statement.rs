//! `tidegate statement`: what statements cost.

use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use tidegate_controller::statements::Order;
use tidegate_proto::v1;

use crate::args::Global;
use crate::clock::utc_text;
use crate::error::CliError;
use crate::output::note;
use crate::view::StatementView;

/// What to do with the statistics of statements.
#[derive(Debug, Subcommand)]
pub(crate) enum StatementCommand {
    /// List statements by what they cost, over all gateways.
    #[command(after_help = "Examples:\n  \
        tidegate statement list\n  \
        tidegate statement list --group shop --order average_ru --limit 20")]
    List {
        /// Only of this group.
        #[arg(long, default_value = "", hide_default_value = true)]
        group: String,
        /// Most of this first.
        #[arg(long, value_name = "WHAT", default_value = "ru", value_parser = PossibleValuesParser::new(Order::NAMES))]
        order: String,
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Start counting anew.
    Reset {
        /// Only this group.
        #[arg(long, default_value = "", hide_default_value = true)]
        group: String,
    },
}

#[derive(Serialize)]
struct ListView {
    rows: Vec<StatementView>,
    total: u64,
    evicted: u64,
    since_unix_ms: u64,
}

#[derive(Serialize)]
struct ResetView {
    removed: u64,
}

/// Runs the command.
pub(crate) async fn run(command: StatementCommand, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    match command {
        StatementCommand::List { group, order, limit } => {
            let request = v1::ListStatementsRequest { group, order, limit };
            let reply = admin.statements().list_statements(request).await.map_err(admin.failed())?;
            list(reply.into_inner(), global)
        }
        StatementCommand::Reset { group } => {
            let request = v1::ResetStatementsRequest { group };
            let reply = admin.statements().reset_statements(request).await.map_err(admin.failed())?;
            let view = ResetView { removed: reply.into_inner().removed };
            global.output.show(&view, || format!("{} statements forgotten", view.removed))
        }
    }
}

fn list(reply: v1::ListStatementsReply, global: &Global) -> Result<(), CliError> {
    let view = ListView {
        rows: reply.rows.into_iter().map(Into::into).collect(),
        total: reply.total,
        evicted: reply.evicted,
        since_unix_ms: reply.since_unix_ms,
    };
    global.output.show(&view, || StatementView::table(&view.rows))?;
    note(&format!(
        "{} of {} statements since {}; {} made room for others",
        view.rows.len(),
        view.total,
        utc_text(view.since_unix_ms),
        view.evicted
    ));
    Ok(())
}
