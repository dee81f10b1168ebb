//! `tidegate top`: all groups, refreshed.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use tidegate_controller::quantity::parse_span;

use crate::args::Global;
use crate::clock::{unix_ms, utc_text};
use crate::error::CliError;
use crate::output::{Output, print};
use crate::sample::{GroupSample, sample, table};

/// Moves to the top left and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Shortest pause between looks; more often would measure itself.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// How to refresh.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate top\n  tidegate top --interval 5s\n  tidegate top --once --output json"
)]
pub(crate) struct TopArgs {
    /// Show one table and end.
    #[arg(long)]
    once: bool,
    /// Time between refreshes, at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    let span = parse_span(text).map_err(|error| error.to_string())?;
    let interval = Duration::from_micros(span.0);
    if interval < MIN_INTERVAL {
        return Err(format!("{text:?} is shorter than {MIN_INTERVAL:?}"));
    }
    Ok(interval)
}

/// Runs the command.
pub(crate) async fn run(args: TopArgs, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    if args.once {
        let samples = sample(&admin).await?;
        return global.output.show(&samples, || table(&samples));
    }
    let redraw = std::io::stdout().is_terminal();
    let mut ticks = tokio::time::interval(args.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => show(&sample(&admin).await?, global, redraw)?,
            ended = tokio::signal::ctrl_c() => return ended.map_err(CliError::Output),
        }
    }
}

/// One refresh; JSON is one line per refresh.
fn show(samples: &[GroupSample], global: &Global, redraw: bool) -> Result<(), CliError> {
    if global.output == Output::Json {
        let line = serde_json::to_string(samples).map_err(|error| CliError::Output(error.into()))?;
        return print(&line);
    }
    let clear = if redraw { CLEAR } else { "" };
    print(&format!("{clear}{}  {}\n\n{}", global.endpoint, utc_text(unix_ms()), table(samples)))
}
