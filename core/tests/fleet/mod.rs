//! Some nodes and a controller in virtual time, under loads whose operations end, and are settled, some time after they
//! were admitted. Times are microseconds of one clock; every message takes the same time.

#[path = "../noise/mod.rs"]
mod noise;

use std::collections::BTreeMap;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::node::{Acquired, NodeConfig, NodeGroup, WaiterId};
use tidegate_core::units::{MICRO, Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

pub(crate) use noise::Noise;

const GROUP: GroupId = GroupId(2);
/// Time between the end of an operation and the next on its connection.
const PAUSE: Span = Span(200);

impl Noise {
    /// A gap of a Poisson process with this mean, to a thousandth of it.
    fn gap(&mut self, mean: Span) -> Span {
        // The number of draws until a chance of one in a thousand comes.
        let mut thousandths = 1;
        while self.below(1_000) != 0 {
            thousandths += 1;
        }
        Span(mean.0 * thousandths / 1_000)
    }

    fn draw<T: Copy>(&mut self, of: &[(u64, T)]) -> T {
        let mut left = self.below(of.iter().map(|(weight, _)| weight).sum());
        let drawn = of.iter().find(|(weight, _)| {
            let found = left < *weight;
            left = left.wrapping_sub(*weight);
            found
        });
        drawn.or(of.last()).map(|(_, value)| *value).unwrap()
    }
}

/// An operation: its estimate, its cost, and how long it runs, up to twice that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) estimate: Ru,
    pub(crate) actual: Ru,
    pub(crate) runs: Span,
}

/// An operation in whole RU and milliseconds.
pub(crate) fn op(estimate: i64, actual: i64, ms: u64) -> Op {
    Op { estimate: Ru::whole(estimate), actual: Ru::whole(actual), runs: Span::millis(ms) }
}

/// Connections on each of some nodes that ask again as soon as their operation has ended.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) nodes: std::ops::Range<usize>,
    pub(crate) connections: usize,
    /// Kinds of operations and how often each comes.
    pub(crate) mix: Vec<(u64, Op)>,
    /// Whether estimates are the running mean of costs, an eighth of it the last one, as a node learns it.
    pub(crate) learns: bool,
    /// Mean time between operations that come whatever becomes of earlier ones.
    pub(crate) apart: Option<Span>,
}

#[derive(Debug)]
enum Event {
    Next { load: usize, node: usize },
    End { load: usize, node: usize, op: Op },
    Ask { node: usize, seq: u64, ask: Ask },
    Answer { node: usize, seq: u64, grant: Grant },
    Lower { node: usize, rate: Rate },
    Wake { node: usize },
}

struct Node {
    group: NodeGroup,
    seq: u64,
    waiting: BTreeMap<WaiterId, (usize, Op, Time)>,
    wake: Option<Time>,
}

/// The world, and what was observed of it.
pub(crate) struct Fleet {
    pub(crate) engine: Engine,
    pub(crate) now: Time,
    nodes: Vec<Node>,
    loads: Vec<Load>,
    /// Loads that take turns: the length of a turn, the load's place, and the number of places.
    turns: BTreeMap<usize, (Span, u64, u64)>,
    /// The period of which every node runs only a part, and that part; each node runs at other times.
    pub(crate) runs: Option<(Span, Span)>,
    /// Operations give up after this.
    pub(crate) patience: Option<Span>,
    /// Every operation admitted: when, of which load, and its estimate.
    pub(crate) admitted: Vec<(Time, usize, Ru)>,
    /// The mean that each load has learnt on each node.
    means: BTreeMap<(usize, usize), Ru>,
    events: BTreeMap<(Time, u64), Event>,
    next_event: u64,
    noise: Noise,
    delay: Span,
    rate: Rate,
    burst: Ru,
    /// Estimates admitted and differences settled, and the lowest point of their sum above the rate.
    net: i128,
    lowest: i128,
    worst: i128,
    pub(crate) charged: Ru,
    pub(crate) messages: u64,
    /// How long operations of each load waited.
    waits: BTreeMap<usize, Vec<Span>>,
    /// Every operation that arrived: when, of which load, and its cost.
    arrived: Vec<(Time, usize, Ru)>,
}

