//! Runs a rival in virtual time: the loads, random streams and delays are those of the simulated world.
//!
//! Messages keep their order on a link. While the centre is away, messages to it are lost.

use std::collections::BTreeMap;

use tidegate_core::units::{Ru, Span, Time};

use super::number::ru;
use super::{Acts, Operation, Rival};
use tidegate_sim::load::{Arrival, Arrivals, Load, Pattern};
use tidegate_sim::log::{Entry, Log};
use tidegate_sim::random::Random;

enum Event<Ask, Answer> {
    Arrival { load: usize, node: usize },
    Wake { node: usize },
    ToCentre { node: usize, ask: Ask },
    ToNode { node: usize, answer: Answer },
}

#[derive(Clone, Copy)]
struct Waiting {
    node: usize,
    load: usize,
    cost: Ru,
    since: Time,
}

#[derive(Clone, Copy, Default)]
struct Link {
    /// Last arrival at the centre, and at the node.
    last: [Time; 2],
    wake: Option<Time>,
}

/// A rival under load.
pub struct Arena<R: Rival> {
    rival: R,
    now: Time,
    events: BTreeMap<(Time, u64), Event<R::Ask, R::Answer>>,
    next_event: u64,
    next_operation: u64,
    waiting: BTreeMap<u64, Waiting>,
    links: Vec<Link>,
    loads: Vec<Load>,
    delay: (Span, Span),
    network: Random,
    arrivals: Arrivals,
    up: bool,
    messages: u64,
    /// What became of the operations.
    pub log: Log,
}

impl<R: Rival> Arena<R> {
    /// A rival with this many nodes; the seed and the one-way delay mean what they mean in the world.
    pub fn new(rival: R, seed: u64, nodes: usize, delay: (Span, Span)) -> Self {
        Self {
            rival,
            now: Time(0),
            events: BTreeMap::new(),
            next_event: 0,
            next_operation: 0,
            waiting: BTreeMap::new(),
            links: vec![Link::default(); nodes],
            loads: Vec::new(),
            delay,
            network: Random::new(seed, 1),
            arrivals: Arrivals::new(seed),
            up: true,
            messages: 0,
            log: Log::default(),
        }
    }

    /// Starts a load.
    pub fn add_load(&mut self, load: Load) {
        let index = self.loads.len();
        for node in load.nodes.0..=load.nodes.1 {
            for first in load.first_arrivals() {
                self.at(first, Event::Arrival { load: index, node });
            }
        }
        self.loads.push(load);
    }

    /// Changes the cap, in RU/s.
    pub fn set_cap(&mut self, rate: f64) {
        self.rival.set_cap(self.now, rate);
    }

    /// The centre dies: what is on its way to it is lost.
    pub fn stop_centre(&mut self) {
        self.up = false;
        self.rival.lost(self.now);
        self.events.retain(|_, event| !matches!(event, Event::ToCentre { .. }));
    }

    /// The centre starts again.
    pub fn start_centre(&mut self) {
        self.up = true;
        self.rival.restart(self.now);
    }

    /// Messages of nodes so far, without answers.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Runs until `until`.
    pub fn run(&mut self, until: Time) {
        while let Some((&(time, _), _)) = self.events.first_key_value()
            && time <= until
            && let Some((_, event)) = self.events.pop_first()
        {
            self.now = time;
            self.handle(event);
        }
        self.now = until;
    }

    fn at(&mut self, time: Time, event: Event<R::Ask, R::Answer>) {
        self.events.insert((time, self.next_event), event);
        self.next_event += 1;
    }

    fn handle(&mut self, event: Event<R::Ask, R::Answer>) {
        match event {
            Event::Arrival { load, node } => self.arrive(load, node),
            Event::Wake { node } => {
                if let Some(link) = self.links.get_mut(node)
                    && link.wake == Some(self.now)
                {
                    link.wake = None;
                    self.step(node);
                }
            }
            Event::ToCentre { node, ask } => {
                let answer = self.rival.at_centre(self.now, node, ask);
                let at = self.travel(node, 1);
                self.at(at, Event::ToNode { node, answer });
            }
            Event::ToNode { node, answer } => {
                self.rival.at_node(self.now, node, answer);
                self.step(node);
            }
        }
    }

    fn arrive(&mut self, index: usize, node: usize) {
        let Some(load) = self.loads.get(index).cloned() else {
            return;
        };
        if self.now >= load.until {
            return;
        }
        let Some(Arrival { gap, cost, .. }) = self.arrivals.draw(index, &load, node) else {
            return;
        };
        let active = load.on(node, self.now);
        if matches!(load.pattern, Pattern::Open(_)) || !active {
            let gap = if active { gap } else { gap.max(Span(1_000)) };
            self.at(self.now.after(gap), Event::Arrival { load: index, node });
        }
        if active {
            let waiting = Waiting { node, load: index, cost, since: self.now };
            self.log.arrived.push(self.entry(waiting));
            let id = self.next_operation;
            self.next_operation += 1;
            self.waiting.insert(id, waiting);
            let operation = Operation { id, cost: ru(cost), deadline: self.now.after(load.max_wait) };
            self.rival.submit(self.now, node, operation);
            self.step(node);
        }
    }

    fn entry(&self, waiting: Waiting) -> Entry {
        let Waiting { node, load, cost, since } = waiting;
        Entry { at: self.now, node, load, cost, waited: self.now.since(since) }
    }

    /// Lets a node act until it has nothing more to do now.
    fn step(&mut self, node: usize) {
        let mut acts = Acts::default();
        self.rival.act(self.now, node, &mut acts);
        for (id, admitted) in acts.done {
            let Some(waiting) = self.waiting.remove(&id) else {
                continue;
            };
            let entry = self.entry(waiting);
            let (log, pause) = if admitted {
                (&mut self.log.admitted, Span(200))
            } else {
                (&mut self.log.refused, Span(10_000))
            };
            log.push(entry);
            let closed = |load: &Load| matches!(load.pattern, Pattern::Closed(_));
            if self.loads.get(waiting.load).is_some_and(closed) {
                let again = Event::Arrival { load: waiting.load, node: waiting.node };
                self.at(self.now.after(pause), again);
            }
        }
        for ask in acts.asks {
            self.messages += 1;
            if self.up {
                let at = self.travel(node, 0);
                self.at(at, Event::ToCentre { node, ask });
            }
        }
        for (other, answer) in self.rival.to_others(self.now, node) {
            self.messages += 1;
            let at = self.travel(other, 1);
            self.at(at, Event::ToNode { node: other, answer });
        }
        let next = self.rival.wake_at(self.now, node).map(|next| next.max(self.now.after(Span(1))));
        if let (Some(next), Some(link)) = (next, self.links.get_mut(node))
            && link.wake.is_none_or(|wake| next < wake)
        {
            link.wake = Some(next);
            self.at(next, Event::Wake { node });
        }
    }

    /// When a message sent now arrives.
    fn travel(&mut self, node: usize, direction: usize) -> Time {
        let delay = Span(self.network.between(self.delay.0.0, self.delay.1.0));
        let at = self.now.after(delay);
        let last = self.links.get_mut(node).and_then(|link| link.last.get_mut(direction));
        last.map_or(at, |last| {
            *last = at.max(*last);
            *last
        })
    }
}
