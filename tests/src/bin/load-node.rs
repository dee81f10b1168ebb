//! A node that does nothing but be charged: in each group, operations of random cost one after another, all logged.
//!
//! `load-node [--no-journal] ENDPOINT[,ENDPOINT…] IDENTITY FOLDER WORK…`, with the works of
//! `tidegate_tests::process::load`. Ends on SIGTERM once everything is reported; exit status 3 when something was not
//! confirmed in time, 1 when anything else fails.

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_client::{Client, Refused, Ru, RuParts};
use tidegate_sim::random::Random;
use tidegate_tests::process::finding::found;
use tidegate_tests::process::load::Work;
use tidegate_tests::process::log::{Log, MachineClock, Operation, machine_micros};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// Exit status when reports were not confirmed.
const UNCONFIRMED: u8 = 3;
/// How long the last reports may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait of an operation.
const WAIT: Duration = Duration::from_secs(2);
/// Longest pause after a refusal.
const RETRY: Duration = Duration::from_millis(50);

/// Between two looks at who leads.
const LOOK: Duration = Duration::from_millis(20);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("load-node: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode, Failure> {
    let args: Vec<String> = env::args().skip(1).collect();
    let (journal, args) = match args.as_slice() {
        [first, rest @ ..] if first == "--no-journal" => (false, rest),
        all => (true, all),
    };
    let [endpoint, identity, folder, works @ ..] = args else {
        return Err("usage: load-node [--no-journal] ENDPOINT[,ENDPOINT…] IDENTITY FOLDER WORK…".into());
    };
    let folder = Path::new(folder);
    let mut term = signal(SignalKind::terminate())?;
    let clock = MachineClock::start()?;
    let mut builder = Client::builder(endpoint.split(','), identity.as_str()).patience(PATIENCE);
    if journal {
        builder = builder.journal_dir(folder);
    }
    let client = builder.start()?;
    let incarnation = client.stats().incarnation;
    let log = Arc::new(Mutex::new(Log::open(&folder.join(format!("{identity}.log")), incarnation, journal)?));
    let mut tasks = JoinSet::new();
    tasks.spawn(look(client.clone(), Arc::clone(&log)));
    for (purpose, work) in (0..).zip(works) {
        let (work, log) = (work.parse::<Work>()?, Arc::clone(&log));
        tasks.spawn(labour(client.clone(), work, Random::new(incarnation, purpose), log, clock));
    }
    tokio::select! {
        _ = term.recv() => {}
        Some(failed) = tasks.join_next() => failed??,
    }
    // Between two awaits an operation is admitted, charged and logged, so none is cut in the middle.
    tasks.shutdown().await;
    let unconfirmed = client.shutdown().await.unconfirmed;
    if unconfirmed.is_empty() {
        log.lock().unwrap_or_else(PoisonError::into_inner).confirmed()?;
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("load-node: not confirmed: {unconfirmed:?}");
    Ok(ExitCode::from(UNCONFIRMED))
}

/// Writes down each newer leadership that the client sees.
async fn look(client: Client, log: Arc<Mutex<Log>>) -> Result<(), Failure> {
    let mut newest = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let epoch = client.link().epoch;
        if epoch > newest {
            newest = epoch;
            log.lock().unwrap_or_else(PoisonError::into_inner).led(epoch)?;
        }
    }
}

async fn labour(
    client: Client,
    work: Work,
    mut random: Random,
    log: Arc<Mutex<Log>>,
    clock: MachineClock,
) -> Result<(), Failure> {
    let group = found(&client, &work.group).await?;
    loop {
        let draw = work.draw(&mut random);
        let asked = machine_micros();
        match group.acquire(Ru(draw.estimate), WAIT).await {
            Ok(permit) => {
                // A purse pays by a clock that is behind, but not before it is asked.
                let admitted_us = clock.micros(permit.admitted_at()).max(asked);
                let operation = Operation {
                    admitted_us,
                    written_us: machine_micros(),
                    estimate: draw.estimate,
                    actual: draw.actual,
                    waited_us: admitted_us.saturating_sub(asked),
                    settled_us: None,
                };
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.admitted(&work.group, &operation)?;
                permit.settle_ru(RuParts::flat(Ru(draw.actual)));
                log.charged(&work.group, machine_micros())?;
            }
            Err(Refused::Throttled { retry_after, .. } | Refused::Unavailable { retry_after, .. }) => {
                tokio::time::sleep(retry_after.min(RETRY)).await;
            }
            Err(refused) => return Err(refused.into()),
        }
        if draw.pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(draw.pause).await;
        }
    }
}
