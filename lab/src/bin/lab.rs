//! What limiter policies do, with our own numbers and pictures. `lab --help` describes each part.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tidegate_lab::policies::traffic::Traffic;
use tidegate_lab::policies::{LabError, Section, accuracy, facts, report, warm_up};

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

#[derive(Subcommand)]
enum Part {
    /// What windows, logs and buckets admit around boundaries, at random, of a queue, and after a stall.
    Policies(Form),
    /// How often the two-window counter decides otherwise than an exact count would, over very many keys.
    ///
    /// 400 million requests take some minutes; --requests makes fewer. Fewer requests of as many keys are lighter keys,
    /// of which fewer come near a limit.
    Accuracy {
        /// About how many requests.
        #[arg(long, default_value_t = 400_000_000)]
        requests: u64,
        /// From how many keys.
        #[arg(long, default_value_t = 270_000)]
        keys: u64,
        /// In how many hours of virtual time.
        #[arg(long, default_value_t = 6)]
        hours: u32,
        /// Requests a minute that a key may have; 100, 1000, 10000 and 100000 are judged, too.
        #[arg(long, default_value_t = 1_000)]
        limit: u32,
        #[command(flatten)]
        form: Form,
    },
    /// The curve by which a cold key reaches its rate, beside the formula.
    Warmup {
        /// Operations per second, once warm.
        #[arg(long, default_value_t = 200)]
        rate: u32,
        /// Seconds of full use until then.
        #[arg(long, default_value_t = 10)]
        seconds: u32,
        /// How many times slower it begins.
        #[arg(long, default_value_t = 3)]
        factor: u32,
        #[command(flatten)]
        form: Form,
    },
}

/// How it is told.
#[derive(Args)]
struct Form {
    /// Writes a report into this directory, too: one HTML page with its pictures, which opens without a network.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Prints JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

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

fn run(part: Part) -> Result<(), LabError> {
    match part {
        Part::Policies(form) => {
            let sections = facts(form.seed)?;
            tell("policies", "Limiter policies", &sections, &form)
        }
        Part::Accuracy { requests, keys, hours, limit, form } => {
            let length = u64::from(hours) * 3_600_000_000;
            let traffic = Traffic { requests, keys, length, seed: form.seed };
            let settings = accuracy::Settings { traffic, limit };
            let section = accuracy::run(&settings, &mut |done| {
                eprintln!("lab: {} of about {} million requests", done / 1_000_000, requests / 1_000_000);
            })?;
            tell("accuracy", "Accuracy of the two-window counter", &[section], &form)
        }
        Part::Warmup { rate, seconds, factor, form } => {
            let section = warm_up::curve(&warm_up::Settings { rate, warm_up: seconds, factor })?;
            tell("warmup", "Warm-up", &[section], &form)
        }
    }
}

fn tell(name: &str, title: &str, sections: &[Section], form: &Form) -> Result<(), LabError> {
    if form.json {
        println!("{:#}", report::json(sections, form.seed));
    } else {
        print!("{}", report::text(sections));
    }
    if let Some(directory) = &form.out {
        let path = report::write(directory, name, title, sections)?;
        eprintln!("lab: wrote {}", path.display());
    }
    Ok(())
}
