//! Counters that nodes learn of each other: a node decides alone, by a bucket of the whole rate less what it took and what
//! it has heard that others took.
//!
//! What others took is heard late, in one of three ways: each node sends its counter to every other one every period;
//! or it gives its counter to a store every period and reads the others'; or it appends it to a log, from which the
//! others read it when a job has summed it up, some time later. Counters only grow, so that a lost message or a
//! restart of the store loses nothing. A bucket owes at most one burst: what was taken before that is forgotten, as a
//! counter per window forgets it. While store or log are away a node knows only what it takes itself.

use std::collections::VecDeque;

use tidegate_core::units::{Span, Time};

use super::number::{between, span};
use super::queue::Queue;
use super::{Acts, Operation, Rival};

/// How counters reach other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From each to every other one: the best that gossip can do.
    Broadcast,
    /// Through a store.
    Store,
    /// Through a log, so much later.
    Log(Span),
}

/// Counters as another node or the centre has them: of some nodes, RU since the start.
#[derive(Clone, Debug)]
pub struct Counters(Vec<(usize, f64)>);

#[derive(Clone, Debug)]
struct Node {
    queue: Queue,
    tokens: f64,
    since: Time,
    /// RU that it took, and what it last sent of it.
    taken: f64,
    sent: f64,
    /// What it has heard of each node.
    heard: Vec<f64>,
    speaks_at: Time,
    /// It has spoken, and its counters for others are not taken yet.
    speaks: bool,
}

/// Nodes, and what the centre has of them.
#[derive(Clone, Debug)]
pub struct Known {
    rate: f64,
    way: Way,
    period: Span,
    nodes: Vec<Node>,
    /// Counters as they came in, with their times.
    centre: VecDeque<(Time, usize, f64)>,
    /// Those that readers may see.
    visible: Vec<f64>,
}

impl Known {
    /// Nodes with full buckets of one second of `rate` RU/s each, which first speak at these times of a period.
    pub fn new(rate: f64, way: Way, period: Span, first: &[Span]) -> Self {
        let count = first.len();
        let node = |first: &Span| Node {
            queue: Queue::default(),
            tokens: rate,
            since: Time(0),
            taken: 0.0,
            sent: 0.0,
            heard: vec![0.0; count],
            speaks_at: Time(first.0 % period.0.max(1)),
            speaks: false,
        };
        let nodes = first.iter().map(node).collect();
        Self { rate, way, period, nodes, centre: VecDeque::new(), visible: vec![0.0; count] }
    }

    fn show(&mut self, now: Time) {
        let late = if let Way::Log(late) = self.way { late } else { Span(0) };
        while let Some((at, node, taken)) = self.centre.front().copied()
            && at.after(late) <= now
        {
            self.centre.pop_front();
            if let Some(visible) = self.visible.get_mut(node) {
                *visible = taken.max(*visible);
            }
        }
    }
}

impl Node {
    fn refill(&mut self, now: Time, rate: f64) {
        self.tokens = (self.tokens + rate * between(self.since, now)).min(rate);
        self.since = now;
    }

    fn hear(&mut self, node: usize, taken: f64, burst: f64) {
        if let Some(heard) = self.heard.get_mut(node) {
            self.tokens = (self.tokens - (taken - *heard).max(0.0)).max(-burst);
            *heard = taken.max(*heard);
        }
    }
}

impl Rival for Known {
    /// The node's counter.
    type Ask = f64;
    type Answer = Counters;

    fn submit(&mut self, _now: Time, node: usize, operation: Operation) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.queue.push(operation);
        }
    }

    fn act(&mut self, now: Time, node: usize, acts: &mut Acts<f64>) {
        let Some(node) = self.nodes.get_mut(node) else {
            return;
        };
        node.refill(now, self.rate);
        while let Some(id) = node.queue.give_up(now) {
            acts.done.push((id, false));
        }
        while let Some(first) = node.queue.first()
            && first.cost <= node.tokens
        {
            node.tokens -= first.cost;
            node.taken += first.cost;
            acts.done.extend(node.queue.pop().map(|operation| (operation.id, true)));
        }
        if node.speaks_at <= now {
            node.speaks_at = now.after(self.period);
            match self.way {
                Way::Broadcast => node.speaks = node.taken > node.sent,
                Way::Store | Way::Log(_) => acts.asks.push(node.taken),
            }
        }
    }

    fn wake_at(&self, now: Time, node: usize) -> Option<Time> {
        let node = self.nodes.get(node)?;
        let covered = |first: &Operation| now.after(span((first.cost - node.tokens) / self.rate));
        let served = node.queue.first().map(covered);
        [served, node.queue.next_deadline(), Some(node.speaks_at)].into_iter().flatten().min()
    }

    fn at_centre(&mut self, now: Time, node: usize, taken: f64) -> Counters {
        self.centre.push_back((now, node, taken));
        self.show(now);
        let others = self.visible.iter().copied().enumerate().filter(|(other, _)| *other != node);
        Counters(others.collect())
    }

    fn at_node(&mut self, now: Time, node: usize, Counters(counters): Counters) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.refill(now, self.rate);
            counters.into_iter().for_each(|(other, taken)| node.hear(other, taken, self.rate));
        }
    }

    fn to_others(&mut self, _now: Time, node: usize) -> Vec<(usize, Counters)> {
        let count = self.nodes.len();
        let Some(own) = self.nodes.get_mut(node).filter(|own| own.speaks) else {
            return Vec::new();
        };
        own.speaks = false;
        own.sent = own.taken;
        let to = |other| (other, Counters(vec![(node, own.taken)]));
        (0..count).filter(|other| *other != node).map(to).collect()
    }

    fn set_cap(&mut self, now: Time, rate: f64) {
        let before = std::mem::replace(&mut self.rate, rate);
        self.nodes.iter_mut().for_each(|node| node.refill(now, before));
    }

    fn restart(&mut self, _now: Time) {}
}
