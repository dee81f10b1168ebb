//! `tidegate watch`: statements that are convicted before they run.

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use tidegate_controller::quantity::parse_span;
use tidegate_core::units::Span;
use tidegate_cost_model::{SqlDialect, Template};
use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;
use tidegate_sql::exact_digest;

use super::of_group::OfGroup;
use crate::admin::Admin;
use crate::args::Global;
use crate::clock::unix_ms;
use crate::command::apply::steps;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;
use crate::view;

/// What to do with the watch list.
#[derive(Debug, Subcommand)]
pub(crate) enum WatchCommand {
    /// Watch a statement; replaces an earlier watch of the same statement.
    #[command(after_help = "Examples:\n  \
        tidegate watch add --group shop --similar-to 8c1d3f0a5b7e9d21 --action kill --for 10m\n  \
        tidegate watch add --group shop --sql 'select * from orders' --dialect postgresql --match similar \\\n      \
        --switch-group slow")]
    Add(AddArgs),
    /// End watches, or all of a group: all that are named, or none.
    #[command(
        after_help = "Examples:\n  tidegate watch remove 7\n  tidegate watch remove 7 8 12\n  tidegate watch remove --group shop"
    )]
    Remove(RemoveArgs),
    /// List watched statements.
    List {
        #[command(flatten)]
        group: OfGroup,
        #[command(flatten)]
        follow: Follow,
    },
}

/// The options that say all there is to say about which statement.
const DIGESTS: [&str; 2] = ["similar_to", "exact"];

/// Which statement, and what is done about it.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The group in which the statement is watched.
    #[arg(long)]
    group: String,
    #[command(flatten)]
    statement: Statement,
    /// The SQL that the server of --sql speaks.
    #[arg(long, conflicts_with_all = DIGESTS, required_unless_present_any = DIGESTS)]
    dialect: Option<Dialect>,
    /// With --sql: only statements of the same text, or all of the same template.
    #[arg(long = "match", value_name = "HOW", conflicts_with_all = DIGESTS, required_unless_present_any = DIGESTS)]
    matching: Option<Matching>,
    /// What happens to it: dryrun, cooldown, kill or switch_group; by default the action of the group's query limit.
    #[arg(long, value_name = "WHAT", default_value = "", hide_default_value = true)]
    action: String,
    /// The group that is charged instead; makes the action switch_group.
    #[arg(long, value_name = "GROUP", default_value = "", hide_default_value = true)]
    switch_group: String,
    /// For how long, such as 10m; for ever by default.
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    lasts: Option<Span>,
}

/// One way to say which statement.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Statement {
    /// Statements of the template with this fingerprint, 16 hexadecimal digits.
    #[arg(long, value_name = "FINGERPRINT")]
    similar_to: Option<String>,
    /// The statement whose text has this SHA-256, 64 hexadecimal digits.
    #[arg(long, value_name = "SHA256")]
    exact: Option<String>,
    /// This statement.
    #[arg(long, value_name = "TEXT")]
    sql: Option<String>,
}

/// The SQL that a server speaks.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Dialect {
    /// PostgreSQL.
    Postgresql,
    /// MySQL, MariaDB and TiDB.
    Mysql,
}

/// How a statement is recognised.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Matching {
    /// By its text, to the letter.
    Exact,
    /// By its template: literals do not count.
    Similar,
}

/// Which watches.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct RemoveArgs {
    /// The numbers of watches.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    ids: Vec<u64>,
    /// All of this group.
    #[arg(long)]
    group: Option<String>,
}

#[derive(Serialize)]
struct Removed {
    removed: u64,
}

fn span(text: &str) -> Result<Span, String> {
    parse_span(text).map_err(|error| error.to_string())
}

/// Runs the command.
pub(crate) async fn run(command: WatchCommand, global: &Global) -> Result<(), CliError> {
    match command {
        WatchCommand::Add(args) => {
            let request = args.request(unix_ms())?;
            add(&global.admin().await?, request, global).await
        }
        WatchCommand::Remove(args) => {
            if args.ids.len() > 1 {
                let end = |id| Kind::DeleteWatch(v1::RemoveWatchRequest { id, group: String::new() });
                return steps(args.ids.into_iter().map(end).collect(), global).await;
            }
            let admin = global.admin().await?;
            let request = v1::RemoveWatchRequest {
                id: args.ids.first().copied().unwrap_or_default(),
                group: args.group.unwrap_or_default(),
            };
            let id = request.id;
            let reply = admin.statements().remove_watch(request).await.map_err(admin.failed())?;
            let view = Removed { removed: reply.into_inner().removed };
            if id != 0 && view.removed == 0 {
                let remedy = "`tidegate watch list` shows those there are";
                return Err(CliError::Refused(format!("watch {id} does not exist; {remedy}")));
            }
            global.output.show(&view, || format!("{} watches removed", view.removed))
        }
        WatchCommand::List { group, follow } => {
            let read = async |admin: &Admin| {
                let request = v1::ListWatchesRequest { group: group.name() };
                let reply = admin.statements().list_watches(request).await.map_err(admin.failed())?;
                Ok(reply.into_inner().watches)
            };
            follow::show(global, follow, read).await
        }
    }
}

