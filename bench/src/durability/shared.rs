//! The ledger of a cluster under load: every node reports once a second, the controller commits to a log in etcd and to
//! its own file twice a second, and writes checkpoints meanwhile.
//!
//! The nodes report evenly over the second, from a thread of their own, whose time is not counted: it is that of
//! renewals. What is left of this process is commits, checkpoints and the connection to etcd.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tidegate_consensus::etcd::{Etcd, Written};
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{Service, ServiceConfig, Succession};
use tidegate_controller::store::replicated::{FilePlace, Follower, Owner, ReplicatedStore, Settings};
use tidegate_core::units::Span;
use tidegate_test_servers as servers;
use tidegate_tests::process::child::processor_time;

use super::ledger::{self, CLIENTS, GROUPS, Ledger, Node};
use crate::clock::{Stopwatch, process_cpu, thread_cpu};
use crate::error::{BenchError, failed};
use crate::row::{MS, Mark, PERCENT, Row};
use crate::samples::Samples;
use crate::setting::Setting;

/// Members of etcd.
const MEMBERS: usize = 3;
const SECOND: Duration = Duration::from_secs(1);
/// As often a second a controller commits.
const COMMITS: u32 = 2;
/// As often a controller looks whether a checkpoint is due.
const CHECKPOINT_EVERY: Duration = SECOND;
/// As long a controller asks for an answer: its fence.
const PATIENCE: Span = Span::secs(1);
/// Seconds in which rows are made and the first checkpoints written, before anything counts.
const BEFORE: usize = 5;

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let folder = tempfile::tempdir().map_err(failed("make a directory"))?;
    let clients = setting.size(CLIENTS, CLIENTS / 10);
    let etcd = servers::Etcd::start(MEMBERS, &[]).map_err(failed("start etcd"))?;
    let path = folder.path().join("store.redb");
    ledger::stock(&path)?;
    let store = own(&etcd, &path)?;
    let settings =
        ServiceConfig { succession: Succession::Cluster { silent: true }, ..ServiceConfig::default() };
    let ledger = Ledger::start(Arc::<ReplicatedStore>::clone(&store), settings, clients)?;
    let measured = under_load(ledger, &store, &etcd, setting.with_rounds(60).rounds)?;
    let row = |what: &str, unit, figures| {
        let case = format!("durability-cluster/{} pairs a second, {what}", clients * GROUPS);
        Row::new(case, unit, Samples::new(figures))
    };
    let shares = |cpu: &[Duration]| cpu.iter().map(|cpu| cpu.as_secs_f64() * 100.0).collect();
    let ms = |times: &[Duration]| times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    let late = measured.durable.iter().filter(|time| **time > SECOND.mul_f64(1.5)).count();
    let late = late as f64 * 100.0 / measured.durable.len().max(1) as f64;
    Ok(vec![
        row("controller, share of a core", PERCENT, shares(&measured.ours)).mark(Mark::AtMost(25.0)),
        row("three members of etcd together, share of a core", PERCENT, shares(&measured.theirs))
            .mark(Mark::AtMost(30.0)),
        row("a report is durable", MS, ms(&measured.durable)),
        row("reports durable after more than 1.5 s", PERCENT, vec![late]).mark(Mark::AtMost(1.0)),
    ])
}

/// A log that begins with the file at `path`, owned by its controller.
fn own(etcd: &servers::Etcd, path: &Path) -> Result<Arc<ReplicatedStore>, BenchError> {
    let settings = Written { endpoints: etcd.endpoints(), ..Written::default() };
    let settings = settings.check().map_err(failed("find etcd"))?;
    let consensus = Arc::new(Etcd::new(settings).map_err(failed("ask etcd"))?);
    let place = Arc::new(FilePlace::new(path));
    let log = Settings::new(Clock::start(), PATIENCE);
    let follower =
        Follower::follow(consensus, "bench/", place, log, true).map_err(failed("follow the log"))?;
    let owner = Owner {
        controller: "bench".to_owned(),
        instance: 1,
        addresses: Vec::new(),
        fence_ms: PATIENCE.0 / 1_000,
        clean: false,
    };
    let seen = follower.look().map_err(failed("see who owns the log"))?;
    let taken = follower.take(&seen, &owner);
    taken.map(Arc::new).map_err(|not| failed("take the log")(not.error))
}

