//! Nodes: what happens to them and between them and the machines, one event after another.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::units::Rate;

use super::groups::{KINDS, USED};
use super::judge::Course;
use super::lines::Way;
use super::node::{Node, Operation};
use super::operations::Load;
use super::session::{Hear, Say, State};
use super::streams::{Over, Streams};
use super::windows::Windows;
use super::world::{Draws, MS, SECOND, World};

/// How many there are.
const NODES: usize = 3;

pub(super) struct Nodes {
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    pub(super) all: Vec<Node>,
    pub(super) streams: Streams,
    next_stream: u64,
    pub(super) windows: Windows,
    /// By node and group.
    pub(super) loads: BTreeMap<(usize, usize), Load>,
    /// Something befalls nodes now and then.
    is_stormy: bool,
    /// No more operations arrive.
    pub(super) is_over: bool,
    /// Answers that went out after they had waited for a beat.
    pub(super) waited: u64,
    /// What happened to nodes.
    pub(super) toll: Toll,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Toll {
    pub(super) kills: u64,
    pub(super) streams: u64,
    pub(super) answers: u64,
}

pub(super) enum Event {
    Arrive { node: usize, group: usize },
    Settle { node: usize, incarnation: u64, operation: Operation },
    Wake { node: usize },
    Connect { node: usize, incarnation: u64 },
    AtMachine { over: Over, say: Say },
    AtNode { over: Over, hear: Hear },
    Start { node: usize },
    Turn,
}

impl Event {
    /// The node that has to be running for it.
    fn of(&self) -> Option<usize> {
        match self {
            Self::Arrive { node, .. }
            | Self::Settle { node, .. }
            | Self::Wake { node }
            | Self::Connect { node, .. } => Some(*node),
            Self::AtNode { over, .. } => Some(over.node),
            Self::AtMachine { .. } | Self::Start { .. } | Self::Turn => None,
        }
    }
}

impl Nodes {
    pub(super) fn new(draws: &Draws) -> Self {
        let mut nodes = Self {
            events: BTreeMap::new(),
            next_event: 0,
            all: (0..NODES).map(|at| Node::new(at, draws)).collect(),
            streams: Streams::default(),
            next_stream: 0,
            windows: Windows::default(),
            loads: BTreeMap::new(),
            is_stormy: false,
            is_over: false,
            waited: 0,
            toll: Toll::default(),
        };
        for node in 0..NODES {
            nodes.at(draws.below(SECOND), Event::Connect { node, incarnation: 1 });
            for group in USED {
                nodes.loads.insert((node, group), Load::drawn(draws));
                nodes.at(draws.below(SECOND), Event::Arrive { node, group });
            }
        }
        nodes
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.events.insert((time, self.next_event), event);
        self.next_event += 1;
    }

    /// When something happens next.
    pub(super) fn due(&self) -> u64 {
        self.events.first_key_value().map_or(u64::MAX, |((at, _), _)| *at)
    }

    /// The next thing happens.
    pub(super) fn happens(world: &Arc<World>) {
        let mut nodes = world.nodes.lock().unwrap();
        let Some((_, event)) = nodes.events.pop_first() else { return };
        let now = world.now();
        if let Some(until) = event.of().map(|node| nodes.all[node].stopped_until).filter(|at| *at > now) {
            return nodes.at(until, event);
        }
        match event {
            Event::Arrive { node, group } => nodes.arrive(world, node, group),
            Event::Settle { node, incarnation, operation } => {
                if nodes.is(node, incarnation) {
                    nodes.all[node].running -= 1;
                    nodes.settle(world, node, &operation);
                    nodes.step(world, node);
                }
            }
            Event::Wake { node } => {
                if nodes.all[node].wake.is_some_and(|at| at <= now) {
                    nodes.all[node].wake = None;
                    nodes.step(world, node);
                }
            }
            Event::Connect { node, incarnation } => {
                if nodes.is(node, incarnation) && nodes.all[node].session.state == State::Closed {
                    nodes.connect(world, node);
                }
            }
            Event::AtMachine { over, say } => {
                let stopped = world.machines[over.machine].lock().stopped_until;
                if stopped > now {
                    return nodes.at(stopped, Event::AtMachine { over, say });
                }
                nodes.comes(world, over, say);
            }
            Event::AtNode { over, hear } => {
                let of = &mut nodes.all[over.node];
                match hear {
                    // It waits for that alone.
                    Hear::Farewell { seq } if of.incarnation == over.incarnation => of.reports.durable(seq),
                    hear if nodes.is(over.node, over.incarnation) => nodes.hears(world, over, hear),
                    _ => {}
                }
            }
            Event::Start { node } => {
                nodes.all[node].begin();
                nodes.connect(world, node);
            }
            Event::Turn => nodes.turn(world),
        }
    }

    fn is(&self, node: usize, incarnation: u64) -> bool {
        self.all[node].is_up && self.all[node].incarnation == incarnation
    }

    /// Lets a node act.
    pub(super) fn step(&mut self, world: &World, node: usize) {
        let now = world.now();
        if !self.all[node].is_up {
            return;
        }
        loop {
            let started = self.all[node].turns(now);
            if started.is_empty() {
                break;
            }
            started.into_iter().for_each(|operation| self.start(world, node, operation));
        }
        if self.all[node].session.is_silent(now) {
            self.lose(world, node);
        }
        if let Some(say) = self.all[node].renewal(now) {
            self.send(world, node, &say);
        }
        let next = self.all[node].next_wake(now);
        if self.all[node].wake.is_none_or(|wake| next < wake) {
            self.all[node].wake = Some(next);
            self.at(next, Event::Wake { node });
        }
    }

