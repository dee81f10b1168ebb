//! One process of a node: a client as services make it, and the operations that they run.

use std::fs;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tempfile::TempDir;
use tidegate_client::{Client, Ru, RuParts, Shutdown};
use tokio::task::JoinHandle;

use crate::log::Log;
use crate::network::Road;
use crate::plan::{GroupPlan, NodePlan};
use crate::world::pause;

/// A waiter gives up after this.
const PATIENCE: Duration = Duration::from_secs(3);

/// The process.
pub(crate) struct Process {
    client: Client,
    pub(crate) road: Road,
    life: (usize, u32),
    log: Log,
    workers: Vec<JoinHandle<()>>,
    /// Its journal, if it has one.
    folder: Option<TempDir>,
}

impl Process {
    /// The name of a node.
    pub(crate) fn name(node: usize) -> String {
        format!("node-{node}")
    }

    /// Starts, on the journal that the process before it left.
    pub(crate) fn start(
        plan: &NodePlan,
        groups: &[GroupPlan],
        (road, log): (Road, Log),
        (life, seed): ((usize, u32), u64),
        journal: Option<TempDir>,
    ) -> Self {
        let folder = plan.journal.then(|| journal.unwrap_or_else(|| TempDir::new().unwrap()));
        let mut builder = Client::builder(["fleet"], Self::name(life.0))
            .transport(road.clone())
            .idle_after(plan.idle_after);
        if let Some(folder) = &folder {
            builder = builder.journal_dir(folder.path());
        }
        let client = builder.start().unwrap();
        let mut workers = Vec::new();
        for group in groups {
            for number in 0..group.workers {
                let seed = seed ^ u64::from(life.1) << 32 ^ (number as u64) << 24 ^ workers.len() as u64;
                let random = SmallRng::seed_from_u64(seed.wrapping_mul(life.0 as u64 + 1));
                let worker = Worker { client: client.clone(), life, log: log.clone(), random };
                workers.push(tokio::spawn(worker.run(group.clone(), plan.pause)));
            }
        }
        Self { client, road, life, log, workers, folder }
    }

    /// Ends at once, as `kill -9` does. Returns the journal as it was left.
    pub(crate) fn kill(self) -> Option<TempDir> {
        self.road.close();
        self.log.close(self.life, self.folder.is_none());
        self.workers.iter().for_each(JoinHandle::abort);
        self.folder.as_ref().map(copy)
    }

    /// Ends in order. Returns how that went, and the journal.
    pub(crate) async fn end(self) -> (Shutdown, Option<TempDir>) {
        let shutdown = self.client.shutdown().await;
        self.workers.iter().for_each(JoinHandle::abort);
        let lost = self.folder.is_none() && !shutdown.unconfirmed.is_empty();
        self.log.close(self.life, lost || shutdown.open_permits > 0);
        self.road.break_off();
        (shutdown, self.folder.as_ref().map(copy))
    }
}

/// The files as they are now: what destructors still do to them is not done by a process that is gone.
fn copy(folder: &TempDir) -> TempDir {
    let left = TempDir::new().unwrap();
    for file in fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap().path();
        fs::copy(&file, left.path().join(file.file_name().unwrap())).unwrap();
    }
    left
}

/// One after the other, operations of a group.
struct Worker {
    client: Client,
    life: (usize, u32),
    log: Log,
    random: SmallRng,
}

impl Worker {
    async fn run(mut self, plan: GroupPlan, break_time: Duration) {
        loop {
            if self.random.random_range(0..400) == 0 {
                pause(break_time).await;
            }
            let group = match self.client.group(&plan.name).await {
                Ok(group) => group,
                Err(_) => {
                    pause(Duration::from_millis(50)).await;
                    continue;
                }
            };
            for _ in 0..self.random.random_range(1..50) {
                self.operation(&group, &plan).await;
            }
        }
    }

    async fn operation(&mut self, group: &tidegate_client::Group, plan: &GroupPlan) {
        let estimate = Ru::whole(i64::from(self.random.random_range(1..=plan.largest)));
        let Ok(permit) = group.acquire(estimate, PATIENCE).await else {
            // Nobody asks again at once.
            pause(Duration::from_millis(self.random.random_range(1..20))).await;
            return;
        };
        let group = group.clone();
        self.log.moved(self.life, &plan.name, estimate);
        pause(Duration::from_millis(self.random.random_range(0..4))).await;
        if !plan.wrong {
            permit.settle_ru(RuParts::flat(estimate));
            return self.log.charged(self.life, &group, (estimate, estimate));
        }
        let share = |hundredths: i64| Ru(estimate.0 / 100 * hundredths);
        let actual = match self.random.random_range(0..10) {
            0 => {
                permit.cancel();
                return self.log.moved(self.life, &plan.name, Ru::ZERO - estimate);
            }
            1 => {
                drop(permit);
                return self.log.charged(self.life, &group, (estimate, estimate));
            }
            2 => Ru::ZERO,
            3..=6 => share(self.random.random_range(1..100)),
            7 => share(self.random.random_range(100..180)),
            _ => estimate,
        };
        permit.settle_ru(RuParts::flat(actual));
        self.log.charged(self.life, &group, (estimate, actual));
    }
}
