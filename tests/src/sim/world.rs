//! The simulated world: events in virtual time, the shipped engine and node machines, an ordered network.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::Held;
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::ledger::Ledger;
use tidegate_core::node::{NodeGroup, WaiterId};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::Consumption;

use super::load::{Arrivals, Load};
use super::log::Log;
use super::measure::{Bound, Waits};
use super::network::{Faults, Message};
use super::random::Random;

#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrival { load: usize, node: usize },
    Wake { node: usize },
    ToController { node: usize, incarnation: u64, message: Message },
    ToNode { node: usize, incarnation: u64, message: Message },
}

/// An admitted or waiting operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) load: usize,
    pub(super) cost: Ru,
    pub(super) since: Time,
}

pub(super) struct Node {
    pub(super) up: bool,
    pub(super) incarnation: u64,
    pub(super) seq: u64,
    pub(super) groups: BTreeMap<GroupId, NodeGroup>,
    pub(super) waiting: BTreeMap<(GroupId, WaiterId), Operation>,
    pub(super) last_arrival: [Time; 2],
    pub(super) wake: Option<Time>,
    pub(super) epoch: u64,
    /// How much faster than true time the node's clock runs, in millionths.
    pub(super) drift_ppm: i64,
    /// Stopped (SIGSTOP, a frozen machine) until then; what happens meanwhile happens afterwards.
    pub(super) paused_until: Time,
    /// Nothing passes towards the controller, and towards the node, before these times.
    pub(super) cut_until: [Time; 2],
    /// The most debt of killed incarnations, by group.
    pub(super) past_debt: BTreeMap<GroupId, Ru>,
    /// What the process has charged before its last crash, by incarnation.
    pub(super) dead: Vec<(ClientId, GroupId, Consumption)>,
}

/// The whole simulated system.
pub struct World {
    /// Virtual time.
    pub now: Time,
    pub(super) events: BTreeMap<(Time, u64), Event>,
    pub(super) next_event: u64,
    pub(super) engine: Engine,
    pub(super) engine_up: bool,
    pub(super) epoch: u64,
    pub(super) specs: BTreeMap<GroupId, GroupSpec>,
    pub(super) ledger: Ledger,
    /// The ledger as it was last committed: what a crash falls back to.
    pub(super) stored: Ledger,
    /// What the network does to messages.
    pub faults: Faults,
    pub(super) nodes: Vec<Node>,
    pub(super) loads: Vec<Load>,
    pub(super) delay: (Span, Span),
    pub(super) network: Random,
    pub(super) arrivals: Arrivals,
    pub(super) bounds: BTreeMap<GroupId, Bound>,
    pub(super) waits: BTreeMap<String, Waits>,
    pub(super) messages: u64,
    /// Reports that the ledger refused: links are ordered, so there are none.
    pub refused_reports: Vec<String>,
    /// Proof of leases, as the adapter would verify them: what each node was last granted.
    pub(super) proofs: BTreeMap<(usize, u64, GroupId), (Held, Time)>,
    /// Invariants are checked after every message to the controller, release builds included.
    pub checked: bool,
    /// The first invariant that did not hold.
    pub violation: Option<String>,
    /// Groups whose cap was lowered or that were moved: until then the bound is that of before.
    pub(super) settling: BTreeMap<GroupId, (Time, Rate)>,
    /// Which groups were charged to which ancestors; definitions move and go.
    pub(super) was_below: BTreeSet<(GroupId, GroupId)>,
    /// Every message, when tracing.
    pub trace: Option<String>,
    /// Every operation, when recording.
    pub log: Option<Log>,
}

impl World {
    /// Nodes without groups, a controller without definitions.
    pub fn new(seed: u64, nodes: usize, delay: (Span, Span)) -> Self {
        let node = |_| Node {
            up: true,
            incarnation: 1,
            seq: 0,
            groups: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last_arrival: [Time(0); 2],
            wake: None,
            epoch: 0,
            drift_ppm: 0,
            paused_until: Time(0),
            cut_until: [Time(0); 2],
            past_debt: BTreeMap::new(),
            dead: Vec::new(),
        };
        Self {
            now: Time(0),
            events: BTreeMap::new(),
            next_event: 0,
            engine: Engine::new(Time(0), EngineConfig::default()),
            engine_up: true,
            epoch: 1,
            specs: BTreeMap::new(),
            ledger: Ledger::default(),
            stored: Ledger::default(),
            faults: Faults::default(),
            nodes: (0..nodes).map(node).collect(),
            loads: Vec::new(),
            delay,
            network: Random::new(seed, 1),
            arrivals: Arrivals::new(seed),
            bounds: BTreeMap::new(),
            waits: BTreeMap::new(),
            messages: 0,
            refused_reports: Vec::new(),
            proofs: BTreeMap::new(),
            checked: false,
            violation: None,
            settling: BTreeMap::new(),
            was_below: BTreeSet::new(),
            trace: None,
            log: None,
        }
    }

