//! `tidegate statement`: what statements cost.

use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use tidegate_controller::statements::{Order, Range};
use tidegate_proto::v1;

use super::of_group::OfGroup;
use crate::admin::Admin;
use crate::args::Global;
use crate::clock::utc_text;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;
use crate::view::StatementView;

/// What to do with the statistics of statements.
#[derive(Debug, Subcommand)]
pub(crate) enum StatementCommand {
    /// List statements by what they cost, over all gateways.
    #[command(after_help = "Examples:\n  \
        tidegate statement list\n  \
        tidegate statement list shop --order average_ru --limit 20\n  \
        tidegate statement list --last 5m --watch")]
    List {
        #[command(flatten)]
        group: OfGroup,
        /// Most of this first.
        #[arg(long, value_name = "WHAT", default_value = "ru", value_parser = PossibleValuesParser::new(Order::NAMES))]
        order: String,
        /// How many statements.
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
        /// Only what gateways reported in this time, by whole minutes, or hours for a day; without it, all since the
        /// controller started or the last reset.
        #[arg(long, value_name = "TIME", value_parser = PossibleValuesParser::new(Range::NAMES))]
        last: Option<String>,
        #[command(flatten)]
        follow: Follow,
    },
    /// Reset the counts.
    Reset {
        #[command(flatten)]
        group: OfGroup,
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
    match command {
        StatementCommand::List { group, order, limit, last, follow } => {
            let last = last.unwrap_or_default();
            let request = v1::ListStatementsRequest { group: group.name(), order, limit, last };
            follow::show(global, follow, async |admin: &Admin| list(admin, request.clone()).await).await
        }
        StatementCommand::Reset { group } => {
            let admin = global.admin().await?;
            let request = v1::ResetStatementsRequest { group: group.name() };
            let reply = admin.statements().reset_statements(request).await.map_err(admin.failed())?;
            let view = ResetView { removed: reply.into_inner().removed };
            global.output.show(&view, || format!("{} statements forgotten", view.removed))
        }
    }
}

async fn list(admin: &Admin, request: v1::ListStatementsRequest) -> Result<ListView, CliError> {
    let reply = admin.statements().list_statements(request).await.map_err(admin.failed())?.into_inner();
    Ok(ListView {
        rows: reply.rows.into_iter().map(Into::into).collect(),
        total: reply.total,
        evicted: reply.evicted,
        since_unix_ms: reply.since_unix_ms,
    })
}

impl Shown for ListView {
    fn page(&self) -> Page {
        StatementView::table(&self.rows).into()
    }

    /// Fingerprints, as `watch add --similar-to` takes them.
    fn names(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.fingerprint.clone()).collect()
    }

    fn notes(&self) -> Vec<String> {
        vec![format!(
            "{} of {} statements since {}; {} made room for others",
            self.rows.len(),
            self.total,
            utc_text(self.since_unix_ms),
            self.evicted
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_statements_there_are_is_said_beside_those_that_are_listed() {
        let row = v1::StatementRow { fingerprint: "00ff".into(), ..v1::StatementRow::default() };
        let list = ListView {
            rows: vec![row.clone().into(), row.into()],
            total: 3,
            evicted: 4,
            since_unix_ms: 951_827_696_000,
        };
        assert_eq!(list.notes(), ["2 of 3 statements since 2000-02-29 12:34:56Z; 4 made room for others"]);
        assert_eq!(list.names(), ["00ff", "00ff"]);
        let json = serde_json::to_value(&list).unwrap();
        assert_eq!((&json["total"], &json["evicted"]), (&3.into(), &4.into()));
        assert_eq!(
            (&json["since_unix_ms"], json["rows"].as_array().unwrap().len()),
            (&951_827_696_000_u64.into(), 2)
        );
    }
}