/// Processor time second by second, and how long after its renewal each report was durable.
#[derive(Default)]
struct Measured {
    ours: Vec<Duration>,
    theirs: Vec<Duration>,
    durable: Vec<Duration>,
}

/// What the threads of the measurement share.
struct Load<'a> {
    service: &'a Service,
    watch: Stopwatch,
    ending: AtomicBool,
    reported: Mutex<Reported>,
}

/// What the nodes did.
#[derive(Default)]
struct Reported {
    /// When reports were taken that are not durable yet.
    waiting: Vec<Duration>,
    /// Processor time of all renewals.
    cpu: Duration,
}

fn under_load(
    ledger: Ledger,
    store: &ReplicatedStore,
    etcd: &servers::Etcd,
    seconds: usize,
) -> Result<Measured, BenchError> {
    let Ledger { service, mut nodes } = ledger;
    let load = Load {
        service: &service,
        watch: Stopwatch::start(),
        ending: AtomicBool::new(false),
        reported: Mutex::default(),
    };
    thread::scope(|scope| {
        let reporting = scope.spawn(|| load.report(&mut nodes));
        let short = scope.spawn(|| load.keep_short(store));
        let measured = load.measure(etcd, seconds);
        load.ending.store(true, Ordering::Release);
        let wrong = |_| BenchError::Wrong("a thread of the measurement panicked".to_owned());
        reporting.join().map_err(wrong)??;
        short.join().map_err(wrong)??;
        measured
    })
}

impl Load<'_> {
    /// Every node reports once a second, evenly.
    fn report(&self, nodes: &mut [Node]) -> Result<(), BenchError> {
        let each = SECOND / u32::try_from(nodes.len().max(1)).unwrap_or(u32::MAX);
        let mut due = self.watch.elapsed();
        loop {
            for node in &mut *nodes {
                self.wait(due);
                if self.is_ending() {
                    return Ok(());
                }
                due += each;
                let before = thread_cpu();
                node.report(self.service)?;
                let mut reported = self.reported();
                reported.cpu += thread_cpu().saturating_sub(before);
                reported.waiting.push(self.watch.elapsed());
            }
        }
    }

    /// Writes checkpoints, as a controller that leads does.
    fn keep_short(&self, store: &ReplicatedStore) -> Result<(), BenchError> {
        while !self.is_ending() {
            self.wait(self.watch.elapsed() + CHECKPOINT_EVERY);
            store.checkpoint_if_due().map_err(failed("write a checkpoint"))?;
        }
        Ok(())
    }

    /// Commits twice a second, and counts from the time on when the first checkpoints are written.
    fn measure(&self, etcd: &servers::Etcd, seconds: usize) -> Result<Measured, BenchError> {
        let mut measured = Measured::default();
        let mut due = self.watch.elapsed();
        let mut before = self.spent(etcd)?;
        for second in 0..BEFORE + seconds {
            for _ in 0..COMMITS {
                due += SECOND / COMMITS;
                self.wait(due);
                let durable = self.commit()?;
                if second >= BEFORE {
                    measured.durable.extend(durable);
                }
            }
            let now = self.spent(etcd)?;
            if second >= BEFORE {
                measured.ours.push(now.0.saturating_sub(before.0));
                measured.theirs.push(now.1.saturating_sub(before.1));
            }
            before = now;
        }
        Ok(measured)
    }

    /// Commits all reports so far, and returns how long after its renewal each is durable.
    fn commit(&self) -> Result<Vec<Duration>, BenchError> {
        let waiting = std::mem::take(&mut self.reported().waiting);
        ledger::commit(self.service)?;
        let now = self.watch.elapsed();
        Ok(waiting.into_iter().map(|taken| now.saturating_sub(taken)).collect())
    }

    /// Processor time so far: of this process without renewals, and of all members of etcd.
    fn spent(&self, etcd: &servers::Etcd) -> Result<(Duration, Duration), BenchError> {
        let ours = process_cpu().saturating_sub(self.reported().cpu);
        let theirs = etcd.pids().into_iter().map(processor_time).sum::<Result<Duration, _>>();
        Ok((ours, theirs.map_err(failed("read the time of etcd"))?))
    }

    fn wait(&self, until: Duration) {
        while !self.is_ending() {
            let left = until.saturating_sub(self.watch.elapsed());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    fn reported(&self) -> MutexGuard<'_, Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
