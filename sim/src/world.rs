//! The simulated world: events in virtual time, the shipped controller and node machines, and a network between.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::node::{NodeConfig, NodeGroup, WaiterId};
use tidegate_core::units::{Ru, Span, Time};
use tidegate_core::usage::Total;

use super::cap::Capped;
use super::charges::Charges;
use super::controller::Controller;
use super::copies::Copy;
use super::digest::Digest;
use super::holding::Holding;
use super::hunger::Hunger;
use super::load::{Arrivals, Load};
use super::log::Log;
use super::measure::Waits;
use super::network::{Faults, Link, Message};
use super::promise::Fallbacks;
use super::quota::Spent;
use super::random::Random;
use super::reports::Reports;
use super::settling::Fate;
use super::share::{Counted, Shares};
use super::witness::Witness;
use super::work::Work;

#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrival {
        load: usize,
        node: usize,
    },
    /// An operation that was let in ends.
    Settle {
        node: usize,
        process: u64,
        operation: Operation,
    },
    /// The waiter of an operation gives it up.
    Leave {
        node: usize,
        process: u64,
        group: GroupId,
        waiter: WaiterId,
    },
    Wake {
        node: usize,
    },
    ToController {
        node: usize,
        incarnation: u64,
        process: u64,
        message: Message,
    },
    ToNode {
        node: usize,
        process: u64,
        message: Message,
    },
    /// The controller is done with a message.
    Served,
    /// The controller's background tasks.
    Upkeep,
    StartNode {
        node: usize,
        same: bool,
    },
    StartController,
    /// The controller's disk takes writes again.
    DiskReturns,
    /// A controller that another took over from ends.
    EndOld {
        /// Takeovers until then.
        number: u64,
    },
    /// A node hears that its stream has ended.
    StreamEnded {
        node: usize,
        connection: u64,
    },
}

/// Time between commits of consumption.
const UPKEEP_EVERY: Span = Span::millis(500);

/// An admitted or waiting operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) load: usize,
    pub(super) group: GroupId,
    pub(super) cost: Ru,
    pub(super) since: Time,
    /// When it was let in.
    pub(super) began: Time,
    pub(super) fate: Fate,
    /// Admitted over a limit in shadow.
    pub(super) over: bool,
    /// Admitted without a lease of a limit in shadow: it counts in no bound.
    pub(super) free: bool,
    /// Where it counts in quotas.
    pub(super) counted: Counted,
}

pub(super) struct Node {
    pub(super) up: bool,
    pub(super) incarnation: u64,
    /// Number of the process; one that is started again, under whatever incarnation, hears nothing that was said to the
    /// one before.
    pub(super) process: u64,
    pub(super) seq: u64,
    /// Number of the stream to the controller; a new one begins when the old one is lost.
    pub(super) connection: u64,
    /// Streams up to this one go to the controller before the last takeover.
    pub(super) old_connection: u64,
    pub(super) groups: BTreeMap<GroupId, NodeGroup>,
    /// What it may hold of them at most.
    pub(super) holdings: BTreeMap<GroupId, Holding>,
    /// Proofs of the leases in hand.
    pub(super) proofs: BTreeMap<GroupId, Vec<u8>>,
    pub(super) reports: Reports,
    /// Charges of this incarnation before it was killed and started again.
    pub(super) before: BTreeMap<GroupId, Total>,
    /// Groups that users were bound to, as far as the node has heard, by load.
    pub(super) bindings: BTreeMap<usize, GroupId>,
    pub(super) waiting: BTreeMap<(GroupId, WaiterId), Operation>,
    /// Towards the controller, and towards the node.
    pub(super) links: [Link; 2],
    pub(super) wake: Option<Time>,
    pub(super) epoch: u64,
    /// The standing that the controller of that epoch sent.
    pub(super) standing: Vec<u8>,
    /// How much faster than true time the node's clock runs, in millionths.
    pub(super) drift_ppm: i64,
    /// Stopped (SIGSTOP, a frozen machine) until then; what happens meanwhile happens afterwards.
    pub(super) paused_until: Time,
    /// Says what is not so, from its own stream of lies.
    pub(super) lies: Option<Random>,
    /// The most debt of killed incarnations, by group.
    pub(super) past_debt: BTreeMap<GroupId, Ru>,
}

