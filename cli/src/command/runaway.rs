//! `tidegate runaway`: which statements were convicted.

use clap::Subcommand;
use tidegate_proto::v1;

use super::of_group::OfGroup;
use crate::admin::Admin;
use crate::args::Global;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;
use crate::view::RunawayView;

/// What to do with records of runaways.
#[derive(Debug, Subcommand)]
pub(crate) enum RunawayCommand {
    /// List convicted statements, newest first. Equal ones within ten minutes are one line.
    #[command(after_help = "Examples:\n  \
        tidegate runaway list\n  \
        tidegate runaway list shop --limit 20")]
    List {
        #[command(flatten)]
        group: OfGroup,
        /// How many records.
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
        #[command(flatten)]
        follow: Follow,
    },
}

/// Runs the command.
pub(crate) async fn run(command: RunawayCommand, global: &Global) -> Result<(), CliError> {
    let RunawayCommand::List { group, limit, follow } = command;
    let read = async |admin: &Admin| {
        let request = v1::ListRunawaysRequest { group: group.name(), limit };
        let reply = admin.statements().list_runaways(request).await.map_err(admin.failed())?.into_inner();
        Ok(reply.runaways.into_iter().map(RunawayView::from).collect::<Vec<_>>())
    };
    follow::show(global, follow, read).await
}

impl Shown for Vec<RunawayView> {
    fn page(&self) -> Page {
        RunawayView::table(self).into()
    }

    /// Fingerprints, as `watch add --similar-to` takes them.
    fn names(&self) -> Vec<String> {
        self.iter().map(|view| view.fingerprint.clone()).collect()
    }
}
