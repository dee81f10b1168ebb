//! The simulated world: events in virtual time, the shipped engine and node machines, an ordered network.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::ledger::Ledger;
use tidegate_core::node::{Acquired, NodeConfig, NodeGroup, WaiterId};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

use super::load::{Load, Pattern};
use super::measure::{Bound, Waits};
use super::random::Random;

/// What travels.
#[derive(Clone, Debug)]
enum Message {
    Renew { seq: u64, asks: Vec<(GroupId, Ask)>, reports: Vec<(GroupId, Consumption)> },
    Granted { seq: u64, epoch: u64, grants: Vec<(GroupId, Grant)> },
    Lower { group: GroupId, rate_at_most: Rate },
    Changed { group: GroupId },
}

#[derive(Clone, Debug)]
enum Event {
    Arrival { load: usize, node: usize },
    Wake { node: usize },
    ToController { node: usize, incarnation: u64, message: Message },
    ToNode { node: usize, incarnation: u64, message: Message },
}

/// An admitted or waiting operation.
#[derive(Clone, Copy, Debug)]
struct Operation {
    load: usize,
    cost: Ru,
    since: Time,
}

struct Node {
    up: bool,
    incarnation: u64,
    seq: u64,
    groups: BTreeMap<GroupId, NodeGroup>,
    waiting: BTreeMap<(GroupId, WaiterId), Operation>,
    last_arrival: [Time; 2],
    wake: Option<Time>,
    epoch: u64,
    /// What the process has charged before its last crash, by incarnation.
    dead: Vec<(ClientId, GroupId, Consumption)>,
}

