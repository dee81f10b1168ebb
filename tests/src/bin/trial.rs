//! Trials of real processes on real sockets: how much of their cap they admit at a distance, and over an outage of the
//! controller. `trial --help` describes how to read the figures.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tidegate_tests::process::trial::leaders::{self, Kills};
use tidegate_tests::process::trial::outage::{self, FALLBACK};
use tidegate_tests::process::trial::overload;
use tidegate_tests::process::trial::round_trip::{self, Distance};
use tidegate_tests::process::trial::{Admitted, NODES, RATE, Setting, takeover, transfer};

/// Runs a controller and four nodes that ask for more than their cap of 1,000 RU/s, as processes of the profile of this
/// one, and shows the RU that were admitted in each second.
///
/// Exit status: 0 when no window passed the bound, whatever share of the cap was used, which depends on the machine; 1
/// when one did, or when a process did not do what it should; 2 when called wrongly. Build tidegate and load-node of the
/// same profile first.
#[derive(Parser)]
#[command(name = "trial")]
struct Options {
    #[command(subcommand)]
    trial: Trial,
    /// Keeps store, logs and outputs in this folder, which must not exist.
    #[arg(long, value_name = "FOLDER", global = true)]
    keep: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Trial {
    /// The controller is far away.
    RoundTrip {
        /// Round trip in milliseconds.
        #[arg(long, value_name = "MS", default_value_t = 1_040)]
        ms: u64,
        /// Lease length in seconds.
        #[arg(long, value_name = "S", default_value_t = 5)]
        lease: u64,
        /// How long the load runs, in seconds; the first ten are left out of the share.
        #[arg(long, value_name = "S", default_value_t = 40)]
        seconds: u64,
    },
    /// The controller of thousands of nodes gets a tenth of the processor time it needs, for a minute.
    Overload {
        /// Nodes, each with a connection of its own.
        #[arg(long, value_name = "N", default_value_t = 10_000)]
        nodes: usize,
        /// Lease length in seconds.
        #[arg(long, value_name = "S", default_value_t = 5)]
        lease: u64,
    },
    /// The controller is killed, is away for five seconds and comes back, and the group has a fallback.
    Outage,
    /// Three controllers on three members of etcd: the one that leads is killed, again and again. Prints how long it took
    /// from each kill until another one was ready and granted.
    Takeover {
        /// How many times.
        #[arg(long, value_name = "N", default_value_t = 200)]
        kills: u64,
        /// One kill in so many is followed until a newcomer of a group with a limit has a lease.
        #[arg(long, value_name = "N", default_value_t = 5)]
        limited_every: u64,
    },
    /// Four nodes ask for all they can get while the leader of three controllers is killed, is away for five seconds and
    /// comes back, again and again. Prints what was admitted, and how much of what was charged is in the ledger.
    Leaders {
        /// How many times.
        #[arg(long, value_name = "N", default_value_t = 10)]
        kills: u64,
        /// From one kill to the next, in seconds.
        #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(6..))]
        every: u64,
        /// Does it to servers of PD and nodes with PD's client in place of ours, which `tests/pd/build` put there.
        #[arg(long, value_name = "FOLDER")]
        pd: Option<PathBuf>,
    },
    /// The same cluster: the member of etcd that leads is killed, alone. Prints how long nothing was granted, and whether
    /// another controller led after it.
    Member {
        /// How many times.
        #[arg(long, value_name = "N", default_value_t = 50)]
        kills: u64,
    },
    /// The same cluster: the controller that leads is drained while nodes hold many leases. Prints how long nothing was
    /// granted, and whether the next one recovered.
    Transfer {
        /// How many times.
        #[arg(long, value_name = "N", default_value_t = 20)]
        times: u64,
        /// Leases of all nodes, each of a group of its own.
        #[arg(long, value_name = "N", default_value_t = 10_000)]
        leases: u64,
        /// Nodes. Each has ten grants a second at most, so that with few of them nothing is granted for a while anyway.
        #[arg(long, value_name = "N", default_value_t = 20)]
        nodes: u64,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("trial: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(folder) = options.keep.as_deref().filter(|folder| folder.exists()) {
        return Err(format!("--keep {}: exists already; name a new directory", folder.display()).into());
    }
    let scratch = tempfile::Builder::new().prefix("tidegate-trial-").tempdir()?;
    let folder = options.keep.unwrap_or_else(|| scratch.path().to_owned());
    std::fs::create_dir_all(&folder)?;
    let here = env::current_exe()?;
    let setting = Setting { folder, load_node: here.parent().unwrap_or(Path::new(".")).join("load-node") };
    let admitted = match options.trial {
        Trial::RoundTrip { ms, lease, seconds } => {
            let distance = Distance {
                round_trip: Duration::from_millis(ms),
                lease: Duration::from_secs(lease),
                lasts: Duration::from_secs(seconds),
            };
            let outcome = round_trip::run(&setting, distance).await?;
            println!("round trip {ms} ms, leases of {lease} s: {} of {RATE} RU/s used", outcome.mean);
            outcome.admitted
        }
        Trial::Overload { nodes, lease } => {
            let outcome = overload::run(&setting, nodes, Duration::from_secs(lease)).await?;
            let (from, to) = outcome.overload;
            println!("{nodes} nodes, {} RU/s, controller uses {:?} of a second", outcome.rate, outcome.needs);
            println!("overload from {from} s to {to} s");
            match outcome.recovered {
                Some(seconds) => println!("nine tenths of the rate used {seconds} s after its end"),
                None => println!("nine tenths of the rate were not used again"),
            }
            outcome.admitted
        }
        Trial::Outage => {
            let outcome = outage::run(&setting).await?;
            let least = outcome.least;
            println!(
                "killed at {} s, back at {} s, {NODES} nodes with a fallback of {FALLBACK} RU/s",
                outcome.died, outcome.back
            );
            println!("worst second since the kill: {least}");
            match outcome.recovered {
                Some(seconds) => println!("nine tenths of the rate used {seconds} s after its return"),
                None => println!("nine tenths of the rate were not used again"),
            }
            outcome.admitted
        }
        Trial::Leaders { kills, every, pd } => {
            let kills = Kills { count: kills, every: Duration::from_secs(every) };
            let outcome = match pd {
                Some(pd) => leaders::of_pd(&setting, pd.join("pd-server"), pd.join("node"), kills).await?,
                None => leaders::of_ours(&setting, kills).await?,
            };
            show_leaders(&outcome);
            outcome.admitted
        }
        Trial::Takeover { kills, limited_every } => {
            return Ok(show_kills(&takeover::kills(&setting, kills, limited_every).await?));
        }
        Trial::Transfer { times, leases, nodes } => {
            return Ok(show_transfers(&transfer::transfers(&setting, leases, nodes, times).await?));
        }
        Trial::Member { kills } => return Ok(show_members(&takeover::members(&setting, kills).await?)),
    };
    Ok(shown(&admitted))
}

fn show_kills(outcome: &takeover::Kills) -> ExitCode {
    let takeover::Kills { ready, first_grant, last_grant, unlimited, limited, refused } = outcome;
    println!("from the kill of the controller that leads until");
    println!("  another one was ready:                             {ready}");
    println!("  the first connected node had a grant:              {first_grant}");
    println!("  the last connected node had a grant:               {last_grant}");
    println!("  a newcomer was admitted in a group without limit:  {unlimited}");
    println!("  a newcomer was admitted in a group with a limit:   {limited}");
    show_refused(*refused)
}

fn show_members(outcome: &takeover::Members) -> ExitCode {
    println!("after kills of the member of etcd that leads");
    println!("  another controller led:                            {} times", outcome.changes);
    println!("  nothing was granted for:                           {}", outcome.silent);
    println!("  a newcomer was admitted in a group without limit:  {}", outcome.unlimited);
    show_refused(outcome.refused)
}

fn show_transfers(outcome: &transfer::Transfers) -> ExitCode {
    println!(
        "drains of the controller that leads, with {} leases of {} nodes",
        outcome.leases, outcome.nodes
    );
    println!("  nothing was granted for:                           {}", outcome.without_grants);
    println!("  each node had a grant after:                       {}", outcome.all_granted);
    println!("  the next one said that it leads after:             {}", outcome.led);
    println!("  the next one recovered, or began another epoch:    {} times", outcome.recoveries);
    show_refused(outcome.refused)
}

fn show_leaders(outcome: &leaders::Outcome) {
    println!("no node was admitted anything for {} ms at most", outcome.still.0 / 1_000);
    println!("worst window above rate * window since the first kill: {}", outcome.since_kill);
    println!("charged on the nodes: {}", outcome.charged);
    println!("in the ledger:        {}", outcome.known);
}

fn show_refused((refused, all): (u64, u64)) -> ExitCode {
    println!("{refused} of {all} operations of nodes with leases were refused");
    ExitCode::SUCCESS
}

fn shown(admitted: &Admitted) -> ExitCode {
    let Admitted { series, worst, allowed } = admitted;
    println!("RU in each second: {series}");
    println!("worst window above rate * window: {worst}, of {allowed} that may be");
    if worst > allowed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
