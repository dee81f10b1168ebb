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

#[cfg(test)]
mod tests {
    use tidegate_controller::quantity::Count;

    use super::*;

    const COLUMNS: &str = "RU TOTAL CPU RU READ RU WRITE RU NETWORK RU FLAT RU OPS REFUSED WAITED (ms)";

    /// What is shown of it is 15 1 2 3 4 5 7 8 9.
    fn consumption() -> ConsumptionView {
        let ru = |ru: u128| Count(ru * 1_000_000);
        ConsumptionView {
            total_micro_ru: ru(15),
            cpu_micro_ru: ru(1),
            read_micro_ru: ru(2),
            write_micro_ru: ru(3),
            network_micro_ru: ru(4),
            flat_micro_ru: ru(5),
            shadow_micro_ru: ru(6),
            operations: Count(7),
            throttled: Count(8),
            waited_us: Count(9_000),
            ..ConsumptionView::default()
        }
    }

    fn row(group: &str, client: &str, apart: &str) -> UsageView {
        UsageView {
            group: group.to_owned(),
            client: client.to_owned(),
            incarnation: 20,
            live_ru_per_sec: "21.5".to_owned(),
            total: consumption(),
            apart_ru: apart.to_owned(),
        }
    }

    #[test]
    fn each_figure_of_usage_is_shown_as_what_it_is() {
        let rows = vec![row("shop", "", "0"), row("shop", "till-1", ""), row("board", "", "0")];
        let mut totals = Totals { rows, per_client: false, truncated: false };
        let figures = "21.5 15 1 2 3 4 5 7 8 9";
        let now = format!("RU/s NOW {COLUMNS}");
        assert_eq!(totals.page().words()[..2], [format!("GROUP {now}"), format!("shop {figures}")]);
        totals.per_client = true;
        let expected = [
            format!("GROUP CLIENT INCARNATION {now}"),
            format!("shop (all) - {figures}"),
            format!("shop till-1 20 {figures}"),
            format!("board (all) - {figures}"),
        ];
        assert_eq!(totals.page().words(), expected);
        totals.rows.push(row("board", "till-2", "33"));
        let lines = totals.page().words();
        assert_eq!(lines[0], format!("GROUP CLIENT INCARNATION {now} APART RU"));
        assert_eq!(
            (&lines[1], &lines[4]),
            (&format!("shop (all) - {figures} 0"), &format!("board till-2 20 {figures} 33"))
        );
        assert_eq!((totals.names(), totals.notes().len()), (vec!["shop".to_owned(), "board".to_owned()], 0));
        totals.truncated = true;
        assert_eq!(totals.notes(), ["warning: there are more rows than fit an answer; ask for one group"]);
        let json = serde_json::to_value(&totals).unwrap();
        let total = serde_json::to_value(consumption()).unwrap();
        let expected = serde_json::json!({
            "group": "board", "client": "till-2", "incarnation": 20, "live_ru_per_sec": "21.5", "total": total,
            "apart_ru": "33",
        });
        assert_eq!(json[3], expected);
    }

    #[test]
    fn a_step_of_the_history_is_shown_with_when_it_begins() {
        let history = vec![HistoryView { start_unix_s: 951_827_696, amount: consumption() }];
        let expected =
            [format!("FROM (UTC) {COLUMNS}"), "2000-02-29 12:34:56Z 15 1 2 3 4 5 7 8 9".to_owned()];
        assert_eq!(history.page().words(), expected);
        assert_eq!(history.names(), ["951827696"]);
    }
}
