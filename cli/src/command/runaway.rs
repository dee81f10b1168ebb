//! `tidegate runaway`: which statements were convicted.

use clap::Subcommand;
use tidegate_proto::v1;

use crate::args::Global;
use crate::error::CliError;
use crate::view::RunawayView;

/// What to do with records of runaways.
#[derive(Debug, Subcommand)]
pub(crate) enum RunawayCommand {
    /// List convicted statements, newest first. Equal ones within ten minutes are one line.
    #[command(after_help = "Examples:\n  \
        tidegate runaway list\n  \
        tidegate runaway list --group shop --limit 20")]
    List {
        /// Only of this group.
        #[arg(long, default_value = "", hide_default_value = true)]
        group: String,
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
}

/// Runs the command.
pub(crate) async fn run(command: RunawayCommand, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    let RunawayCommand::List { group, limit } = command;
    let request = v1::ListRunawaysRequest { group, limit };
    let reply = admin.statements().list_runaways(request).await.map_err(admin.failed())?.into_inner();
    let views: Vec<RunawayView> = reply.runaways.into_iter().map(Into::into).collect();
    global.output.show(&views, || RunawayView::table(&views))
}
