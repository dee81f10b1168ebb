//! Runs seeds of the fault simulation, or scripted scenarios. A failing seed is shrunk and printed with its
//! transcript, and the exit status is 1.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use clap::Parser;
use tidegate_sim::chaos::{Outcome, Plan};
use tidegate_sim::golden::{Golden, advice};
use tidegate_sim::script;
use tidegate_sim::world::Toll;

/// Simulates the shipped controller and node machines in virtual time, under faults drawn from seeds.
#[derive(Parser)]
struct Args {
    /// Seeds to run, on all cores
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Draw quotas: groups with quotas of every kind, over runs of three windows and more, instead of the other faults
    #[arg(long, conflicts_with_all = ["golden", "write_golden"])]
    quotas: bool,
    /// First seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Stop at the first failure and print how many seeds it took
    #[arg(long)]
    first: bool,
    /// Print the whole transcript of a failing seed, not its end
    #[arg(long)]
    verbose: bool,
    /// Show a failing seed as it is, not the smallest plan that fails
    #[arg(long)]
    no_shrink: bool,
    /// Compare the courses of the seeds with those in this file; a seed whose nodes or controllers do something else
    /// than the file says is a failure
    #[arg(long, value_name = "FILE", conflicts_with = "first")]
    golden: Option<PathBuf>,
    /// Write the courses of the seeds to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["first", "golden"])]
    write_golden: Option<PathBuf>,
    /// Write all messages and operations of each seed to a file in this folder, to compare two builds by `diff -r`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["first", "golden", "write_golden"])]
    transcripts: Option<PathBuf>,
    /// Run this plan, as printed for a failing seed, instead of seeds
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Run these scenario files (as in tests/scenarios) instead of seeds, and print their transcripts
    #[arg(long, num_args = 1.., value_name = "FILE")]
    script: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if !args.script.is_empty() {
        return run_scripts(&args.script);
    }
    if let Some(path) = &args.plan {
        return run_plan(path, args.verbose);
    }
    if let Some(folder) = &args.transcripts {
        return exit(write_transcripts(folder, &args));
    }
    if args.first { run_to_first(&args) } else { run(&args) }
}

