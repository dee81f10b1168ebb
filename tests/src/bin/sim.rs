//! Runs seeds of the fault simulation: `sim --seeds N --from S`. A failing seed is shrunk and printed with its
//! transcript, and the exit status is 1. With `--first` it stops at the first failure and tells how many seeds it took.

use std::env;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate_tests::process::log::machine_micros;
use tidegate_tests::sim::chaos::Plan;

const USAGE: &str = "usage: sim [--seeds N] [--from SEED] [--first] [--verbose]\n\
    runs N seeds (1000 unless told) from SEED (1 unless told), on all cores; --first stops at the first failure,\n\
    --verbose prints its whole transcript";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let (mut seeds, mut from, mut verbose, mut first) = (1_000_u64, 1_u64, false, false);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let number = match arg.as_str() {
            "--verbose" => {
                verbose = true;
                continue;
            }
            "--first" => {
                first = true;
                continue;
            }
            "--seeds" => &mut seeds,
            "--from" => &mut from,
            _ => {
                eprintln!("sim: {arg}: no such option\n{USAGE}");
                return ExitCode::from(2);
            }
        };
        let Some(value) = rest.next().and_then(|text| text.parse().ok()) else {
            eprintln!("sim: {arg} takes a whole number\n{USAGE}");
            return ExitCode::from(2);
        };
        *number = value;
    }
    if first { run_to_first(seeds, from) } else { run(seeds, from, verbose) }
}

/// Seed after seed until one fails.
fn run_to_first(seeds: u64, from: u64) -> ExitCode {
    for index in 0..seeds {
        if let Err(violation) = Plan::new(from + index).run() {
            println!("{} | {violation}", index + 1);
            return ExitCode::FAILURE;
        }
    }
    println!("{seeds} | nothing found");
    ExitCode::SUCCESS
}

/// What all threads have seen so far.
#[derive(Default)]
struct Tally {
    next: AtomicU64,
    done: AtomicU64,
    admitted: AtomicU64,
    worst: AtomicU64,
    failed: Mutex<Vec<u64>>,
}

fn run(seeds: u64, from: u64, verbose: bool) -> ExitCode {
    let tally = Tally::default();
    let started = machine_micros();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| work(&tally, seeds, from, started));
        }
    });
    let seconds = (machine_micros() - started) / 1_000 + 1;
    let failed = tally.failed.into_inner().unwrap_or_default();
    println!(
        "{seeds} seeds from {from}: {} failed, {} operations admitted, worst window {} thousandths of the burst, {} seeds/s",
        failed.len(),
        tally.admitted.into_inner(),
        tally.worst.into_inner(),
        seeds * 1_000 / seconds
    );
    let Some(seed) = failed.iter().min() else {
        return ExitCode::SUCCESS;
    };
    println!("failed: {:?}", failed.iter().take(20).collect::<Vec<_>>());
    let plan = Plan::new(*seed).shrink();
    println!("smallest plan found:\n{plan}");
    if let Err((violation, transcript)) = plan.run_traced(true) {
        let lines: Vec<&str> = transcript.lines().collect();
        let shown = if verbose { 0 } else { lines.len().saturating_sub(60) };
        println!("{}\n{violation}", lines.get(shown..).unwrap_or_default().join("\n"));
    }
    ExitCode::FAILURE
}

fn work(tally: &Tally, seeds: u64, from: u64, started: u64) {
    loop {
        let index = tally.next.fetch_add(1, Ordering::Relaxed);
        if index >= seeds {
            return;
        }
        match Plan::new(from + index).run() {
            Ok(outcome) => {
                tally.admitted.fetch_add(outcome.admitted, Ordering::Relaxed);
                tally.worst.fetch_max(outcome.worst, Ordering::Relaxed);
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
            let milliseconds = (machine_micros() - started) / 1_000 + 1;
            eprintln!("{done} of {seeds} seeds, {} seeds/s", done * 1_000 / milliseconds);
        }
    }
}