impl Fleet {
    pub(crate) fn new(rate: i64, burst: i64, nodes: usize, delay: Span, seed: u64) -> Self {
        let spec = GroupSpec { burst: Some(Ru::whole(burst)), ..GroupSpec::capped(Rate::whole(rate)) };
        let mut engine = Engine::new(Time(0), EngineConfig::default());
        engine.put_group(Time(0), GROUP, spec).unwrap();
        let node = |_| Node {
            group: NodeGroup::new(
                Time(0),
                NodeConfig { reply_timeout: Span::secs(2), ..NodeConfig::default() },
            ),
            seq: 0,
            waiting: BTreeMap::new(),
            wake: None,
        };
        Self {
            engine,
            now: Time(0),
            nodes: (0..nodes).map(node).collect(),
            loads: Vec::new(),
            turns: BTreeMap::new(),
            runs: None,
            patience: None,
            admitted: Vec::new(),
            means: BTreeMap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            noise: Noise::new(seed),
            delay,
            rate: Rate::whole(rate),
            burst: Ru::whole(burst),
            net: 0,
            lowest: 0,
            worst: 0,
            charged: Ru::ZERO,
            messages: 0,
            waits: BTreeMap::new(),
            arrived: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, load: Load) {
        let index = self.loads.len();
        for node in load.nodes.clone() {
            for connection in 0..load.connections {
                self.at(self.now.after(Span(1 + connection as u64 * 97)), Event::Next { load: index, node });
            }
        }
        self.loads.push(load);
    }

    /// The same, on only in its turns of this length: `which` of `of`.
    pub(crate) fn add_in_turns(&mut self, load: Load, span: Span, (which, of): (u64, u64)) {
        self.turns.insert(self.loads.len(), (span, which, of));
        self.add(load);
    }

    fn is_on(&self, load: usize) -> bool {
        self.turns.get(&load).is_none_or(|(span, which, of)| self.now.0 / span.0 % of == *which)
    }

    fn at(&mut self, time: Time, event: Event) {
        self.events.insert((time, self.next_event), event);
        self.next_event += 1;
    }

    pub(crate) fn run(&mut self, until: Time) {
        while let Some((&(time, _), _)) = self.events.first_key_value()
            && time <= until
            && let Some((_, event)) = self.events.pop_first()
        {
            self.now = time;
            match self.runs_again(&event) {
                Some(later) => self.at(later, event),
                None => self.handle(event),
            }
        }
        self.now = until;
    }

    /// When the node of an event runs again, if it does not run now.
    fn runs_again(&mut self, event: &Event) -> Option<Time> {
        let (period, runs) = self.runs?;
        let node = match *event {
            Event::Next { node, .. } | Event::End { node, .. } | Event::Wake { node } => node,
            Event::Answer { node, .. } | Event::Lower { node, .. } => node,
            Event::Ask { .. } => return None,
        };
        let begins = period.0 * (node as u64 * 7 % 16) / 16;
        let since = (self.now.0 + period.0 - begins) % period.0;
        let later = (since >= runs.0).then(|| self.now.after(Span(period.0 - since)))?;
        if matches!(event, Event::Wake { .. }) {
            self.nodes[node].wake = Some(later);
        }
        Some(later)
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Next { load, node } => self.submit(load, node),
            Event::End { load, node, op } => {
                let used = Consumption {
                    charged: RuParts::flat(op.actual),
                    operations: 1,
                    ..Consumption::default()
                };
                self.nodes[node].group.settle(now, op.estimate, &used);
                self.charged += op.actual;
                let mean = self.means.entry((load, node)).or_insert(op.actual);
                *mean += (op.actual - *mean).scale(1, 8);
                self.count(op.actual - op.estimate);
                if self.loads[load].apart.is_none() {
                    self.at(now.after(PAUSE), Event::Next { load, node });
                }
                self.step(node);
            }
            Event::Ask { node, seq, ask } => {
                let client = ClientId(node as u64 + 1);
                if let Some(grant) = self.engine.renew(now, client, GROUP, seq, &ask, None) {
                    self.at(now.after(self.delay), Event::Answer { node, seq, grant });
                }
                for lower in self.engine.take_lowers() {
                    let node = usize::try_from(lower.client.0).unwrap() - 1;
                    self.at(now.after(self.delay), Event::Lower { node, rate: lower.rate_at_most });
                }
            }
            Event::Answer { node, seq, grant } => {
                self.nodes[node].group.on_grant(now, seq, &grant);
                self.step(node);
            }
            Event::Lower { node, rate } => {
                self.nodes[node].group.on_lower(now, rate);
                self.step(node);
            }
            Event::Wake { node } => {
                if self.nodes[node].wake == Some(now) {
                    self.nodes[node].wake = None;
                    self.step(node);
                }
            }
        }
    }

