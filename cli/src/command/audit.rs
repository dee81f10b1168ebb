//! `tidegate audit`: who changed what.

use clap::Args;
use tidegate_proto::v1;

use super::of_group::OfGroup;
use crate::admin::Admin;
use crate::args::Global;
use crate::clock::utc_text;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;
use crate::table::{Column, Table};
use crate::view::AuditView;

/// Which entries.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tidegate audit\n  tidegate audit shop\n  \
    tidegate audit --limit 20 --before 100")]
pub(crate) struct AuditArgs {
    /// That of a group is who made, altered and deleted it, whether it is still there.
    #[command(flatten)]
    group: OfGroup,
    /// How many entries, newest first.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Only entries older than this id.
    #[arg(long, value_name = "ID", default_value_t = 0, hide_default_value = true)]
    before: u64,
    #[command(flatten)]
    follow: Follow,
}

/// Runs the command.
pub(crate) async fn run(args: AuditArgs, global: &Global) -> Result<(), CliError> {
    let read = async |admin: &Admin| {
        let request =
            v1::AuditLogRequest { limit: args.limit, before_id: args.before, group: args.group.name() };
        let reply = admin.calls().audit_log(request).await.map_err(admin.failed())?.into_inner();
        Ok(reply.entries.into_iter().map(AuditView::from).collect::<Vec<_>>())
    };
    follow::show(global, args.follow, read).await
}

impl Shown for Vec<AuditView> {
    fn page(&self) -> Page {
        let mut table = Table::new([
            Column::number("ID").leaves(3),
            Column::word("TIME (UTC)").leaves(2),
            Column::text("ACTOR").leaves(1),
            Column::word("ACTION"),
            Column::name("SUBJECT"),
            Column::text("CHANGE"),
        ]);
        for view in self {
            table.row([
                view.id.to_string(),
                utc_text(view.unix_ms),
                view.who(),
                view.action.clone(),
                view.subject.clone(),
                view.difference(),
            ]);
        }
        table.into()
    }

    fn names(&self) -> Vec<String> {
        self.iter().map(|view| view.id.to_string()).collect()
    }
}
