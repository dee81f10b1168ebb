//! Visits every state of a small system: `model [SETTING…]`. A broken promise is printed with the shortest path to it,
//! and the exit status is 1.

use std::env;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tidegate_sim::model::Model;
use tidegate_sim::model::search::{Limits, Progress, search, tell};
use tidegate_sim::model::setting::{Bounds, NAMES, Setting};

fn usage() -> String {
    let bounds: Vec<String> =
        Bounds::NAMES.iter().map(|(name, about)| format!("  {name:<12}{}", about.trim())).collect();
    let settings: Vec<String> = NAMES
        .iter()
        .filter_map(|name| Setting::named(name).map(|setting| format!("  {name:<12}{}", setting.about)))
        .collect();
    format!(
        "usage: model [--depth N] [--states N] [--bound NAME=N]… [SETTING…]\n\
         visits every state of each setting (all unless named); --depth and --states stop early\n\n\
         settings:\n{}\n\nbounds, how often each may happen on one path:\n{}",
        settings.join("\n"),
        bounds.join("\n")
    )
}

/// What was asked for.
struct Args {
    limits: Limits,
    bounds: Vec<(String, u8)>,
    settings: Vec<String>,
}

fn parse() -> Result<Option<Args>, String> {
    let mut args = Args { limits: Limits::NONE, bounds: Vec::new(), settings: Vec::new() };
    let mut rest = env::args().skip(1);
    while let Some(arg) = rest.next() {
        let mut number = || {
            let value = rest.next().and_then(|text| text.parse().ok());
            value.ok_or_else(|| format!("{arg} takes a whole number"))
        };
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--depth" => args.limits.depth = number()?,
            "--states" => args.limits.states = number()?,
            "--bound" => {
                let text = rest.next().unwrap_or_default();
                let bound =
                    text.split_once('=').and_then(|(name, most)| Some((name.to_owned(), most.parse().ok()?)));
                args.bounds
                    .push(bound.ok_or("--bound takes a name and a number up to 255: --bound ticks=4")?);
            }
            name if NAMES.contains(&name) => args.settings.push(name.to_owned()),
            other => return Err(format!("{other}: no such option or setting")),
        }
    }
    if args.settings.is_empty() {
        args.settings = NAMES.map(str::to_owned).to_vec();
    }
    Ok(Some(args))
}

fn main() -> ExitCode {
    let args = match parse() {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{}", usage());
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("model: {message}\n{}", usage());
            return ExitCode::from(2);
        }
    };
    for name in &args.settings {
        let Some(mut setting) = Setting::named(name) else { continue };
        for (bound, most) in &args.bounds {
            if !setting.bounds.set(bound, *most) {
                eprintln!("model: {bound}: no such bound\n{}", usage());
                return ExitCode::from(2);
            }
        }
        if !visit(name, setting, args.limits) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Searches one setting; false when a promise is broken.
fn visit(name: &str, setting: Setting, limits: Limits) -> bool {
    println!("{name}: {}\n  within {}", setting.about, setting.bounds);
    let model = Model::new(setting);
    #[expect(clippy::disallowed_methods, reason = "how long it took is printed and decides nothing")]
    let started = Instant::now();
    let mut told = started.elapsed();
    let outcome = search(&model, limits, |progress| {
        let now = started.elapsed();
        if now > told + Duration::from_secs(1) {
            told = now;
            eprintln!("  {}", line(progress, now));
        }
    });
    println!("  {}, peak memory {}", line(outcome.progress, started.elapsed()), peak_memory());
    if let Some((broken, steps)) = outcome.violation {
        println!("  broken after {} steps: {broken}\n{}", steps.len(), tell(&model, &steps));
        return false;
    }
    println!(
        "  {}",
        if outcome.complete {
            "every state visited, nothing broken"
        } else {
            "stopped early, nothing broken"
        }
    );
    true
}

fn line(progress: Progress, took: Duration) -> String {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let states = u64::try_from(progress.states).unwrap_or(u64::MAX);
    format!(
        "depth {}, {} states ({} in the newest layer), {} transitions, {} s, {} states/s",
        progress.depth,
        progress.states,
        progress.layer,
        progress.transitions,
        micros / 1_000_000,
        states.saturating_mul(1_000_000) / micros.max(1)
    )
}

fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or_else(|| "unknown".to_owned(), |peak| peak.trim().to_owned())
}
