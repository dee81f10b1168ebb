//! A node of the demo: threads that run the jobs of users under governance until the parent says stop.
//!
//! It says `ready` on its standard output once every user's group is known, begins at once, and ends with its standard
//! input, which is also how it notices that the parent died.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tidegate_client::{Resolved, Ru};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::database::{self, Scale};
use super::workload::{UserLoad, Workload};
use crate::clock::monotonic_us;
use crate::error::CliError;
use crate::node::Governor;
use crate::output::{note, print};
use crate::stop;

/// What a node says when it begins.
pub(crate) const READY: &str = "ready";
/// Time between checkpoints of the write-ahead log.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// Beginnings that workers are spread over.
const SPREAD: u64 = 97;
/// Pause after a refusal, so that a group without a lease is not asked in a tight loop.
const AFTER_REFUSAL: Duration = Duration::from_millis(50);

/// One thread's work.
struct Worker {
    governor: Arc<Governor>,
    who: Resolved,
    load: UserLoad,
    scale: Scale,
    database: PathBuf,
    seed: u64,
    handle: Handle,
    stop: watch::Receiver<bool>,
}

/// Runs the workload until it is stopped; returns when no operation is under way.
pub(crate) async fn run(governor: &Arc<Governor>, workload: &Path, database: &Path) -> Result<(), CliError> {
    let workload = Workload::read(workload)?;
    let (stopping, stopped) = watch::channel(false);
    let mut threads = vec![start("checkpoints", checkpoints(database, &stopped))?];
    let mut number = 0;
    for load in &workload.users {
        let who = governor.resolve(&load.tenant, &load.user).await?;
        for (sql, ru) in &workload.costs {
            governor.learn(&who, sql, Ru(*ru));
        }
        for _ in 0..load.workers {
            number += 1;
            let worker = Worker {
                governor: Arc::clone(governor),
                who: who.clone(),
                load: load.clone(),
                scale: workload.scale,
                database: database.to_owned(),
                seed: workload.seed.wrapping_mul(1_000).wrapping_add(number),
                handle: Handle::current(),
                stop: stopped.clone(),
            };
            threads.push(start(&load.user, move || worker.work())?);
        }
    }
    print(READY)?;
    let done = stop::requested(true).await;
    stopping.send_replace(true);
    let joined = tokio::task::spawn_blocking(move || join(threads)).await;
    done?;
    joined.map_err(|error| broken("threads", &error.to_string()))?
}

fn broken(what: &str, reason: &str) -> CliError {
    CliError::Process { what: what.to_owned(), reason: reason.to_owned() }
}

type Thread = JoinHandle<Result<(), CliError>>;

fn start(
    name: &str,
    work: impl FnOnce() -> Result<(), CliError> + Send + 'static,
) -> Result<Thread, CliError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(|error| broken(name, &error.to_string()))
}

fn join(threads: Vec<Thread>) -> Result<(), CliError> {
    let mut done = Ok(());
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Err(broken("worker", "it panicked")));
        done = done.and(ended);
    }
    done
}

/// Keeps the write-ahead log short. The node itself bears the cost; no group is charged.
fn checkpoints(
    database: &Path,
    stop: &watch::Receiver<bool>,
) -> impl FnOnce() -> Result<(), CliError> + use<> {
    let (database, mut stop, handle) = (database.to_owned(), stop.clone(), Handle::current());
    move || {
        let connection = database::open(&database)?;
        while !handle.block_on(pause(CHECKPOINT_EVERY, &mut stop)) {
            database::checkpoint(&connection)?;
        }
        Ok(())
    }
}

/// Waits for `length`, or less when it is time to stop; true then.
async fn pause(length: Duration, stop: &mut watch::Receiver<bool>) -> bool {
    // A sender that is gone comes to the same as a stop.
    tokio::time::timeout(length, stop.wait_for(|stop| *stop)).await.is_ok()
}

impl Worker {
    fn work(mut self) -> Result<(), CliError> {
        let connection = database::open(&self.database)?;
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut told = false;
        // Workers begin spread over one pause, so that they do not march in step.
        let ago = self.load.busy_pause_us.saturating_mul(self.seed % SPREAD) / SPREAD;
        let mut began = monotonic_us().saturating_sub(ago);
        let mut least = Duration::ZERO;
        loop {
            let rest = self.load.rest(began, monotonic_us()).unwrap_or_default().max(least);
            if self.handle.block_on(pause(rest, &mut self.stop)) {
                return Ok(());
            }
            if self.load.rest(began, monotonic_us()).is_some() {
                continue;
            }
            (began, least) = (monotonic_us(), Duration::ZERO);
            let operation = self.load.job.operation(self.scale, &mut random);
            let max_wait = Duration::from_micros(self.load.max_wait_us);
            let mut stop = self.stop.clone();
            let admission = async {
                tokio::select! {
                    answer = self.governor.admit(&self.who, &operation, max_wait) => Some(answer),
                    _ = stop.wait_for(|stop| *stop) => None,
                }
            };
            match self.handle.block_on(admission) {
                None => return Ok(()),
                Some(Err(_)) => least = AFTER_REFUSAL,
                Some(Ok(admitted)) => {
                    let ran = self.governor.run(&connection, &operation, admitted);
                    if let Some(failure) = ran.failure.filter(|_| !told) {
                        note(&format!("{}: a statement failed: {failure}", self.load.user));
                        told = true;
                    }
                }
            }
        }
    }
}