/// The whole simulated system.
pub struct World {
    /// Virtual time.
    pub now: Time,
    events: BTreeMap<(Time, u64), Event>,
    next_event: u64,
    engine: Engine,
    engine_up: bool,
    epoch: u64,
    specs: BTreeMap<GroupId, GroupSpec>,
    removed: BTreeSet<GroupId>,
    ledger: Ledger,
    nodes: Vec<Node>,
    loads: Vec<Load>,
    delay: (Span, Span),
    network: Random,
    arrivals: Vec<Random>,
    bounds: BTreeMap<GroupId, Bound>,
    waits: BTreeMap<String, Waits>,
    messages: u64,
    /// Proof of leases, as the adapter would verify them: what each node was last granted.
    proofs: BTreeMap<(usize, u64, GroupId), (Held, Time)>,
    /// Every message, when tracing.
    pub trace: Option<String>,
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
            removed: BTreeSet::new(),
            ledger: Ledger::default(),
            nodes: (0..nodes).map(node).collect(),
            loads: Vec::new(),
            delay,
            network: Random::new(seed, 1),
            arrivals: (0..64).map(|purpose| Random::new(seed, 100 + purpose)).collect(),
            bounds: BTreeMap::new(),
            waits: BTreeMap::new(),
            messages: 0,
            proofs: BTreeMap::new(),
            trace: None,
        }
    }

    fn at(&mut self, time: Time, event: Event) {
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
                self.to_node(node, Message::Changed { group: id });
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
        self.removed.insert(id);
        self.push_lowers();
        Ok(())
    }

    /// Starts a load.
    pub fn add_load(&mut self, load: Load) {
        let index = self.loads.len();
        let workers = if let Pattern::Closed(workers) = load.pattern { workers } else { 1 };
        self.waits.entry(load.label.clone()).or_default();
        for node in load.nodes.0..=load.nodes.1 {
            for worker in 0..workers {
                let first = load.from.after(Span(1 + worker * 17 % 1_000));
                self.at(first, Event::Arrival { load: index, node });
            }
        }
        self.loads.push(load);
    }

    /// Kills a node: its waiters, tokens and leases are gone; what it charged is in its journal.
    pub fn kill_node(&mut self, node: usize) {
        let client = self.client(node);
        let Some(state) = self.nodes.get_mut(node) else { return };
        state.up = false;
        for (group, machine) in std::mem::take(&mut state.groups) {
            state.dead.push((client, group, *machine.consumption()));
        }
        state.waiting.clear();
        state.wake = None;
    }

    /// Starts a killed node under a new incarnation.
    pub fn start_node(&mut self, node: usize) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        state.up = true;
        state.incarnation += 1;
        state.seq = 0;
    }

    /// Stops the controller without warning: leases and pools are lost, definitions and the ledger are not.
    pub fn crash_controller(&mut self) {
        self.engine_up = false;
        self.events.retain(|_, event| !matches!(event, Event::ToController { .. }));
        for node in &mut self.nodes {
            node.groups.values_mut().for_each(|group| group.on_session_lost(self.now));
        }
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

    fn client(&self, node: usize) -> ClientId {
        let incarnation = self.nodes.get(node).map_or(0, |state| state.incarnation);
        ClientId(node as u64 * 1_000 + incarnation)
    }

    /// Runs until `until`.
    pub fn run(&mut self, until: Time) {
        while let Some((&(time, _), _)) = self.events.first_key_value() {
            if time > until {
                break;
            }
            let Some((_, event)) = self.events.pop_first() else { break };
            self.now = time;
            self.handle(event);
        }
        self.now = until;
    }

    fn handle(&mut self, event: Event) {
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
            Event::ToController { node, incarnation, message } => self.at_controller(node, incarnation, message),
            Event::ToNode { node, incarnation, message } => {
                if self.nodes.get(node).is_some_and(|state| state.up && state.incarnation == incarnation) {
                    self.at_node(node, message);
                }
            }
        }
    }

    fn arrive(&mut self, index: usize, node: usize) {
        let Some(load) = self.loads.get(index).cloned() else { return };
        if self.now >= load.until {
            return;
        }
        let purpose = (index * 17 + node) % self.arrivals.len();
        let Some(random) = self.arrivals.get_mut(purpose) else { return };
        let (gap, cost) = (load.gap(random), load.draw(random));
        let open = matches!(load.pattern, Pattern::Open(_));
        let up = self.nodes.get(node).is_some_and(|state| state.up);
        let active = up && load.on(node, self.now);
        if open || !active {
            self.at(self.now.after(if active { gap } else { gap.max(Span(1_000)) }), Event::Arrival { load: index, node });
        }
        if active {
            self.submit(node, Operation { load: index, cost, since: self.now }, &load);
            self.step(node);
        }
    }

    fn submit(&mut self, node: usize, operation: Operation, load: &Load) {
        let now = self.now;
        let Some(state) = self.nodes.get_mut(node) else { return };
        let group =
            state.groups.entry(load.group).or_insert_with(|| NodeGroup::new(now, NodeConfig::default()));
        match group.acquire(now, operation.cost, now.after(load.max_wait)) {
            Ok(Acquired::Now) => self.admitted(node, operation),
            Ok(Acquired::Queued(id)) => {
                state.waiting.insert((load.group, id), operation);
            }
            Err(_) => self.refused(node, operation),
        }
    }

    fn admitted(&mut self, node: usize, operation: Operation) {
        let Some(load) = self.loads.get(operation.load).cloned() else { return };
        let actual = operation.cost.scale(i64::try_from(load.settle_tenths).unwrap_or(10), 10);
        let consumed =
            Consumption { charged: RuParts::flat(actual), operations: 1, ..Consumption::default() };
        if let Some(group) = self.nodes.get_mut(node).and_then(|state| state.groups.get_mut(&load.group)) {
            group.settle(self.now, operation.cost, &consumed);
        }
        let mut level = Some(load.group);
        while let Some(id) = level {
            if let Some(bound) = self.bounds.get_mut(&id) {
                bound.admit(self.now, actual);
            }
            level = self.specs.get(&id).and_then(|spec| spec.parent);
        }
        if let Some(bound) = self.bounds.get_mut(&GroupId::ROOT) {
            bound.admit(self.now, actual);
        }
        if let Some(waits) = self.waits.get_mut(&load.label) {
            waits.admit(node, actual, self.now.since(operation.since));
        }
        self.next_of_closed(node, operation, &load, Span(200));
    }

    fn refused(&mut self, node: usize, operation: Operation) {
        let Some(load) = self.loads.get(operation.load).cloned() else { return };
        if let Some(waits) = self.waits.get_mut(&load.label) {
            waits.refused += 1;
        }
        self.next_of_closed(node, operation, &load, Span(10_000));
    }

    fn next_of_closed(&mut self, node: usize, operation: Operation, load: &Load, pause: Span) {
        if matches!(load.pattern, Pattern::Closed(_)) {
            self.at(self.now.after(pause), Event::Arrival { load: operation.load, node });
        }
    }

    /// Lets a node act: outcomes of waiters, renewals that are due, the next wake-up.
    fn step(&mut self, node: usize) {
        let now = self.now;
        loop {
            let Some(state) = self.nodes.get_mut(node).filter(|state| state.up) else { return };
            let mut done = Vec::new();
            for (id, group) in &mut state.groups {
                while let Some((waiter, outcome)) = group.poll(now) {
                    if let Some(operation) = state.waiting.remove(&(*id, waiter)) {
                        done.push((operation, outcome.is_ok()));
                    }
                }
            }
            if done.is_empty() {
                break;
            }
            for (operation, admitted) in done {
                if admitted { self.admitted(node, operation) } else { self.refused(node, operation) }
            }
        }
        self.renew(node);
        let Some(state) = self.nodes.get_mut(node) else { return };
        let next = state.groups.values().filter_map(|group| group.next_deadline(now)).min();
        if let Some(next) = next.map(|next| next.max(now.after(Span(1))))
            && state.wake.is_none_or(|wake| next < wake)
        {
            state.wake = Some(next);
            self.at(next, Event::Wake { node });
        }
    }

    fn renew(&mut self, node: usize) {
        let (now, up) = (self.now, self.engine_up);
        let Some(state) = self.nodes.get_mut(node) else { return };
        let seq = state.seq + 1;
        let due = |group: &NodeGroup| group.due(now).is_some_and(|due| due <= now);
        let asks: Vec<_> = state
            .groups
            .iter_mut()
            .filter(|(_, group)| due(group))
            .map(|(id, group)| (*id, group.ask(now, seq)))
            .collect();
        if asks.is_empty() {
            return;
        }
        state.seq = seq;
        let reports = state.groups.iter().map(|(id, group)| (*id, *group.consumption())).collect();
        let incarnation = state.incarnation;
        self.messages += 1;
        if up {
            let at = self.travel(node, 0);
            let message = Message::Renew { seq, asks, reports };
            self.at(at, Event::ToController { node, incarnation, message });
        }
    }

    /// Delivery time on an ordered link.
    fn travel(&mut self, node: usize, direction: usize) -> Time {
        let delay = Span(self.network.between(self.delay.0.0, self.delay.1.0));
        let Some(last) = self.nodes.get_mut(node).and_then(|state| state.last_arrival.get_mut(direction)) else {
            return self.now;
        };
        *last = self.now.after(delay).max(*last);
        *last
    }

    fn to_node(&mut self, node: usize, message: Message) {
        let at = self.travel(node, 1);
        let incarnation = self.nodes.get(node).map_or(0, |state| state.incarnation);
        self.at(at, Event::ToNode { node, incarnation, message });
    }

    fn at_controller(&mut self, node: usize, incarnation: u64, message: Message) {
        let Message::Renew { seq, asks, reports } = message else { return };
        let client = ClientId(node as u64 * 1_000 + incarnation);
        for (group, total) in reports {
            self.ledger.report(client, group, &total).unwrap_or_else(|refused| panic!("{client:?}: {refused}"));
        }
        let mut grants = Vec::new();
        for (group, ask) in asks {
            self.note(|| format!("n{node} asks   g{} {}", group.0, show_ask(&ask)));
            let proven = self.proof(node, incarnation, group, &ask);
            if let Some(grant) = self.engine.renew(self.now, client, group, seq, &ask, proven) {
                if let Grant::Leased(terms) = &grant {
                    let held = Held { rate: terms.rate, cap: terms.cap, lump: terms.lump };
                    self.proofs.insert((node, incarnation, group), (held, self.now.after(terms.ttl)));
                }
                self.note(|| format!("n{node} gets   g{} {}", group.0, show_grant(&grant)));
                grants.push((group, grant));
            }
        }
        let at = self.travel(node, 1);
        let message = Message::Granted { seq, epoch: self.epoch, grants };
        self.at(at, Event::ToNode { node, incarnation, message });
        self.push_lowers();
    }

    fn proof(&self, node: usize, incarnation: u64, group: GroupId, ask: &Ask) -> Option<Held> {
        let (held, until) = self.proofs.get(&(node, incarnation, group))?;
        (*until > self.now).then(|| Held {
            rate: held.rate.min(ask.held.rate),
            cap: held.cap.min(ask.held.cap),
            lump: held.lump.min(ask.held.lump),
        })
    }

    fn push_lowers(&mut self) {
        for order in self.engine.take_lowers() {
            let node = usize::try_from(order.client.0 / 1_000).unwrap_or(usize::MAX);
            self.note(|| format!("n{node} lower  g{} {}", order.group.0, order.rate_at_most));
            if self.client(node) == order.client {
                self.to_node(node, Message::Lower { group: order.group, rate_at_most: order.rate_at_most });
            }
        }
    }

    fn at_node(&mut self, node: usize, message: Message) {
        let now = self.now;
        let Some(state) = self.nodes.get_mut(node) else { return };
        match message {
            Message::Granted { seq, epoch, grants } => {
                if epoch >= state.epoch {
                    state.epoch = epoch;
                    for (id, grant) in grants {
                        if let Some(group) = state.groups.get_mut(&id) {
                            group.on_grant(now, seq, &grant);
                        }
                    }
                }
            }
            Message::Lower { group, rate_at_most } => {
                if let Some(group) = state.groups.get_mut(&group) {
                    group.on_lower(now, rate_at_most);
                }
            }
            Message::Changed { group } => {
                if let Some(group) = state.groups.get_mut(&group) {
                    group.renew_now(now);
                }
            }
            Message::Renew { .. } => {}
        }
        self.step(node);
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let _ = writeln!(trace, "{:>9} us  {}", self.now.0, line());
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

    /// The most debt any node ever had in a group, summed over nodes: the overrun.
    pub fn overrun(&self, id: GroupId) -> Ru {
        self.nodes.iter().filter_map(|node| node.groups.get(&id)).map(NodeGroup::worst_debt).sum()
    }

    /// After the last reports: what the ledger has, and what the nodes charged (killed incarnations included).
    pub fn books(&mut self, id: GroupId) -> (Ru, Ru) {
        let mut charged = Ru::ZERO;
        for index in 0..self.nodes.len() {
            let client = self.client(index);
            let Some(node) = self.nodes.get(index) else { continue };
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

fn show_ask(ask: &Ask) -> String {
    format!(
        "held {} cap {} lump {}, returns {}, offered {}, backlog {}",
        ask.held.rate, ask.held.cap, ask.held.lump, ask.returned, ask.demand, ask.backlog
    )
}

fn show_grant(grant: &Grant) -> String {
    match grant {
        Grant::Leased(terms) => format!(
            "{} cap {} fill {} lump {}, again after {}{}",
            terms.rate,
            terms.cap,
            terms.fill,
            terms.lump,
            terms.ask_again,
            if terms.ack_now { ", acknowledge now" } else { "" }
        ),
        Grant::Unlimited { .. } => "unlimited".to_owned(),
        Grant::UnknownGroup => "unknown group".to_owned(),
        Grant::Recovering { ask_again } => format!("recovering, again after {ask_again}"),
    }
}
