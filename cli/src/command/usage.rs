//! `tidegate usage`: what was consumed, by group, client, and over time.

use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate_proto::v1;

use crate::args::Global;
use crate::clock::utc_text;
use crate::error::CliError;
use crate::output::note;
use crate::table::Table;
use crate::view::{ConsumptionView, total_text};

/// What to show.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate usage\n  \
    tidegate usage shop --per-client\n  \
    tidegate usage shop --history minute --output json")]
pub(crate) struct UsageArgs {
    /// Only this group.
    #[arg(default_value = "", hide_default_value = true)]
    group: String,
    /// Also a row per client and incarnation.
    #[arg(long, conflicts_with = "history")]
    per_client: bool,
    /// Consumption over time instead of totals: per minute (kept 24 h) or hour (kept 90 days). Needs a group.
    #[arg(long, value_name = "STEP", requires = "group")]
    history: Option<Step>,
}

/// Length of a step of the history.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Step {
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
    match args.history {
        Some(step) => history(args.group, step, global).await,
        None => totals(args, global).await,
    }
}

async fn totals(args: UsageArgs, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    let request = v1::UsageRequest { group: args.group, per_client: args.per_client };
    let reply = admin.calls().usage(request).await.map_err(admin.failed())?.into_inner();
    if reply.truncated {
        note("warning: there are more rows than fit an answer; ask for one group");
    }
    let view = |row: v1::UsageRow| UsageView {
        group: row.group,
        client: row.client,
        incarnation: row.incarnation,
        live_ru_per_sec: row.live_ru_per_sec,
        total: row.total.into(),
        apart_ru: row.apart_ru,
    };
    let views: Vec<UsageView> = reply.rows.into_iter().map(view).collect();
    global.output.show(&views, || {
        let mut headers = vec!["GROUP"];
        if args.per_client {
            headers.extend(["CLIENT", ">INCARNATION"]);
        }
        headers.extend([">RU/s NOW", ">RU TOTAL", ">CPU RU", ">READ RU", ">WRITE RU", ">NETWORK RU", ">OPS"]);
        headers.extend([">REFUSED", ">WAITED (ms)"]);
        let apart = views.iter().any(|view| !matches!(view.apart_ru.as_str(), "" | "0"));
        headers.extend(apart.then_some(">APART RU"));
        let mut table = Table::new(&headers);
        for view in &views {
            let mut cells = vec![view.group.clone()];
            if args.per_client {
                let incarnation =
                    if view.client.is_empty() { String::new() } else { view.incarnation.to_string() };
                cells.extend([
                    if view.client.is_empty() { "(all)".to_owned() } else { view.client.clone() },
                    incarnation,
                ]);
            }
            cells.push(view.live_ru_per_sec.clone());
            cells.extend(amounts(&view.total));
            cells.extend(apart.then(|| view.apart_ru.clone()));
            table.row(cells);
        }
        table.text()
    })
}

async fn history(group: String, step: Step, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    let resolution = match step {
        Step::Minute => "minute",
        Step::Hour => "hour",
    };
    let request =
        v1::UsageHistoryRequest { group, resolution: resolution.to_owned(), from_unix_s: 0, to_unix_s: 0 };
    let reply = admin.calls().usage_history(request).await.map_err(admin.failed())?.into_inner();
    let view = |point: v1::HistoryPoint| HistoryView {
        start_unix_s: point.start_unix_s,
        amount: point.amount.into(),
    };
    let views: Vec<HistoryView> = reply.points.into_iter().map(view).collect();
    global.output.show(&views, || {
        let headers = [
            "FROM",
            ">RU",
            ">CPU RU",
            ">READ RU",
            ">WRITE RU",
            ">NETWORK RU",
            ">OPS",
            ">REFUSED",
            ">WAITED (ms)",
        ];
        let mut table = Table::new(&headers);
        for view in &views {
            let mut cells = vec![utc_text(view.start_unix_s.saturating_mul(1_000))];
            cells.extend(amounts(&view.amount));
            table.row(cells);
        }
        table.text()
    })
}

/// The cells of a consumption.
fn amounts(total: &ConsumptionView) -> [String; 8] {
    [
        total_text(total.total_micro_ru),
        total_text(total.cpu_micro_ru),
        total_text(total.read_micro_ru),
        total_text(total.write_micro_ru),
        total_text(total.network_micro_ru),
        total.operations.to_string(),
        total.throttled.to_string(),
        (total.waited_us.0 / 1_000).to_string(),
    ]
}
