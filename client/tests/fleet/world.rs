//! A run: the controller, the nodes, and time.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::sleep;

use crate::center::{Center, actor};
use crate::judge::{self, Cap};
use crate::log::Log;
use crate::network::Road;
use crate::plan::{CALM_AT, END_AT, Plan, RECOVERED_AT};
use crate::process::Process;

/// The controller's background tasks, and the times at which processes start again.
const STEP: Duration = Duration::from_millis(100);

/// A node that was silent for this long can be forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(70);
/// Nodes run for so many steps after that.
const COME_BACK_STEPS: u32 = 20;

/// One node.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) process: Option<Process>,
    /// What the last process left.
    pub(crate) journal: Option<TempDir>,
    /// Starts so far.
    pub(crate) starts: u32,
    pub(crate) start_at: u64,
}

/// The fleet.
pub(crate) struct World<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) center: Arc<Center>,
    pub(crate) center_up_at: Option<u64>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) caps: Vec<Cap>,
    pub(crate) log: Log,
}

/// Runs a plan. Returns what did not hold.
pub(crate) fn run(plan: &Plan) -> Vec<String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async { World::new(plan).run().await })
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> Self {
        let center = Center::new();
        let service = center.service().unwrap();
        // Those above come first.
        for group in plan.groups.iter().rev() {
            service.definitions().create_group(&actor(), &group.definition(group.rate), false).unwrap();
        }
        let nodes = plan.nodes.iter().map(|_| Node::default()).collect();
        let caps = plan.groups.iter().map(Cap::new).collect();
        Self { plan, center, center_up_at: None, nodes, caps, log: Log::new() }
    }

    async fn run(mut self) -> Vec<String> {
        let mut recovered = None;
        let mut faults = self.plan.faults.iter().peekable();
        while self.log.now() < micros(END_AT) {
            while let Some((_, fault)) = faults.next_if(|(due, _)| micros(*due) <= self.log.now()) {
                self.befall(fault).await;
            }
            self.see_to(self.log.now() >= micros(CALM_AT));
            if self.log.now() >= micros(RECOVERED_AT) {
                recovered.get_or_insert_with(|| judge::admitted(&self));
            }
            sleep(STEP).await;
        }
        let mut found = judge::use_of_rates(&self, &recovered.unwrap());
        found.extend(self.end_all().await);
        found.extend(judge::bounds(&self));
        found.extend(self.center.service().unwrap().check().err());
        found.extend(self.forget_all().await);
        self.center.end(true).await;
        found
    }

    /// Every process ends in order, and the books are compared.
    async fn end_all(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let Some(process) = node.process.take() else { continue };
            let (shutdown, journal) = process.end().await;
            node.journal = journal;
            if !shutdown.unconfirmed.is_empty() {
                found.push(format!("node {number} left {:?}", shutdown.unconfirmed));
            }
        }
        found.extend(judge::ledger(self));
        found
    }

    /// The operator has the controller forget all nodes, which changes no sum, and then they come back.
    async fn forget_all(&mut self) -> Vec<String> {
        sleep(FORGET_AFTER).await;
        self.center.upkeep();
        let names: Vec<String> = (0..self.nodes.len()).map(Process::name).collect();
        let service = self.center.service().unwrap();
        let mut found: Vec<String> = service
            .accounts()
            .forget_clients(&actor(), &names)
            .err()
            .map(|error| format!("the controller does not forget its nodes: {error}"))
            .into_iter()
            .collect();
        drop(service);
        found.extend(judge::ledger(self));
        self.see_to(true);
        for _ in 0..COME_BACK_STEPS {
            sleep(STEP).await;
            self.see_to(true);
        }
        found.extend(self.end_all().await);
        found
    }

    /// What is due: processes that start, and the controller's own tasks.
    fn see_to(&mut self, calm: bool) {
        let now = self.log.now();
        if self.center_up_at.is_some_and(|at| at <= now || calm) {
            self.center_up_at = None;
            self.center.start();
        }
        self.center.upkeep();
        for node in 0..self.nodes.len() {
            if self.nodes[node].process.is_none() && (self.nodes[node].start_at <= now || calm) {
                self.start(node);
            }
        }
    }

    fn start(&mut self, number: usize) {
        let (node, plan) = (&mut self.nodes[number], &self.plan.nodes[number]);
        node.starts += 1;
        let road = Road::new(&self.center, plan.delay, self.plan.max_entries);
        let (life, seed) = ((number, node.starts), self.plan.seed);
        let with = (road, self.log.clone());
        let journal = node.journal.take();
        node.process = Some(Process::start(plan, &self.plan.groups, with, (life, seed), journal));
    }

    /// A process ended, and the next starts after this time.
    pub(crate) fn start_later(&mut self, number: usize, down: Duration) {
        self.nodes[number].start_at = self.log.now() + micros(down);
    }
}

/// A duration in microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}

/// Lets virtual time pass.
pub(crate) async fn pause(duration: Duration) {
    sleep(duration).await;
}