async fn add(admin: &Admin, request: v1::AddWatchRequest, global: &Global) -> Result<(), CliError> {
    let reply = admin.statements().add_watch(request).await.map_err(admin.failed_in_flags())?.into_inner();
    let watch = admin.part(reply.watch, "the watch")?;
    global.output.list(
        &watch,
        || vec![watch.id.to_string()],
        || {
            format!(
                "watch {} of group {}: {} {}, {}",
                watch.id,
                watch.group,
                watch.r#match,
                watch.digest,
                view::until(&watch)
            )
        },
    )
}

impl Shown for Vec<v1::Watch> {
    fn page(&self) -> Page {
        view::watches(self).into()
    }

    fn names(&self) -> Vec<String> {
        self.iter().map(|view| view.id.to_string()).collect()
    }
}

impl AddArgs {
    /// The watch, and how long it lasts. Its end, from a clock that shows `unix_ms`, is for controllers of earlier
    /// builds: others count from their own.
    fn request(self, unix_ms: u64) -> Result<v1::AddWatchRequest, CliError> {
        let (matching, digest, text) = self.statement.recognised(self.dialect, self.matching);
        let end_unix_ms = match self.lasts {
            None => 0,
            Some(Span(0)) => {
                let message = "--for: 0 is no time; write how long, such as 10m, or leave it out for ever";
                return Err(CliError::Usage(message.to_owned()));
            }
            Some(span) => unix_ms.saturating_add(span.0.div_ceil(1_000)),
        };
        let watch_us = self.lasts.unwrap_or_default().0;
        let implied = self.action.is_empty() && !self.switch_group.is_empty();
        let watch = v1::Watch {
            group: self.group,
            r#match: matching.to_owned(),
            digest,
            text,
            action: if implied { "switch_group".to_owned() } else { self.action },
            switch_group: self.switch_group,
            end_unix_ms,
            ..v1::Watch::default()
        };
        Ok(v1::AddWatchRequest { watch: Some(watch), watch_us })
    }
}

impl Statement {
    /// How the statement is recognised, by which digest, and its template.
    fn recognised(
        self,
        dialect: Option<Dialect>,
        matching: Option<Matching>,
    ) -> (&'static str, String, String) {
        if let Some(fingerprint) = self.similar_to {
            return ("similar", fingerprint, String::new());
        }
        if let Some(digest) = self.exact {
            return ("exact", digest, String::new());
        }
        let sql = self.sql.unwrap_or_default();
        let dialect = match dialect {
            Some(Dialect::Postgresql) => SqlDialect::PostgreSql,
            Some(Dialect::Mysql) => SqlDialect::MySql,
            None => SqlDialect::Generic,
        };
        let template = Template::new(dialect, &sql);
        let (matching, digest) = match matching {
            Some(Matching::Exact) => ("exact", exact_digest(&sql)),
            Some(Matching::Similar) | None => ("similar", template.fingerprint().to_string()),
        };
        (matching, digest, template.text().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(arguments: &[&str]) -> Option<v1::Watch> {
        let line = ["tidegate", "watch", "add", "--group", "shop"].iter().chain(arguments);
        match Cli::try_parse_from(line).ok()?.command {
            Command::Watch(WatchCommand::Add(args)) => {
                let v1::AddWatchRequest { watch, watch_us } = args.request(1_000).ok()?;
                let watch = watch?;
                assert_eq!(watch.end_unix_ms, if watch_us == 0 { 0 } else { 1_000 + watch_us / 1_000 });
                Some(watch)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_statement_is_named_in_one_way() {
        let similar = parsed(&["--sql", "select 1", "--dialect", "mysql", "--match", "similar"]).unwrap();
        let template = Template::new(SqlDialect::MySql, "select 2");
        assert_eq!(
            (similar.r#match.as_str(), similar.digest, similar.text.as_str()),
            ("similar", template.fingerprint().to_string(), template.text())
        );
        let exact = parsed(&["--sql", "abc", "--dialect", "postgresql", "--match", "exact"]).unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((exact.r#match.as_str(), exact.digest.as_str()), ("exact", known));
        let by_hand = parsed(&["--similar-to", "ab", "--switch-group", "slow", "--for", "10m"]).unwrap();
        assert_eq!((by_hand.action.as_str(), by_hand.end_unix_ms), ("switch_group", 601_000));
        assert_eq!(parsed(&["--exact", "cd", "--action", "kill"]).unwrap().end_unix_ms, 0);
        for bad in [
            &[][..],
            &["--similar-to", "ab", "--exact", "cd"],
            &["--sql", "select 1"],
            &["--sql", "select 1", "--match", "exact"],
            &["--sql", "select 1", "--dialect", "mysql"],
            &["--similar-to", "ab", "--dialect", "mysql"],
            &["--similar-to", "ab", "--match", "similar"],
            &["--similar-to", "ab", "--for", "0s"],
            &["--similar-to", "ab", "--for", "soon"],
        ] {
            assert!(parsed(bad).is_none(), "{bad:?}");
        }
    }
}