impl Node {
    fn new(seed: u64, index: usize) -> Self {
        Self {
            up: true,
            incarnation: 1,
            process: 1,
            seq: 0,
            connection: 1,
            old_connection: 0,
            groups: BTreeMap::new(),
            holdings: BTreeMap::new(),
            proofs: BTreeMap::new(),
            reports: Reports::default(),
            before: BTreeMap::new(),
            bindings: BTreeMap::new(),
            waiting: BTreeMap::new(),
            links: [0, 1].map(|direction| Link::new(seed, 2 * index as u64 + direction)),
            wake: None,
            epoch: 0,
            standing: Vec::new(),
            drift_ppm: 0,
            paused_until: Time(0),
            lies: None,
            past_debt: BTreeMap::new(),
        }
    }
}

/// What happened to processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Toll {
    /// Nodes that were killed.
    pub nodes: u64,
    /// Nodes that said goodbye.
    pub goodbyes: u64,
    /// Times the controller died.
    pub controllers: u64,
    /// Among them: in a sync.
    pub in_sync: u64,
    /// Syncs of the disk.
    pub syncs: u64,
    /// Times another controller took over from one that ran on.
    pub takeovers: u64,
    /// Times a copy of the store was put back.
    pub set_back: u64,
    /// Times a group that had given its lease up was used again.
    pub awakened: u64,
}

impl std::ops::AddAssign for Toll {
    fn add_assign(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.goodbyes += other.goodbyes;
        self.controllers += other.controllers;
        self.in_sync += other.in_sync;
        self.syncs += other.syncs;
        self.takeovers += other.takeovers;
        self.set_back += other.set_back;
        self.awakened += other.awakened;
    }
}

/// The whole simulated system.
pub struct World {
    /// Virtual time.
    pub now: Time,
    pub(super) events: BTreeMap<(Time, u64), Event>,
    pub(super) next_event: u64,
    pub(super) controller: Controller,
    /// The one that another took over from, and that does not know.
    pub(super) old: Option<Controller>,
    /// Until then it may grant.
    pub(super) old_until: Time,
    /// The controller is stopped (SIGSTOP, a frozen machine) until then; messages and background tasks wait.
    pub(super) stalled_until: Time,
    /// Time until the controller starts again after it died in a sync.
    pub(super) restart_after: Span,
    /// Definitions that were acknowledged.
    pub(super) specs: BTreeMap<GroupId, GroupSpec>,
    /// A definition that was being changed when the controller died: it may be in force or not.
    pub(super) doubtful: Option<(GroupId, Option<GroupSpec>)>,
    /// Users and the groups they were acknowledged to be bound to.
    pub(super) bound: BTreeMap<String, GroupId>,
    /// A copy of the store, and what was acknowledged by then.
    pub(super) copy: Option<Copy>,
    /// A copy was put back: what was counted since is not in the ledger until nodes report it again.
    pub(super) set_back: bool,
    /// Faults of the network.
    pub faults: Faults,
    pub(super) nodes: Vec<Node>,
    pub(super) loads: Vec<Load>,
    pub(super) delay: (Span, Span),
    /// Settings of the nodes.
    pub(super) config: NodeConfig,
    pub(super) fates: Random,
    pub(super) arrivals: Arrivals,
    pub(super) bounds: BTreeMap<GroupId, Capped>,
    pub(super) waits: BTreeMap<String, Waits>,
    pub(super) messages: u64,
    /// Invariants are checked after every event that touches a controller, release builds included.
    pub checked: bool,
    /// The first invariant that did not hold.
    pub violation: Option<String>,
    /// The longest lease that was ever defined.
    pub(super) longest_ttl: Span,
    /// Until then leases of before the last change may be out.
    pub(super) changing_until: Time,
    /// Groups that were removed, and what they were below.
    pub(super) gone: BTreeMap<GroupId, Option<GroupId>>,
    /// Groups that were removed and created again, and what each node had charged to them by then.
    pub(super) returned: BTreeMap<GroupId, Vec<Ru>>,
    /// The ledger's totals of each node in groups when they were removed, summed over all groups of a name.
    pub(super) retired: BTreeMap<GroupId, Vec<Ru>>,
    /// The same of groups whose removal a controller was asked for last.
    pub(super) retiring: BTreeMap<GroupId, Vec<Ru>>,
    /// Fallbacks count in the bounds.
    pub(super) fallbacks_count: bool,
    /// The highest fallbacks of each group.
    pub(super) fallbacks: BTreeMap<GroupId, Fallbacks>,
    /// Groups and all that they ever were below, themselves included.
    pub(super) fell_back_in: BTreeSet<(GroupId, GroupId)>,
    /// Which groups were charged to which ancestors; definitions move and go.
    pub(super) was_below: BTreeSet<(GroupId, GroupId)>,
    /// What was used of quotas.
    pub(super) quotas: BTreeMap<GroupId, Spent>,
    /// Shares of quotas.
    pub(super) shares: Shares,
    /// What counts in quotas, where that is kept.
    pub(super) charges: Charges,
    pub(super) toll: Toll,
    pub(super) witness: Witness,
    /// The controller's tasks, where they take time.
    pub(super) work: Option<Work>,
    /// Since when those who wait on a node for a group that falls back there were let in no more, and how long that may
    /// take.
    pub(super) hungry: BTreeMap<(usize, GroupId), Hunger>,
    /// The course of the run so far.
    pub(super) digest: Digest,
    /// Every message, when tracing.
    pub trace: Option<String>,
    /// Every operation, when recording.
    pub log: Option<Log>,
}