fn exit(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Args {
    /// The seeds, and what is drawn from each.
    fn seeds(&self) -> (Range<u64>, fn(u64) -> Plan) {
        let draw = if self.quotas { Plan::of_quotas } else { Plan::new };
        (self.from..self.from.saturating_add(self.seeds), draw)
    }
}

fn write_transcripts(folder: &Path, args: &Args) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (seeds, draw) = args.seeds();
    for seed in seeds {
        let path = folder.join(seed.to_string());
        fs::write(&path, draw(seed).transcript()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Compares the courses of seeds with those expected, or writes them down.
fn judge_courses(args: &Args, courses: &BTreeMap<u64, u64>) -> Result<(), String> {
    let ran = Golden::of(courses);
    if let Some(path) = &args.write_golden {
        return fs::write(path, ran.text()).map_err(|error| format!("{}: {error}", path.display()));
    }
    let Some(path) = &args.golden else { return Ok(()) };
    let expected = fs::read_to_string(path)
        .map_err(|error| error.to_string())
        .and_then(|text| Golden::read(&text))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let differing = expected.differing(&ran);
    if differing.is_empty() { Ok(()) } else { Err(advice(&differing)) }
}

fn run_scripts(paths: &[PathBuf]) -> ExitCode {
    let mut result = ExitCode::SUCCESS;
    for path in paths {
        let ran =
            fs::read_to_string(path).map_err(|error| error.to_string()).and_then(|text| script::run(&text));
        match ran {
            Ok(transcript) => println!("== {}\n{transcript}", path.display()),
            Err(error) => {
                eprintln!("sim: {}: {error}", path.display());
                result = ExitCode::FAILURE;
            }
        }
    }
    result
}

fn run_plan(path: &Path, verbose: bool) -> ExitCode {
    let read = fs::read_to_string(path).map_err(|error| error.to_string()).and_then(|text| text.parse());
    match read {
        Ok(plan) => show(&plan, verbose),
        Err(error) => {
            eprintln!("sim: {}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// Runs a plan once more; a violation is printed with its transcript.
fn show(plan: &Plan, verbose: bool) -> ExitCode {
    let Err((violation, transcript)) = plan.run_traced(true) else {
        println!("nothing found");
        return ExitCode::SUCCESS;
    };
    let lines: Vec<&str> = transcript.lines().collect();
    let shown = if verbose { 0 } else { lines.len().saturating_sub(60) };
    println!("{}\n{violation}", lines.get(shown..).unwrap_or_default().join("\n"));
    ExitCode::FAILURE
}

/// Seed after seed until one fails.
fn run_to_first(args: &Args) -> ExitCode {
    let (seeds, draw) = args.seeds();
    for seed in seeds {
        if let Err(violation) = draw(seed).run() {
            println!("{} | {violation}", seed - args.from + 1);
            return ExitCode::FAILURE;
        }
    }
    println!("{} | nothing found", args.seeds);
    ExitCode::SUCCESS
}

/// What all threads have seen so far.
#[derive(Default)]
struct Tally {
    next: AtomicU64,
    done: AtomicU64,
    admitted: AtomicU64,
    worst: AtomicU64,
    toll: Mutex<Toll>,
    failed: Mutex<Vec<u64>>,
    courses: Mutex<BTreeMap<u64, u64>>,
}

fn run(args: &Args) -> ExitCode {
    let (seeds, from) = (args.seeds, args.from);
    let tally = Tally::default();
    #[expect(clippy::disallowed_methods, reason = "how long it took is printed and decides nothing")]
    let started = Instant::now();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| work(&tally, args, started));
        }
    });
    let milliseconds = milliseconds(started);
    let failed = tally.failed.into_inner().unwrap_or_default();
    println!(
        "{seeds} seeds from {from}: {} failed, {} operations admitted, worst window {} thousandths of the burst, {} seeds/s",
        failed.len(),
        tally.admitted.into_inner(),
        tally.worst.into_inner(),
        seeds * 1_000 / milliseconds
    );
    let toll = tally.toll.into_inner().unwrap_or_default();
    println!(
        "{} nodes killed, {} ended in order, {} controllers died ({} in one of {} syncs of the disk), \
         {} taken over from alive, {} set back to a copy, {} groups used again after they gave their lease up",
        toll.nodes,
        toll.goodbyes,
        toll.controllers,
        toll.in_sync,
        toll.syncs,
        toll.takeovers,
        toll.set_back,
        toll.awakened
    );
    let courses = tally.courses.into_inner().unwrap_or_default();
    let Some(seed) = failed.iter().min() else {
        return exit(judge_courses(args, &courses));
    };
    println!("failed: {:?}", failed.iter().take(20).collect::<Vec<_>>());
    let plan = args.seeds().1(*seed);
    let plan = if args.no_shrink { plan } else { plan.shrink() };
    println!(
        "# {}; `--plan` runs it again\n{plan}",
        if args.no_shrink { "plan" } else { "smallest plan found" }
    );
    show(&plan, args.verbose);
    ExitCode::FAILURE
}

/// One seed in so many is run again, twice, and must give the same transcript (I8).
const TWICE: u64 = 64;

fn same(plan: &Plan, outcome: Outcome) -> Result<Outcome, String> {
    match plan.transcript() == plan.transcript() {
        true => Ok(outcome),
        false => Err("I8: a second run was not the same".to_owned()),
    }
}

fn work(tally: &Tally, args: &Args, started: Instant) {
    let (seeds, from, (_, draw)) = (args.seeds, args.from, args.seeds());
    loop {
        let index = tally.next.fetch_add(1, Ordering::Relaxed);
        if index >= seeds {
            return;
        }
        let plan = draw(from + index);
        match plan
            .run()
            .and_then(|outcome| if index.is_multiple_of(TWICE) { same(&plan, outcome) } else { Ok(outcome) })
        {
            Ok(outcome) => {
                tally.admitted.fetch_add(outcome.admitted, Ordering::Relaxed);
                tally.worst.fetch_max(outcome.worst, Ordering::Relaxed);
                if let Ok(mut toll) = tally.toll.lock() {
                    *toll += outcome.toll;
                }
                if let Ok(mut courses) = tally.courses.lock() {
                    courses.insert(from + index, outcome.course);
                }
            }
            Err(violation) => {
                eprintln!("seed {}: {violation}", from + index);
                if let Ok(mut failed) = tally.failed.lock() {
                    failed.push(from + index);
                }
            }
        }
        let done = tally.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of((seeds / 20).max(100)) {
            let milliseconds = milliseconds(started);
            eprintln!("{done} of {seeds} seeds, {} seeds/s", done * 1_000 / milliseconds);
        }
    }
}

/// How long it has run, never nothing.
fn milliseconds(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
}
