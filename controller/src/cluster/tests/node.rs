//! A node: a process with a clock of its own, and the node machines that ship, one for each group.

use std::collections::BTreeMap;

use tidegate_core::engine::EngineConfig;
use tidegate_core::node::{Acquired, Admitted, Estimate, LeaseState, NodeConfig, NodeGroup, WaiterId};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

use super::groups::tree;
use super::lines::Lines;
use super::reports::Reports;
use super::session::Session;
use super::world::{Draws, SECOND};

pub(super) struct Node {
    pub(super) name: String,
    /// What its clock shows at zero, and how much too fast it is, in millionths.
    zero: u64,
    ppm: i64,
    pub(super) is_up: bool,
    /// Which start of it this is.
    pub(super) incarnation: u64,
    /// It does not go on before: stopped, as by SIGSTOP.
    pub(super) stopped_until: u64,
    pub(super) groups: BTreeMap<usize, NodeGroup>,
    pub(super) proofs: BTreeMap<usize, Vec<u8>>,
    waiting: BTreeMap<(usize, WaiterId), Operation>,
    /// Operations that run.
    pub(super) running: u64,
    pub(super) reports: Reports,
    pub(super) session: Session,
    pub(super) lines: Lines,
    /// When it is woken next.
    pub(super) wake: Option<u64>,
    /// The most that earlier incarnations owed, by group.
    owed: BTreeMap<usize, Ru>,
}

#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub(super) group: usize,
    pub(super) estimate: Ru,
    pub(super) actual: Ru,
    pub(super) lasts: u64,
    pub(super) waits: u64,
}

impl Node {
    pub(super) fn new(at: usize, draws: &Draws) -> Self {
        let drift = u64::from(EngineConfig::default().drift_ppm);
        Self {
            name: format!("node-{at}"),
            zero: draws.below(1_000 * SECOND),
            ppm: i64::try_from(draws.below(drift + 1)).unwrap() - i64::try_from(drift / 2).unwrap(),
            is_up: true,
            incarnation: 1,
            stopped_until: 0,
            groups: BTreeMap::new(),
            proofs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: 0,
            reports: Reports::default(),
            session: Session::new(at),
            lines: Lines::default(),
            wake: None,
            owed: BTreeMap::new(),
        }
    }

    /// What its clock shows at a true time.
    pub(super) fn clock(&self, now: u64) -> Time {
        let off = i128::from(now) * i128::from(self.ppm) / 1_000_000;
        Time(u64::try_from(i128::from(self.zero + now) + off).unwrap())
    }

    /// The true time at which its clock shows this at the latest.
    pub(super) fn true_time(&self, at: Time) -> u64 {
        let ran = i128::from(at.0) - i128::from(self.zero);
        u64::try_from(ran * 1_000_000 / i128::from(1_000_000 + self.ppm) + 1).unwrap_or(0)
    }

    /// An operation arrives; whether it may start at once.
    pub(super) fn arrive(&mut self, now: u64, operation: Operation) -> bool {
        let (clock, deadline) = (self.clock(now), self.clock(now + operation.waits));
        let config = NodeConfig { idle_after: Span::secs(4), ..NodeConfig::default() };
        let fresh = || NodeGroup::new(clock, config);
        let group = self.groups.entry(operation.group).or_insert_with(fresh);
        match group.acquire(clock, operation.estimate, deadline) {
            Ok(Acquired::Now(admitted)) => {
                assert_eq!(admitted, Admitted::Paid, "no group is in shadow");
                true
            }
            Ok(Acquired::Queued(id)) => {
                self.waiting.insert((operation.group, id), operation);
                false
            }
            Err(_) => false,
        }
    }

    /// Operations whose turn it is. The others whose wait is over are gone.
    pub(super) fn turns(&mut self, now: u64) -> Vec<Operation> {
        let clock = self.clock(now);
        let mut started = Vec::new();
        for (at, group) in &mut self.groups {
            while let Some((waiter, outcome)) = group.poll(clock) {
                let operation = self.waiting.remove(&(*at, waiter)).unwrap();
                started.extend(outcome.is_ok().then_some(operation));
            }
        }
        started
    }

    pub(super) fn settle(&mut self, now: u64, operation: &Operation) {
        let (clock, taken) = (self.clock(now), Estimate::Paid(operation.estimate));
        let charged = RuParts::flat(operation.actual);
        let used = Consumption { charged, operations: 1, ..Consumption::default() };
        self.groups.get_mut(&operation.group).unwrap().settle(clock, taken, &used);
    }

    /// Brings the reports up to what the machines have counted.
    pub(super) fn tally(&mut self) {
        for (at, group) in &self.groups {
            self.reports.set(self.incarnation, *at, *group.consumption());
        }
    }

    /// The process ends; its journal stays, or is gone, too.
    pub(super) fn die(&mut self, has_journal: bool) {
        self.tally();
        for (at, group) in std::mem::take(&mut self.groups) {
            *self.owed.entry(at).or_default() += group.look().worst_debt();
        }
        if !has_journal {
            self.reports.lose();
        }
        self.proofs.clear();
        self.waiting.clear();
        (self.is_up, self.running, self.stopped_until, self.wake) = (false, 0, 0, None);
    }

    /// Another process starts in its place.
    pub(super) fn begin(&mut self) {
        self.is_up = true;
        self.incarnation += 1;
        self.reports.unsure();
        self.session = Session::new(self.session.turn);
    }

    /// The most that all its incarnations ever owed in a group and below it.
    pub(super) fn overrun(&self, group: usize) -> Ru {
        let owed = |at| self.owed.get(&at).copied().unwrap_or_default();
        let owes = |at| self.groups.get(&at).map(|group| group.look().worst_debt()).unwrap_or_default();
        tree(group).map(|at| owed(at) + owes(at)).sum()
    }

    /// The rate that it may use in a group and below it.
    pub(super) fn rate(&mut self, now: u64, group: usize) -> Rate {
        let clock = self.clock(now);
        let leased = tree(group).filter_map(|at| {
            let state = self.groups.get_mut(&at)?.state(clock);
            (state.lease == LeaseState::Leased).then_some(state.rate)
        });
        leased.sum()
    }

    /// Whether no operation runs or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }
}
