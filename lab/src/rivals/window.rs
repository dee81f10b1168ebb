//! A counter per window of a second in a shared store: the limit of a window is a second of the rate.
//!
//! Either the node gets the counter, and sets it to what it saw and its operation (two calls, between which others
//! read the same value), or the store adds and returns the sum (`INCRBY`, one call). What is not let in waits for the
//! next window; a node that was told so asks no more in this one, as Envoy's rate limit service does with its local
//! cache. A call that is not answered in time lets the operation in, as there by default. Counters are gone after a
//! restart of the store.

use std::collections::BTreeMap;

use tidegate_core::units::{Span, Time};

use super::queue::Queue;
use super::{Acts, Operation, Rival};

const WINDOW: Span = Span::secs(1);

/// How an operation is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Get, compare, set.
    GetThenSet,
    /// Add, and compare what comes back.
    Increment,
}

/// What is asked of the store, for an operation and its window.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    id: u64,
    window: u64,
    what: Command,
}

#[derive(Clone, Copy, Debug)]
enum Command {
    Get,
    Set(f64),
    Add(f64),
}

/// The counter of the window; after `Set`, what was set.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    id: u64,
    window: u64,
    counted: f64,
    was_set: bool,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    operation: Operation,
    fails_at: Time,
}

#[derive(Clone, Debug, Default)]
struct Node {
    waiting: Queue,
    calls: BTreeMap<u64, Call>,
    asks: Vec<Ask>,
    done: Vec<(u64, bool)>,
    /// The window that is known to be used up.
    full: Option<u64>,
}

/// The store and its nodes.
#[derive(Clone, Debug)]
pub struct Windows {
    counting: Counting,
    limit: f64,
    timeout: Span,
    counters: BTreeMap<u64, f64>,
    nodes: Vec<Node>,
}

fn window(now: Time) -> u64 {
    now.since(Time(0)).0 / WINDOW.0
}

impl Windows {
    /// A store without a counter, for a second of `rate` RU/s in each window.
    pub fn new(rate: f64, nodes: usize, counting: Counting, timeout: Span) -> Self {
        let nodes = vec![Node::default(); nodes];
        Self { counting, limit: rate, timeout, counters: BTreeMap::new(), nodes }
    }
}

impl Node {
    /// Asks for all that wait, unless the window is used up.
    fn ask(&mut self, now: Time, counting: Counting, timeout: Span) {
        let window = window(now);
        if self.full == Some(window) {
            return;
        }
        while let Some(operation) = self.waiting.pop() {
            let what = match counting {
                Counting::GetThenSet => Command::Get,
                Counting::Increment => Command::Add(operation.cost),
            };
            self.asks.push(Ask { id: operation.id, window, what });
            self.calls.insert(operation.id, Call { operation, fails_at: now.after(timeout) });
        }
    }

    fn heard(&mut self, limit: f64, counting: Counting, answer: Answer) {
        let Answer { id, window, counted, was_set } = answer;
        let Some(call) = self.calls.get(&id).copied() else {
            return;
        };
        let sum = match counting {
            Counting::GetThenSet if !was_set => counted + call.operation.cost,
            _ => counted,
        };
        if sum > limit {
            self.calls.remove(&id);
            self.full = Some(window);
            self.waiting.push(call.operation);
        } else if counting == Counting::GetThenSet && !was_set {
            self.asks.push(Ask { id, window, what: Command::Set(sum) });
        } else {
            self.calls.remove(&id);
            self.done.push((id, true));
        }
    }
}

impl Rival for Windows {
    type Ask = Ask;
    type Answer = Answer;

    fn submit(&mut self, _now: Time, node: usize, operation: Operation) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.waiting.push(operation);
        }
    }

    fn act(&mut self, now: Time, node: usize, acts: &mut Acts<Ask>) {
        let Some(node) = self.nodes.get_mut(node) else {
            return;
        };
        // Numbers rise with the arrivals, but those that waited for a window were asked about later.
        let failed = node.calls.iter().filter(|(_, call)| call.fails_at <= now).map(|(id, _)| *id);
        for id in failed.collect::<Vec<_>>() {
            node.calls.remove(&id);
            node.done.push((id, true));
        }
        while let Some(id) = node.waiting.give_up(now) {
            node.done.push((id, false));
        }
        node.ask(now, self.counting, self.timeout);
        acts.asks.append(&mut node.asks);
        acts.done.append(&mut node.done);
    }

    fn wake_at(&self, now: Time, node: usize) -> Option<Time> {
        let node = self.nodes.get(node)?;
        let next = node.waiting.first().map(|_| Time((window(now) + 1) * WINDOW.0));
        let fails = node.calls.values().map(|call| call.fails_at).min();
        next.into_iter().chain(fails).chain(node.waiting.next_deadline()).min()
    }

    fn at_centre(&mut self, _now: Time, _node: usize, ask: Ask) -> Answer {
        let Ask { id, window, what } = ask;
        // The store forgets counters of windows that are over.
        self.counters.retain(|of, _| of + 1 >= window);
        let counter = self.counters.entry(window).or_default();
        match what {
            Command::Get => {}
            Command::Set(value) => *counter = value,
            Command::Add(cost) => *counter += cost,
        }
        Answer { id, window, counted: *counter, was_set: matches!(what, Command::Set(_)) }
    }

    fn at_node(&mut self, _now: Time, node: usize, answer: Answer) {
        let (limit, counting) = (self.limit, self.counting);
        if let Some(node) = self.nodes.get_mut(node) {
            node.heard(limit, counting, answer);
        }
    }

    fn set_cap(&mut self, _now: Time, rate: f64) {
        self.limit = rate;
    }

    fn restart(&mut self, _now: Time) {
        self.counters.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes count an operation of 6 RU each, and the calls of both are at the store before its answers are back.
    fn both(counting: Counting) -> (f64, usize) {
        let mut store = Windows::new(10.0, 2, counting, Span::millis(20));
        for node in 0..2 {
            store.submit(Time(0), node, Operation { id: node as u64, cost: 6.0, deadline: Time(500_000) });
        }
        let mut admitted = 0;
        for _ in 0..3 {
            let asked = [0, 1].map(|node| {
                let mut acts = Acts::default();
                store.act(Time(0), node, &mut acts);
                admitted += acts.done.iter().filter(|(_, admitted)| *admitted).count();
                acts.asks
            });
            let mut answers = Vec::new();
            for (node, asks) in asked.into_iter().enumerate() {
                answers.extend(asks.into_iter().map(|ask| (node, store.at_centre(Time(0), node, ask))));
            }
            answers.into_iter().for_each(|(node, answer)| store.at_node(Time(0), node, answer));
        }
        (store.counters.get(&0).copied().unwrap_or_default(), admitted)
    }

    #[test]
    fn of_two_that_get_and_set_at_once_one_is_lost() {
        assert_eq!(both(Counting::GetThenSet), (6.0, 2));
        assert_eq!(both(Counting::Increment), (12.0, 1));
    }
}