impl World {
    /// Nodes without groups, a controller without definitions.
    ///
    /// # Errors
    /// The controller does not start.
    pub fn new(seed: u64, nodes: usize, delay: (Span, Span)) -> Result<Self, String> {
        Self::fenced(seed, nodes, delay, None)
    }

    /// The same with a controller that has a fence.
    ///
    /// # Errors
    /// The controller does not start.
    pub fn fenced(seed: u64, nodes: usize, delay: (Span, Span), fence: Option<Span>) -> Result<Self, String> {
        let mut world = Self {
            now: Time(0),
            events: BTreeMap::new(),
            next_event: 0,
            controller: Controller::new(seed, fence).map_err(|error| error.to_string())?,
            old: None,
            old_until: Time(0),
            stalled_until: Time(0),
            restart_after: Span::secs(1),
            specs: BTreeMap::new(),
            doubtful: None,
            bound: BTreeMap::new(),
            copy: None,
            set_back: false,
            faults: Faults::default(),
            nodes: (0..nodes).map(|index| Node::new(seed, index)).collect(),
            loads: Vec::new(),
            delay,
            config: NodeConfig::default(),
            fates: Random::new(seed, 1),
            arrivals: Arrivals::new(seed),
            bounds: BTreeMap::new(),
            waits: BTreeMap::new(),
            messages: 0,
            checked: false,
            violation: None,
            longest_ttl: Span(0),
            changing_until: Time(0),
            gone: BTreeMap::new(),
            returned: BTreeMap::new(),
            retired: BTreeMap::new(),
            retiring: BTreeMap::new(),
            fallbacks_count: false,
            fallbacks: BTreeMap::new(),
            fell_back_in: BTreeSet::new(),
            was_below: BTreeSet::new(),
            quotas: BTreeMap::new(),
            shares: Shares::default(),
            charges: Charges::default(),
            toll: Toll::default(),
            witness: Witness::default(),
            work: None,
            hungry: BTreeMap::new(),
            digest: Digest::default(),
            trace: None,
            log: None,
        };
        world.at(Time(0).after(UPKEEP_EVERY), Event::Upkeep);
        Ok(world)
    }

    pub(super) fn at(&mut self, time: Time, event: Event) {
        self.events.insert((time, self.next_event), event);
        self.next_event += 1;
    }

    /// Starts a load.
    pub fn add_load(&mut self, load: Load) {
        let index = self.loads.len();
        self.waits.entry(load.label.clone()).or_default();
        for node in load.nodes.0..=load.nodes.1 {
            for first in load.first_arrivals() {
                self.at(first, Event::Arrival { load: index, node });
            }
        }
        self.loads.push(load);
    }

