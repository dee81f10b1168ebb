//! Real processes under load, killed and cut off by a seed: `chaos --kills 1000`. Prints the figures; exit status 1
//! and the evidence kept when a promise was broken or the run could not go on, 2 when called wrongly.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use tidegate_tests::process::chaos::Settings;
use tidegate_tests::process::chaos::run::run;

const USAGE: &str = "usage: chaos [--kills N | --cluster [--strict] [--faults N]] [--seed S] [--minutes M] [--keep DIR]\n\
    runs a controller and four nodes under load and lets faults of seed S (1 unless told) happen until N processes\n\
    (1000 unless told) were killed with kill -9, about 80 a minute, or M minutes (60 unless told) are over; then\n\
    judges the ledger, the bound, the leases and the definitions by the nodes' own logs\n\
      --cluster    runs three controllers on three members of etcd instead; the run ends after N faults (300 unless\n\
                   told), about 15 a minute\n\
      --strict     starts them with --cluster-strict\n\
      --keep DIR   keeps stores, journals and logs in DIR, which must not exist; without it they are kept, in a\n\
                   temporary directory that is named, only when something is wrong\n\
    It builds and runs the binaries of its own profile: cargo run --release -p tidegate-tests --bin chaos";

struct Args {
    kills: u64,
    faults: u64,
    cluster: bool,
    strict: bool,
    seed: u64,
    minutes: u64,
    keep: Option<PathBuf>,
}

fn parse(args: &[String]) -> Result<Option<Args>, String> {
    let mut parsed =
        Args { kills: 1_000, faults: 300, cluster: false, strict: false, seed: 1, minutes: 60, keep: None };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{arg} takes a value"));
        let number = |text: &String| text.parse().map_err(|_| format!("{arg} {text}: not a whole number"));
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--kills" => parsed.kills = number(value()?)?,
            "--faults" => parsed.faults = number(value()?)?,
            "--cluster" => parsed.cluster = true,
            "--strict" => parsed.strict = true,
            "--seed" => parsed.seed = number(value()?)?,
            "--minutes" => parsed.minutes = number(value()?)?,
            "--keep" => parsed.keep = Some(PathBuf::from(value()?)),
            _ => return Err(format!("{arg}: no such option")),
        }
    }
    if parsed.strict && !parsed.cluster {
        return Err("--strict: is of a cluster; add --cluster".to_owned());
    }
    if let Some(folder) = &parsed.keep
        && folder.exists()
    {
        return Err(format!("--keep {}: exists already; name a new directory", folder.display()));
    }
    Ok(Some(parsed))
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match parse(&args) {
        Ok(None) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(Some(args)) => match chaos(args).await {
            Ok(code) => code,
            Err(error) => {
                eprintln!("chaos: {error}");
                ExitCode::FAILURE
            }
        },
        Err(message) => {
            eprintln!("chaos: {message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

async fn chaos(args: Args) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let here = env::current_exe()?;
    let folder = here.parent().unwrap_or(Path::new("."));
    build(folder)?;
    let scratch = tempfile::Builder::new().prefix("tidegate-chaos-").tempdir()?;
    let settings = Settings {
        folder: args.keep.clone().unwrap_or_else(|| scratch.path().to_owned()),
        load_node: folder.join("load-node"),
        seed: args.seed,
        kills: if args.cluster { args.faults } else { args.kills },
        cluster: args.cluster,
        strict: args.strict,
        limit: Duration::from_secs(args.minutes.saturating_mul(60)),
        progress: true,
    };
    let outcome = run(&settings).await;
    let well = match &outcome {
        Ok(outcome) => {
            println!("{outcome}");
            outcome.violations.is_empty()
        }
        Err(error) => {
            eprintln!("chaos: seed {}: {error}", args.seed);
            false
        }
    };
    if well {
        return Ok(ExitCode::SUCCESS);
    }
    let kept = match args.keep {
        Some(folder) => folder,
        None => scratch.keep(),
    };
    eprintln!("chaos: the evidence of seed {} is in {}", args.seed, kept.display());
    Ok(ExitCode::FAILURE)
}

/// Builds the binaries that are run, in the profile of this one, so that none of them is an old one.
fn build(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    for (package, binary) in [("tidegate-cli", "tidegate"), ("tidegate-tests", "load-node")] {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--locked", "--quiet", "-p", package, "--bin", binary]);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        if !cargo.status()?.success() {
            return Err(format!("{binary} cannot be built").into());
        }
    }
    Ok(())
}
