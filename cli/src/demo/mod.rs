//! `tidegate demo`: a controller and three node processes with real SQL workloads, under caps, with a killed node and
//! a lowered cap on the way, and a report that proves the caps and the ledger.
//!
//! Everything is in a temporary directory and on free ports of the loopback. Progress goes to the standard error; the
//! report alone goes to the standard output.

mod calibrate;
mod child;
mod controllers;
mod database;
mod evidence;
mod job;
mod journal;
mod ledger;
mod nodes;
mod plan;
mod progress;
mod report;
mod show;
mod stage;
mod takeover;
pub(crate) mod worker;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tokio::sync::watch;

use crate::args::Global;
use crate::error::CliError;
use crate::output::{note, unless_unread};
use crate::stop;
use controllers::Controllers;
use progress::Progress;
use show::Show;
use stage::Stage;

/// How to run the demo.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate demo\n  \
    tidegate demo --seconds 60 --output json > report.json\n  \
    tidegate demo --cluster                          (three controllers; the one that leads is killed)\n  \
    tidegate demo --sql mine.sql --user analyst      (your statements, governed as one of its users)\n\n\
    Users: checkout (group shop), analyst (analytics), board (dashboards, nested in analytics), mailer (bursty),\n\
    nightly (batch), guest (trial); anyone else is in the group `default`. Tables: customer, item, orders, order_line, campaign_hit.\n\n\
    Exit status 0 means that every bound held and the ledger is equal. Ctrl-C ends early, with the report.")]
pub(crate) struct DemoArgs {
    /// How long the workload runs. At a third a node is killed and restarted, at two thirds a cap is lowered.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(3..=3_600))]
    seconds: u64,
    /// Also run the statements in this file, and show what each one costs.
    #[arg(long, value_name = "FILE")]
    sql: Option<PathBuf>,
    /// With --sql: the user that runs them.
    #[arg(long, value_name = "NAME", default_value = "checkout", requires = "sql")]
    user: String,
    /// Orders in each node's database; 120000 are about 35 MB.
    #[arg(long, value_name = "N", default_value_t = 120_000, value_parser = clap::value_parser!(u32).range(2_000..=5_000_000))]
    orders: u32,
    /// Run three controllers with their state in three members of etcd, and kill the one that leads at half of the time.
    #[arg(long)]
    cluster: bool,
    /// Keep the directory with databases, logs and journals.
    #[arg(long)]
    keep: bool,
}

/// Runs the demo.
pub(crate) async fn run(args: DemoArgs, global: &Global) -> Result<ExitCode, CliError> {
    if let Some(sql) = &args.sql {
        // Reported before a database is built for it.
        std::fs::File::open(sql).map_err(CliError::file("read", sql))?;
    }
    if args.cluster {
        Controllers::can_be_several()?;
    }
    let (interrupt, interrupted) = watch::channel(false);
    tokio::spawn(async move {
        if stop::requested(false).await.is_ok() {
            interrupt.send_replace(true);
        }
        // Held until the process ends, since a sender that is gone would look like an interrupt.
        std::future::pending::<()>().await;
    });
    let temporary = tempfile::Builder::new().prefix("tidegate-demo-").tempdir();
    let mut temporary = temporary.map_err(CliError::file("make a directory in", std::env::temp_dir()))?;
    temporary.disable_cleanup(args.keep);
    let dir = temporary.path().to_owned();
    let done = play(&args, global, &dir, interrupted).await;
    if args.keep {
        note(&format!("kept {}", dir.display()));
    }
    done
}

async fn play(
    args: &DemoArgs,
    global: &Global,
    dir: &std::path::Path,
    mut interrupted: watch::Receiver<bool>,
) -> Result<ExitCode, CliError> {
    let mut progress = Progress::new();
    let setting = Stage::set(dir, args.orders, args.seconds, args.cluster, &mut progress);
    let mut before = interrupted.clone();
    let stage = tokio::select! {
        stage = setting => stage?,
        _ = before.wait_for(|interrupted| *interrupted) => {
            return Err(CliError::Refused("interrupted before anything ran".to_owned()));
        }
    };
    let own = args.sql.as_ref().map(|sql| (sql.as_path(), args.user.as_str()));
    let show = Show::run(stage, args.seconds, own, &mut progress, &mut interrupted).await?;
    let report = show.report(&mut progress).await?;
    unless_unread(global.output.show(&report, || report.page()))?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
