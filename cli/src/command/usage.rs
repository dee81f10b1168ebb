//! `tidegate usage`: what was consumed, by group, client, and over time.

use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate_proto::v1;

use super::of_group::OfGroup;
use crate::admin::Admin;
use crate::args::Global;
use crate::clock::utc_text;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;
use crate::table::{Cell, Column, Table, Tone};
use crate::view::{ConsumptionView, millis, total_text};

/// What to show.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate usage\n  \
    tidegate usage shop --per-client\n  \
    tidegate usage shop --history minute --output json")]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    group: OfGroup,
    /// Also a row per client and incarnation.
    #[arg(long, conflicts_with = "history")]
    per_client: bool,
    /// Consumption over time instead of totals: per second (the last ten minutes), minute (the last day)
    /// or hour (90 days). Needs a group.
    #[arg(long, value_name = "STEP", requires = "of_group")]
    history: Option<Step>,
    #[command(flatten)]
    follow: Follow,
}

/// Length of a step of the history.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Step {
    /// About a second.
    Second,
    /// 60 seconds.
    Minute,
    /// 3600 seconds.
    Hour,
}

#[derive(Serialize)]
struct UsageView {
    group: String,
    /// Empty in a row for the whole group.
    client: String,
    incarnation: u64,
    live_ru_per_sec: String,
    total: ConsumptionView,
    /// Reported, and more than any process can have used; not in the total.
    apart_ru: String,
}

#[derive(Serialize)]
struct HistoryView {
    start_unix_s: u64,
    amount: ConsumptionView,
}

/// Runs the command.
pub(crate) async fn run(args: UsageArgs, global: &Global) -> Result<(), CliError> {
    let group = args.group.name();
    match args.history {
        Some(step) => {
            let read = async |admin: &Admin| history(admin, &group, step).await;
            follow::show(global, args.follow, read).await
        }
        None => {
            let read = async |admin: &Admin| totals(admin, &group, args.per_client).await;
            follow::show(global, args.follow, read).await
        }
    }
}

/// Totals, and whether there are more than an answer holds.
#[derive(Serialize)]
#[serde(transparent)]
struct Totals {
    rows: Vec<UsageView>,
    #[serde(skip)]
    per_client: bool,
    #[serde(skip)]
    truncated: bool,
}

async fn totals(admin: &Admin, group: &str, per_client: bool) -> Result<Totals, CliError> {
    let request = v1::UsageRequest { group: group.to_owned(), per_client };
    let reply = admin.calls().usage(request).await.map_err(admin.failed())?.into_inner();
    let view = |row: v1::UsageRow| UsageView {
        group: row.group,
        client: row.client,
        incarnation: row.incarnation,
        live_ru_per_sec: row.live_ru_per_sec,
        total: row.total.into(),
        apart_ru: row.apart_ru,
    };
    let rows = reply.rows.into_iter().map(view).collect();
    Ok(Totals { rows, per_client, truncated: reply.truncated })
}

impl Shown for Totals {
    fn page(&self) -> Page {
        let mut columns = vec![Column::name("GROUP")];
        if self.per_client {
            columns.extend([Column::name("CLIENT"), Column::number("INCARNATION").leaves(4)]);
        }
        columns.push(Column::number("RU/s NOW").leaves(1));
        columns.extend(amount_columns());
        let apart = self.rows.iter().any(|row| !matches!(row.apart_ru.as_str(), "" | "0"));
        columns.extend(apart.then(|| Column::number("APART RU")));
        let mut table = Table::new(columns);
        for row in &self.rows {
            let mut cells: Vec<Cell> = vec![row.group.clone().into()];
            if self.per_client && row.client.is_empty() {
                cells.extend(["(all)".into(), "".into()]);
            } else if self.per_client {
                cells.extend([row.client.clone().into(), row.incarnation.to_string().into()]);
            }
            cells.push(row.live_ru_per_sec.clone().into());
            cells.extend(amounts(&row.total));
            cells.extend(apart.then(|| Cell::new(&row.apart_ru, Tone::Warn)));
            table.cells(cells);
        }
        table.into()
    }

    /// The groups.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.rows.iter().map(|row| row.group.clone()).collect();
        names.dedup();
        names
    }

    fn notes(&self) -> Vec<String> {
        let note = "warning: there are more rows than fit an answer; ask for one group".to_owned();
        self.truncated.then_some(note).into_iter().collect()
    }
}

async fn history(admin: &Admin, group: &str, step: Step) -> Result<Vec<HistoryView>, CliError> {
    let resolution = match step {
        Step::Second => "second",
        Step::Minute => "minute",
        Step::Hour => "hour",
    };
    let request = v1::UsageHistoryRequest {
        group: group.to_owned(),
        resolution: resolution.to_owned(),
        from_unix_s: 0,
        to_unix_s: 0,
        below: false,
    };
    let reply = admin.calls().usage_history(request).await.map_err(admin.failed())?.into_inner();
    let view = |point: v1::HistoryPoint| HistoryView {
        start_unix_s: point.start_unix_s,
        amount: point.amount.into(),
    };
    Ok(reply.points.into_iter().map(view).collect())
}

impl Shown for Vec<HistoryView> {
    fn page(&self) -> Page {
        let mut table = Table::new([Column::word("FROM (UTC)")].into_iter().chain(amount_columns()));
        for view in self {
            let from = utc_text(view.start_unix_s.saturating_mul(1_000));
            table.cells([from.into()].into_iter().chain(amounts(&view.amount)));
        }
        table.into()
    }

    /// When each step begins, in seconds since 1970.
    fn names(&self) -> Vec<String> {
        self.iter().map(|view| view.start_unix_s.to_string()).collect()
    }
}

/// The columns of a consumption. The parts add up to the total, so they are there or not together.
fn amount_columns() -> [Column; 9] {
    let part = |title| Column::number(title).leaves(3);
    [
        Column::number("RU TOTAL"),
        part("CPU RU"),
        part("READ RU"),
        part("WRITE RU"),
        part("NETWORK RU"),
        part("FLAT RU"),
        Column::number("OPS"),
        Column::number("REFUSED"),
        Column::number("WAITED (ms)"),
    ]
}

/// The cells of a consumption.
fn amounts(total: &ConsumptionView) -> [Cell; 9] {
    [
        total_text(total.total_micro_ru).into(),
        total_text(total.cpu_micro_ru).into(),
        total_text(total.read_micro_ru).into(),
        total_text(total.write_micro_ru).into(),
        total_text(total.network_micro_ru).into(),
        total_text(total.flat_micro_ru).into(),
        total.operations.to_string().into(),
        Cell::warns(total.throttled.0),
        millis(total.waited_us.0).into(),
    ]
}
