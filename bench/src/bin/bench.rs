//! Measures the shipped code beside its peers and prints one table. `bench --help` describes how to read it.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tidegate_bench::row::Row;
use tidegate_bench::setting::Setting;
use tidegate_bench::{FAMILIES, Family, child, clock::Stopwatch, growth, machine, report, table};

/// Measures the shipped code beside its peers, in this process and on this machine, and prints one table.
///
/// The contenders of a row take turns, round by round, so that a change of the machine's speed meets all of them. A
/// figure is the median over the rounds, with the quartiles in brackets. "ours / its" is the median of the ratios of
/// the rounds: below 1 ours is less. A peer does the same work in another way, a floor is the least that could be paid,
/// a published figure was reported by others and not measured here. A mark is what the figure, or the ratio on its
/// line, should be.
///
/// Exit status: 0 when every case was measured, whether or not its mark is met; 1 when one could not be measured or
/// did something wrong; 2 when called wrongly.
#[derive(Parser)]
#[command(name = "bench", after_help = EXAMPLES)]
struct Options {
    /// Measures these families only; --list prints their names. Those of the gateway, and strangers, are measured only
    /// when they are named: they take minutes, and need database servers or thousands of file descriptors.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Short rounds and small cases: a look at whether everything runs, not a measurement.
    #[arg(long)]
    quick: bool,
    /// Writes the figures as JSON, too; `-` prints them instead of the table.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Lists the families and ends.
    #[arg(long)]
    list: bool,
    /// Measures how costs grow instead, and writes a plot each into this folder.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["only", "json"])]
    growth: Option<PathBuf>,
    /// One measurement of a family, in a process of its own.
    #[arg(long, hide = true, num_args = 1.., value_name = "WHAT")]
    child: Vec<String>,
}

const EXAMPLES: &str = "Examples:\n  \
    cargo run --release -p tidegate-bench --bin bench\n  \
    cargo run --release -p tidegate-bench --bin bench -- --only admission,lookup --quick\n  \
    cargo run --release -p tidegate-bench --bin bench -- --json figures.json\n  \
    cargo run --release -p tidegate-bench --bin bench -- --growth docs/figures";

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        FAMILIES.iter().for_each(|family| println!("{:<12}{}", family.name, family.about));
        return ExitCode::SUCCESS;
    }
    if !options.child.is_empty() {
        return measured_alone(&options.child);
    }
    let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
    if let Some(unknown) = options.only.iter().find(|name| !names.contains(&name.as_str())) {
        eprintln!("bench: {unknown}: no such family; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    if cfg!(debug_assertions) {
        eprintln!("bench: built without optimisation, the figures mean nothing; run it with --release");
    }
    let setting = if options.quick { Setting::QUICK } else { Setting::FULL };
    if let Some(folder) = &options.growth {
        return match growth::write(folder, &setting) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("bench: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let chosen: Vec<&Family> = FAMILIES
        .iter()
        .filter(|family| match options.only.as_slice() {
            [] => !family.on_request,
            named => named.iter().any(|name| name == family.name),
        })
        .collect();
    let (rows, sound) = measure(&setting, &chosen);
    match tell(&rows, options.json) {
        Ok(()) if sound => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measured_alone(args: &[String]) -> ExitCode {
    match child::run(args) {
        Ok(answer) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: {}: {error}", args.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// The rows of all families, and whether each could be measured.
fn measure(setting: &Setting, families: &[&Family]) -> (Vec<Row>, bool) {
    let (mut rows, mut sound) = (Vec::new(), true);
    for (number, family) in (1..).zip(families) {
        eprintln!("bench: {number} of {}: {}: {}", families.len(), family.name, family.about);
        let watch = Stopwatch::start();
        match (family.run)(setting) {
            Ok(measured) => rows.extend(measured),
            Err(error) => {
                eprintln!("bench: {}: {error}", family.name);
                sound = false;
            }
        }
        eprintln!("bench: {} took {:.1} s", family.name, watch.elapsed().as_secs_f64());
    }
    (rows, sound)
}

fn tell(rows: &[Row], json: Option<PathBuf>) -> Result<(), String> {
    let text = json.is_some().then(|| format!("{:#}\n", report::report(rows)));
    match (json, text) {
        (Some(path), Some(text)) if path.as_os_str() == "-" => {
            print!("{text}");
            return Ok(());
        }
        (Some(path), Some(text)) => {
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        _ => {}
    }
    print!("{}", table::table(rows));
    for (name, value) in machine::facts() {
        println!("{name}: {value}");
    }
    let verdicts: Vec<(String, bool)> = rows.iter().flat_map(Row::verdicts).collect();
    let missed: Vec<&str> = verdicts.iter().filter(|(_, met)| !met).map(|(name, _)| name.as_str()).collect();
    println!("marks met: {} of {}", verdicts.len() - missed.len(), verdicts.len());
    missed.iter().for_each(|name| println!("misses: {name}"));
    Ok(())
}
