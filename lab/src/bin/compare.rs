//! Runs every scenario of the comparison through tidegate and the other allocators, and writes the tables of
//! `docs/comparison.md`, their summary in `docs/checks.md` and the figures beside them. `compare --help` lists the
//! options.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate_lab::comparison::marks::{self, Mark};
use tidegate_lab::comparison::measures::Measures;
use tidegate_lab::comparison::scenario::Scenario;
use tidegate_lab::comparison::system::System;
use tidegate_lab::comparison::{figure, page, scenarios, table};

const USAGE: &str = "usage: compare [--only NAME]... [--check] [--help]\n\
    runs the scenarios of docs/comparison.md, writes its tables and docs/figures/comparison-NAME.svg, and one table\n\
    of all scenarios into docs/checks.md\n\
    --only NAME  this scenario (may be repeated); the tables of all scenarios are left as they are\n\
    --check      writes nothing; exits 1 and names the files that differ from what a run makes";

struct Options {
    only: Vec<String>,
    check: bool,
}

fn main() -> ExitCode {
    let mut options = Options { only: Vec::new(), check: false };
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            "--check" => options.check = true,
            "--only" => match args.next() {
                Some(name) => options.only.push(name),
                None => return usage("--only takes the name of a scenario"),
            },
            _ => return usage(&format!("{arg}: no such option")),
        }
    }
    let names: Vec<&str> = scenarios::all().iter().map(|scenario| scenario.name).collect();
    if let Some(unknown) = options.only.iter().find(|name| !names.contains(&name.as_str())) {
        return usage(&format!("{unknown}: no such scenario; there are {}", names.join(", ")));
    }
    match compare(&options) {
        Ok(stale) if stale.is_empty() => ExitCode::SUCCESS,
        Ok(stale) => {
            for path in stale {
                eprintln!(
                    "compare: {} differs from what a run makes; run compare and commit it",
                    path.display()
                );
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("compare: {problem}\n{USAGE}");
    ExitCode::from(2)
}

/// Runs, and returns the files that differ, when checking.
fn compare(options: &Options) -> Result<Vec<PathBuf>, String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let (page_path, summary_path) = (docs.join("comparison.md"), docs.join("checks.md"));
    let mut text = read(&page_path)?;
    let mut files = Vec::new();
    let mut all_marks: Vec<(Scenario, Vec<Mark>)> = Vec::new();
    let mut all_rows: Vec<(Scenario, Vec<(System, Measures)>)> = Vec::new();
    let chosen = |scenario: &Scenario| {
        options.only.is_empty() || options.only.iter().any(|name| name == scenario.name)
    };
    for scenario in scenarios::all().into_iter().filter(chosen) {
        let mut runs = Vec::new();
        let mut rows = Vec::new();
        for system in System::ALL {
            eprintln!("{}: {}", scenario.name, system.name());
            let run = system.run(&scenario)?;
            rows.push((system, Measures::of(&scenario, &run)));
            runs.push((system, run));
        }
        let block = format!(
            "{}\n\n![{}: RU/s admitted over time](figures/comparison-{}.svg)\n\n{}",
            scenario.setup,
            scenario.title,
            scenario.name,
            table::table(&scenario, &rows)
        );
        text = page::replace(&text, scenario.name, &block)?;
        let named: Vec<_> = runs.iter().map(|(system, run)| (system.name(), run)).collect();
        let figure = figure::figure(&scenario, &named);
        files.push((docs.join(format!("figures/comparison-{}.svg", scenario.name)), figure));
        if let Some((_, measures)) = rows.iter().find(|(system, _)| *system == System::Tidegate) {
            let marks = marks::marks(&scenario, measures);
            for mark in marks.iter().filter(|mark| !mark.holds) {
                eprintln!("{}: misses: {}: {}", scenario.name, mark.what, mark.measured);
            }
            all_marks.push((scenario.clone(), marks));
        }
        all_rows.push((scenario, rows));
    }
    if options.only.is_empty() {
        text = page::replace(&text, "marks", &marks::table(&all_marks))?;
        let summary = page::replace(&read(&summary_path)?, "comparison", &table::summary(&all_rows))?;
        files.push((summary_path, summary));
    }
    files.push((page_path, text));
    if options.check {
        let differs = |(path, made): &(PathBuf, String)| fs::read_to_string(path).ok().as_ref() != Some(made);
        return Ok(files.into_iter().filter(differs).map(|(path, _)| path).collect());
    }
    fs::create_dir_all(docs.join("figures")).map_err(|error| format!("docs/figures: {error}"))?;
    for (path, made) in files {
        fs::write(&path, made).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(Vec::new())
}
