//! A node that does nothing but be charged: operations of random cost, one after another, each logged.
//!
//! `load-node ENDPOINT IDENTITY GROUP FOLDER`; ends on SIGTERM after everything is reported, prints what was not.

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tidegate_client::{Client, Refused, Ru, RuParts};
use tidegate_tests::process::log::{Log, machine_micros};
use tidegate_tests::sim::random::Random;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load-node: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [endpoint, identity, group, folder] = args.as_slice() else {
        return Err("usage: load-node ENDPOINT IDENTITY GROUP FOLDER".into());
    };
    let folder = Path::new(folder);
    let mut term = signal(SignalKind::terminate())?;
    let client = Client::builder([endpoint.as_str()], identity.as_str())
        .journal_dir(folder)
        .patience(Duration::from_secs(30))
        .start()?;
    let incarnation = client.stats().incarnation;
    let mut log = Log::open(&folder.join(format!("{identity}.log")), incarnation)?;
    let group = tokio::select! {
        group = client.group(group) => group?,
        _ = term.recv() => return finish(&client).await,
    };
    let mut random = Random::new(incarnation, 0);
    loop {
        let cost = Ru(i64::try_from(random.between(100_000, 3_000_000))?);
        let acquired = tokio::select! {
            acquired = group.acquire(cost, Duration::from_secs(2)) => acquired,
            _ = term.recv() => return finish(&client).await,
        };
        match acquired {
            Ok(permit) => {
                let ago = u64::try_from(permit.admitted_at().elapsed().as_micros())?;
                log.admitted(machine_micros() - ago, cost.0)?;
                permit.settle_ru(RuParts::flat(cost));
                log.charged()?;
            }
            Err(Refused::Throttled { retry_after, .. } | Refused::Unavailable { retry_after, .. }) => {
                tokio::select! {
                    () = tokio::time::sleep(retry_after.min(Duration::from_millis(50))) => {}
                    _ = term.recv() => return finish(&client).await,
                }
            }
            Err(refused) => return Err(refused.into()),
        }
    }
}

async fn finish(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let unconfirmed = client.shutdown().await.unconfirmed;
    if unconfirmed.is_empty() { Ok(()) } else { Err(format!("not confirmed: {unconfirmed:?}").into()) }
}
