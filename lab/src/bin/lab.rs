//! What limiter policies do, with our own numbers and pictures. `lab --help` describes each part.

use std::process::ExitCode;

use clap::Parser;
use tidegate_lab::command::{Part, run};
use tidegate_lab::policies::LabError;

/// Shows what limiter policies do, by a virtual clock: tables here, and a report with pictures where --out says.
///
/// A policy decides whether an operation may start: at most n in each window of the clock, or in any window, or at a
/// rate with a burst, or smoothly, or slowly at first. The field's articles compare them by facts; this reproduces the
/// facts with the policies that tidegate ships, so that you can see why the token bucket is the default, and when another
/// one serves better. Needs no server; the same seed gives the same numbers on every machine.
///
/// Exit status: 0 when it ran; 1 when the report cannot be written; 2 when called wrongly.
#[derive(Parser)]
#[command(name = "lab", after_help = EXAMPLES)]
struct Options {
    #[command(subcommand)]
    part: Part,
}

const EXAMPLES: &str = "Examples:\n  \
    cargo run --release -p tidegate-lab --bin lab -- policies --out target/lab\n  \
    cargo run --release -p tidegate-lab --bin lab -- accuracy --requests 20000000\n  \
    cargo run --release -p tidegate-lab --bin lab -- warmup --rate 200 --seconds 10 --factor 3\n  \
    cargo run --release -p tidegate-lab --bin lab -- policies --json | jq '.sections[].tables'";

fn main() -> ExitCode {
    let options = Options::parse();
    match run(options.part) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(if matches!(error, LabError::Write { .. }) { 1 } else { 2 })
        }
    }
}