    pub(super) fn at(&mut self, time: Time, event: Event) {
        self.events.insert((time, self.next_event), event);
        self.next_event += 1;
    }

    /// Creates or alters a group, and tells the nodes.
    pub fn put_group(&mut self, id: GroupId, spec: GroupSpec) -> Result<(), String> {
        if self.engine_up {
            self.engine.put_group(self.now, id, spec.clone()).map_err(|refused| format!("{refused:?}"))?;
            let bound = self.rebound(id, &spec);
            self.bounds.insert(id, bound);
            self.specs.insert(id, spec);
            for node in 0..self.nodes.len() {
                self.send(node, Message::Changed { group: id });
            }
            return Ok(());
        }
        Err("the controller is down".to_owned())
    }

    fn rebound(&mut self, id: GroupId, spec: &GroupSpec) -> Bound {
        let rate = spec.limit().unwrap_or(Rate::MAX);
        match self.bounds.remove(&id) {
            None => Bound::new(self.now, rate),
            Some(mut bound) => {
                bound.set_rate(self.now, rate);
                bound
            }
        }
    }

    /// Removes a group.
    pub fn remove_group(&mut self, id: GroupId) -> Result<(), String> {
        self.engine.remove_group(self.now, id).map_err(|refused| format!("{refused:?}"))?;
        self.specs.remove(&id);
        self.push_lowers();
        Ok(())
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

    /// Kills a node: its waiters, tokens and leases are gone; what it charged is in its journal.
    pub fn kill_node(&mut self, node: usize) {
        let client = self.client(node);
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        state.up = false;
        for (group, machine) in std::mem::take(&mut state.groups) {
            *state.past_debt.entry(group).or_default() += machine.worst_debt();
            state.dead.push((client, group, *machine.consumption()));
        }
        let lost = std::mem::take(&mut state.waiting);
        state.wake = None;
        for operation in lost.into_values() {
            // The worker comes back with its node.
            if let Some(load) = self.loads.get(operation.load).cloned() {
                self.next_of_closed(node, operation, &load, Span(1_000));
            }
        }
    }

    /// Starts a killed node under a new incarnation.
    pub fn start_node(&mut self, node: usize) {
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        state.up = true;
        state.incarnation += 1;
        state.seq = 0;
    }

    /// Commits the ledger.
    pub fn commit(&mut self) {
        if self.engine_up {
            self.stored = self.ledger.clone();
        }
    }

    /// Stops the controller without warning: leases and pools are lost, definitions are not, the ledger falls back
    /// to its last commit.
    pub fn crash_controller(&mut self) {
        self.engine_up = false;
        self.ledger = self.stored.clone();
        self.events.retain(|_, event| !matches!(event, Event::ToController { .. }));
        for node in 0..self.nodes.len() {
            self.lose_session(node);
        }
    }

    /// A node's stream is reset: what was under way is gone.
    pub fn reset_stream(&mut self, index: usize) {
        self.events.retain(|_, event| {
            !matches!(event, Event::ToController { node, .. } | Event::ToNode { node, .. } if *node == index)
        });
        self.lose_session(index);
    }

    fn lose_session(&mut self, node: usize) {
        let now = self.clock(node);
        if let Some(state) = self.nodes.get_mut(node) {
            state.groups.values_mut().for_each(|group| group.on_session_lost(now));
        }
    }

    /// What a node's clock says.
    pub(super) fn clock(&self, node: usize) -> Time {
        let drift = self.nodes.get(node).map_or(0, |state| state.drift_ppm);
        let read = i128::from(self.now.0) * i128::from(1_000_000 + drift) / 1_000_000;
        Time(u64::try_from(read).unwrap_or(u64::MAX))
    }

    /// When a node's clock will say so.
    pub(super) fn true_time(&self, node: usize, at: Time) -> Time {
        let drift = self.nodes.get(node).map_or(0, |state| state.drift_ppm);
        if drift == 0 {
            return at;
        }
        let time = i128::from(at.0) * 1_000_000 / i128::from(1_000_000 + drift) + 1;
        Time(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// Starts the controller again: a new epoch, in recovery for one maximum lease.
    pub fn start_controller(&mut self) {
        self.epoch += 1;
        self.engine_up = true;
        self.engine = Engine::new(self.now, EngineConfig::default());
        let longest = self.specs.values().map(|spec| spec.ttl).max().unwrap_or_default();
        let config = EngineConfig::default();
        let slack = Span(longest.0 * u64::from(config.drift_ppm) / 1_000_000);
        self.engine.recover_until(self.now.after(longest).after(slack).after(config.margin));
        let specs = self.specs.clone();
        let mut pending: Vec<_> = specs.into_iter().collect();
        while !pending.is_empty() {
            pending.retain(|(id, spec)| self.engine.put_group(self.now, *id, spec.clone()).is_err());
        }
    }

    /// Clean restart: leases and pools are saved and restored.
    pub fn restart_controller(&mut self) {
        let snapshot = self.engine.snapshot(self.now);
        self.commit();
        self.crash_controller();
        self.start_controller();
        self.engine = {
            let mut engine = Engine::new(self.now, EngineConfig::default());
            let mut pending: Vec<_> = self.specs.clone().into_iter().collect();
            while !pending.is_empty() {
                pending.retain(|(id, spec)| engine.put_group(self.now, *id, spec.clone()).is_err());
            }
            engine.restore(self.now, &snapshot);
            engine
        };
    }

    pub(super) fn client(&self, node: usize) -> ClientId {
        let incarnation = self.nodes.get(node).map_or(0, |state| state.incarnation);
        ClientId(node as u64 * 1_000 + incarnation)
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
            self.now = time;
            self.handle(event);
        }
        self.now = until;
    }

    fn handle(&mut self, event: Event) {
        if let Event::Arrival { node, .. } | Event::Wake { node } | Event::ToNode { node, .. } = &event
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
        match event {
            Event::Arrival { load, node } => self.arrive(load, node),
            Event::Wake { node } => {
                if let Some(state) = self.nodes.get_mut(node)
                    && state.wake == Some(self.now)
                {
                    state.wake = None;
                    self.step(node);
                }
            }
            Event::ToController { node, incarnation, message } => {
                self.at_controller(node, incarnation, message)
            }
            Event::ToNode { node, incarnation, message } => {
                if self.nodes.get(node).is_some_and(|state| state.up && state.incarnation == incarnation) {
                    self.at_node(node, message);
                }
            }
        }
    }

    /// The measured bound of a group.
    pub fn bound(&mut self, id: GroupId) -> Option<&mut Bound> {
        self.bounds.get_mut(&id)
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

    /// The most debt any node ever had in the group or below it, summed over node incarnations: the overrun.
    pub fn overrun(&self, id: GroupId) -> Ru {
        let debts = self.nodes.iter().flat_map(|node| {
            let now = node.groups.iter().map(|(group, machine)| (*group, machine.worst_debt()));
            now.chain(node.past_debt.iter().map(|(group, debt)| (*group, *debt)))
        });
        debts
            .filter(|(group, _)| *group == id || self.was_below.contains(&(*group, id)))
            .map(|(_, debt)| debt)
            .sum()
    }

    /// After the last reports: what the ledger has, and what the nodes charged (killed incarnations included).
    pub fn books(&mut self, id: GroupId) -> (Ru, Ru) {
        let mut charged = Ru::ZERO;
        for index in 0..self.nodes.len() {
            let client = self.client(index);
            let Some(node) = self.nodes.get(index) else {
                continue;
            };
            for (dead, group, total) in node.dead.iter().filter(|(_, group, _)| *group == id) {
                charged += total.ru();
                let _ = self.ledger.report(*dead, *group, total);
            }
            if let Some(group) = node.groups.get(&id) {
                charged += group.consumption().ru();
                let _ = self.ledger.report(client, id, group.consumption());
            }
        }
        (self.ledger.total(id).ru(), charged)
    }
}