    fn connect(&mut self, world: &World, node: usize) {
        self.next_stream += 1;
        self.toll.streams += 1;
        let hello = self.all[node].session.open(world.now(), self.next_stream);
        self.send(world, node, &hello);
        self.step(world, node);
    }

    /// A node gives its stream up, or the stream ended; it tries the next controller soon.
    fn lose(&mut self, world: &World, node: usize) {
        if world.draws.below(2) == 0 {
            self.send(world, node, &Say::Gone);
        }
        let now = world.now();
        let pause = self.all[node].lose(now);
        let incarnation = self.all[node].incarnation;
        self.at(now + world.draws.below(pause), Event::Connect { node, incarnation });
    }

    fn send(&mut self, world: &World, node: usize, say: &Say) {
        let of = &mut self.all[node];
        let (stream, machine) = (of.session.stream, of.session.machine);
        let over = Over { node, incarnation: of.incarnation, stream, machine };
        for at in of.lines.arrivals(&world.draws, world.now(), machine, Way::Up) {
            self.at(at, Event::AtMachine { over, say: say.clone() });
        }
    }

    /// A machine says something to a node.
    pub(super) fn say(&mut self, world: &World, over: Over, hear: Hear) {
        let lines = &mut self.all[over.node].lines;
        for at in lines.arrivals(&world.draws, world.now(), over.machine, Way::Down) {
            self.at(at, Event::AtNode { over, hear: hear.clone() });
        }
    }

    fn hears(&mut self, world: &World, Over { node, stream, .. }: Over, hear: Hear) {
        let is_grant = matches!(hear, Hear::Granted(_));
        if !self.all[node].hear(world.now(), stream, hear) {
            self.lose(world, node);
        }
        if is_grant {
            self.toll.answers += 1;
            self.judge_rates(world);
        }
        self.step(world, node);
    }

    /// What nodes may use together of a group is within its limit.
    fn judge_rates(&mut self, world: &World) {
        let now = world.now();
        for (group, kind) in KINDS.iter().enumerate() {
            let Some((limit, _)) = kind.limit() else { continue };
            let used: Rate = self.all.iter_mut().map(|node| node.rate(now, group)).sum();
            let (seed, name) = (world.seed, kind.name);
            assert!(used <= limit, "seed {seed}: nodes may use {used} of {name}, {limit}, at {now}");
        }
    }

    /// Something befalls a node.
    fn turn(&mut self, world: &World) {
        if !self.is_stormy {
            return;
        }
        let (draws, now) = (&world.draws, world.now());
        let node = usize::try_from(draws.below(NODES as u64)).unwrap();
        let machine = usize::try_from(draws.below(3)).unwrap();
        let until = now + draws.below(draws.among(&[SECOND, 4 * SECOND, 8 * SECOND]));
        self.at(now + draws.below(2 * SECOND), Event::Turn);
        let of = &mut self.all[node];
        match draws.below(11) {
            fate @ 0..=2 => {
                if of.is_up {
                    of.die(fate > 0);
                    self.toll.kills += 1;
                    if draws.below(2) == 0 {
                        self.send(world, node, &Say::Gone);
                    }
                    self.at(now + draws.below(3 * SECOND), Event::Start { node });
                }
            }
            3 => of.lines.cut(machine, Way::Up, until),
            4 => of.lines.cut(machine, Way::Down, until),
            5 => [Way::Up, Way::Down].into_iter().for_each(|way| of.lines.cut(machine, way, until)),
            6 => of.stopped_until = until,
            7 => {
                if of.is_up && of.session.state != State::Closed {
                    self.lose(world, node);
                }
            }
            8 => {
                if of.is_up {
                    if let Some(goodbye) = of.goodbye() {
                        self.send(world, node, &goodbye);
                    }
                    self.all[node].die(true);
                    self.at(now + draws.below(3 * SECOND), Event::Start { node });
                }
            }
            9 => of.lines.one_in = draws.among(&[0, 0, 4, 20]),
            _ => of.lines.delay = draws.among(&[2 * MS, 40 * MS, 300 * MS]),
        }
    }

    /// Faults begin.
    pub(super) fn storm(&mut self, world: &World) {
        self.is_stormy = true;
        self.at(world.now() + world.draws.below(2 * SECOND), Event::Turn);
    }

    /// Everything is well from now on; what is under way still arrives.
    pub(super) fn calm(&mut self) {
        self.is_stormy = false;
        for node in &mut self.all {
            node.lines.calm();
            node.stopped_until = 0;
        }
    }

    /// Whether nothing runs or waits, and all that was charged is known to be durable.
    pub(super) fn is_settled(&mut self) -> bool {
        self.all.iter_mut().all(|node| {
            node.tally();
            node.is_up && node.is_idle() && node.reports.is_settled()
        })
    }

    /// Adds what happened to nodes to what a run came to.
    pub(super) fn came_to(&self, course: &mut Course) {
        let all = self.all.iter().flat_map(|node| node.reports.all());
        course.durable = all.map(|(_, progress)| progress.durable.ru().0).sum();
        let Toll { kills, streams, answers } = self.toll;
        (course.kills, course.streams, course.answers) = (kills, streams, answers);
        course.operations = self.windows.admitted;
        course.tight = self.windows.tightness().map(|part| usize::from(part >= 900));
    }
}
