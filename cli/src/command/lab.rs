//! `tidegate lab`: what limiters do, and how many nodes can share one, by a virtual clock.

use clap::{Args, Subcommand};
use tidegate_lab::command::{Part, run as answer};

use super::what_if::{self, WhatIfArgs};
use crate::args::Global;
use crate::error::CliError;
use crate::output::{note, print};

/// What is asked.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "A policy decides whether an operation may start: at most n in each window of the clock, or in any \
        window, or at a rate with a burst, or smoothly, or slowly at first. An arrangement is how many nodes share one \
        limit. The field's articles compare both by facts; the lab reproduces them with the code that ships, to show \
        why the leased token bucket is the default, and what others would do. The same seed gives the same numbers \
        on every machine. what-if replays what was recorded, of a live controller or from a file; the others ask no \
        controller.\n\n\
        Examples:\n  \
        tidegate lab arrangements --out ./lab          one limit, eight nodes, a picture\n  \
        tidegate lab arrangements --nodes 16 --round-trip 40 --away 60\n  \
        tidegate lab policies --out ./lab              what windows, logs and buckets admit\n  \
        tidegate lab warmup --rate 200 --seconds 10 --factor 3\n  \
        tidegate lab accuracy --requests 20000000\n  \
        tidegate lab what-if --group shop --set rate=500 --last 24h\n  \
        tidegate lab policies -o json | jq '.sections[].tables'"
)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    part: LabPart,
}

/// A question to the lab, by a virtual clock or about what was recorded.
#[derive(Debug, Subcommand)]
enum LabPart {
    #[command(flatten)]
    Virtual(Part),
    /// What recorded consumption would have met under other settings: what is throttled, how long it waits, and the
    /// cheapest rate under which hardly anything does.
    ///
    /// Replays the history of a group of a live controller, a CSV file or an access log. Changes nothing.
    WhatIf(WhatIfArgs),
}

/// Runs the command.
pub(crate) async fn run(args: LabArgs, global: &Global) -> Result<(), CliError> {
    let part = match args.part {
        LabPart::Virtual(part) => part,
        LabPart::WhatIf(args) => return what_if::run(args, global).await,
    };
    let answer = answer(part, &mut |said| note(&format!("lab: {said}")))?;
    if global.output.is_for_people() {
        return print(&answer.text());
    }
    global.output.show(&answer.json(), || answer.text())
}