    fn submit(&mut self, load: usize, node: usize) {
        if let Some(mean) = self.loads[load].apart {
            let gap = self.noise.gap(mean);
            self.at(self.now.after(gap), Event::Next { load, node });
        }
        if !self.is_on(load) {
            return self.step(node);
        }
        let of = &self.loads[load];
        let mut op = self.noise.draw(&of.mix);
        if let Some(mean) = self.means.get(&(load, node)).filter(|_| of.learns) {
            op.estimate = *mean;
        }
        self.arrived.push((self.now, load, op.estimate));
        let deadline = self.patience.map_or(Time(u64::MAX), |patience| self.now.after(patience));
        match self.nodes[node].group.acquire(self.now, op.estimate, deadline) {
            Ok(Acquired::Now(_)) => self.admitted(load, node, op, self.now),
            Ok(Acquired::Queued(id)) => {
                self.nodes[node].waiting.insert(id, (load, op, self.now));
            }
            Err(refusal) if self.patience.is_none() => panic!("{refusal:?}"),
            Err(_) => {}
        }
        self.step(node);
    }

    fn admitted(&mut self, load: usize, node: usize, op: Op, since: Time) {
        self.waits.entry(load).or_default().push(self.now.since(since));
        self.count(op.estimate);
        self.admitted.push((self.now, load, op.estimate));
        let runs = Span(op.runs.0 / 10 + self.noise.below(op.runs.0 * 19 / 10 + 1));
        self.at(self.now.after(runs), Event::End { load, node, op });
    }

    fn count(&mut self, amount: Ru) {
        let level = |net: i128| net * i128::from(MICRO) - i128::from(self.rate.0) * i128::from(self.now.0);
        self.lowest = self.lowest.min(level(self.net));
        self.net += i128::from(amount.0);
        self.worst = self.worst.max(level(self.net) - self.lowest);
    }

    fn step(&mut self, node: usize) {
        while let Some((id, outcome)) = self.nodes[node].group.poll(self.now) {
            let (load, op, since) = self.nodes[node].waiting.remove(&id).unwrap();
            if outcome.is_err() && self.patience.is_some() {
                continue;
            }
            outcome.unwrap();
            self.admitted(load, node, op, since);
        }
        let state = &mut self.nodes[node];
        if state.group.due(self.now).is_some_and(|due| due <= self.now) {
            state.seq += 1;
            let (seq, ask) = (state.seq, state.group.ask(self.now, state.seq));
            self.messages += 1;
            self.at(self.now.after(self.delay), Event::Ask { node, seq, ask });
        }
        let state = &mut self.nodes[node];
        let next = state.group.look().next_deadline(self.now).map(|next| next.max(self.now.after(Span(1))));
        if let Some(next) = next
            && state.wake.is_none_or(|wake| next < wake)
        {
            state.wake = Some(next);
            self.at(next, Event::Wake { node });
        }
    }

    /// The 99th percentile of the waits of a load's operations; the same with one bucket and one queue for all and no
    /// delay; and the number of operations.
    pub(crate) fn waits(&self, load: usize) -> (Span, Span, usize) {
        let p99 = |waits: &[Span]| {
            let mut waits = waits.to_vec();
            waits.sort_unstable();
            waits[(waits.len() - 1) * 99 / 100]
        };
        let (mut ideal, mut now, mut tokens) = (Vec::new(), Time(0), self.burst);
        for (at, of, cost) in &self.arrived {
            let free = now.max(*at);
            tokens = (tokens + self.rate.over(free.since(now))).min(self.burst);
            let wait = self.rate.time_for(*cost - tokens).unwrap();
            now = free.after(wait);
            tokens = tokens + self.rate.over(wait) - *cost;
            ideal.extend((*of == load).then(|| now.since(*at)));
        }
        (p99(&self.waits[&load]), p99(&ideal), self.waits[&load].len())
    }

    /// RU charged, in thousandths of the yield of the rate.
    pub(crate) fn used(&self) -> i64 {
        self.charged.scale(1_000, self.rate.over(Span(self.now.0)).0).0
    }

    /// The most that any window admitted above its rate, less the burst and the largest debts of nodes.
    pub(crate) fn over(&self) -> Ru {
        let overrun: Ru = self.nodes.iter().map(|node| node.group.look().worst_debt()).sum();
        Ru(i64::try_from(self.worst / i128::from(MICRO)).unwrap()) - self.burst - overrun
    }

    /// Messages to the controller per node and second, in thousandths.
    pub(crate) fn chatter(&self) -> u64 {
        self.messages * 1_000 / self.nodes.len() as u64 * MICRO as u64 / self.now.0
    }
}