    pub(super) fn violate(&mut self, what: String) {
        if self.violation.is_none() {
            self.violation = Some(format!("at {} us: {what}", self.now.0));
        }
    }

    /// Runs until `until`.
    pub fn run(&mut self, until: Time) {
        while let Some((&(time, _), _)) = self.events.first_key_value() {
            if time > until {
                break;
            }
            let Some((_, event)) = self.events.pop_first() else {
                break;
            };
            self.set_time(time);
            self.handle(event);
            self.check();
        }
        self.set_time(until);
    }

    fn set_time(&mut self, now: Time) {
        self.now = now;
        self.controller.set_time(now);
        if let Some(old) = &self.old {
            old.set_time(now);
        }
    }

    pub(super) fn handle(&mut self, event: Event) {
        if let Event::Arrival { node, .. }
        | Event::Settle { node, .. }
        | Event::Leave { node, .. }
        | Event::Wake { node }
        | Event::ToNode { node, .. } = &event
            && let Some(state) = self.nodes.get_mut(*node)
            && state.up
            && state.paused_until > self.now
        {
            let until = state.paused_until;
            if matches!(event, Event::Wake { .. }) {
                state.wake = Some(until);
            }
            self.at(until, event);
            return;
        }
        if self.stalled() && self.is_for_controller(&event) {
            self.at(self.free_at(), event);
            return;
        }
        // So does one that another took over from, while it is at a commit: its clock is ahead.
        let old_until = self.old.as_ref().map_or(self.now, Controller::busy_until);
        if old_until > self.now && self.is_for_old(&event) {
            self.at(old_until, event);
            return;
        }
        self.digest.event(self.now, &event);
        match event {
            Event::Arrival { load, node } => self.arrive(load, node),
            Event::Settle { node, process, operation } => self.end(node, process, operation),
            Event::Leave { node, process, group, waiter } => self.leave(node, process, (group, waiter)),
            Event::Wake { node } => {
                if let Some(state) = self.nodes.get_mut(node)
                    && state.wake == Some(self.now)
                {
                    state.wake = None;
                    self.step(node);
                }
            }
            Event::ToController { node, incarnation, process, message } => {
                self.receive((node, incarnation, process), message);
            }
            Event::ToNode { node, process, message } => {
                // Who has said goodbye waits for the answer and for nothing else.
                let heard = |state: &Node| state.up || matches!(message, Message::Farewell { .. });
                if self.nodes.get(node).is_some_and(|state| state.process == process && heard(state)) {
                    self.at_node(node, message);
                }
            }
            Event::Served => self.serve(),
            Event::Upkeep => {
                if !self.stalled() {
                    self.controller.upkeep();
                    self.shares.settle();
                }
                if let Some(old) = &self.old {
                    old.upkeep();
                }
                self.died();
                self.push_lowers();
                self.at(self.now.after(UPKEEP_EVERY), Event::Upkeep);
            }
            Event::StartNode { node, same: false } => self.start_node(node),
            Event::StartNode { node, same: true } => self.start_node_again(node),
            Event::StartController => self.start_controller(),
            Event::DiskReturns => self.controller.disk.recover(),
            Event::EndOld { number } if number == self.toll.takeovers => self.end_old(),
            Event::EndOld { .. } => {}
            Event::StreamEnded { node, connection } => {
                if self.nodes.get(node).is_some_and(|state| state.connection == connection) {
                    self.lose_session(node);
                    self.step(node);
                }
            }
        }
    }

    /// What happened to processes so far.
    pub fn toll(&self) -> Toll {
        Toll { syncs: self.controller.disk.syncs(), ..self.toll }
    }

    /// The waits of the loads with a label.
    pub fn waits(&self, label: &str) -> Option<&Waits> {
        self.waits.get(label)
    }

    /// Renewals per node and second so far.
    pub fn messages_per_node_second(&self) -> u64 {
        self.messages * 1_000_000_000 / (self.now.0.max(1) * self.nodes.len().max(1) as u64)
    }

    /// The definition of a group.
    pub fn spec(&self, id: GroupId) -> Option<&GroupSpec> {
        self.specs.get(&id)
    }
}

/// The user whose operations a load runs.
pub(super) fn user(load: usize) -> String {
    format!("user-{load}")
}
