//! A token server that is asked about every operation: it has the whole bucket, and answers when the operation may
//! start, or that it would wait too long.
//!
//! The bucket is in the server's memory, and full after a restart. A call that is not answered in time is decided by the
//! node alone: it lets the operation in (`failure_mode_deny: false`, the default of Envoy's rate limit filter) or refuses
//! it.

use std::collections::BTreeMap;

use tidegate_core::units::{Span, Time};

use super::number::{between, span};
use super::{Acts, Operation, Rival};

/// A question about one operation.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    id: u64,
    cost: f64,
    deadline: Time,
}

/// What a call waits for at most, and what becomes of an operation then.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// 20 ms are the default of Envoy's filter and of Sentinel's cluster client.
    pub timeout: Span,
    /// Lets operations in when nobody answers.
    pub fails_open: bool,
}

#[derive(Clone, Debug, Default)]
struct Node {
    asks: Vec<Ask>,
    asked: BTreeMap<u64, Time>,
    /// Operations with the time of their outcome, and the outcome.
    decided: BTreeMap<(Time, u64), bool>,
}

/// The server and its nodes.
#[derive(Clone, Debug)]
pub struct Server {
    rate: f64,
    /// Less than nothing while operations are told to wait.
    tokens: f64,
    since: Time,
    call: Call,
    nodes: Vec<Node>,
}

impl Server {
    /// A full bucket of one second of `rate` RU/s.
    pub fn new(rate: f64, nodes: usize, call: Call) -> Self {
        Self { rate, tokens: rate, since: Time(0), call, nodes: vec![Node::default(); nodes] }
    }

    fn refill(&mut self, now: Time) {
        self.tokens = (self.tokens + self.rate * between(self.since, now)).min(self.rate);
        self.since = now;
    }
}

impl Rival for Server {
    type Ask = Ask;
    /// The operation, and how long from now it waits, if it may start.
    type Answer = (u64, Option<Span>);

    fn submit(&mut self, now: Time, node: usize, operation: Operation) {
        if let Some(node) = self.nodes.get_mut(node) {
            let Operation { id, cost, deadline } = operation;
            node.asks.push(Ask { id, cost, deadline });
            node.asked.insert(id, now.after(self.call.timeout));
        }
    }

    fn act(&mut self, now: Time, node: usize, acts: &mut Acts<Ask>) {
        let Some(node) = self.nodes.get_mut(node) else {
            return;
        };
        acts.asks.append(&mut node.asks);
        // Numbers rise with the arrivals, and all calls have the same patience.
        while let Some(first) = node.asked.first_entry().filter(|first| *first.get() <= now) {
            acts.done.push((*first.key(), self.call.fails_open));
            first.remove();
        }
        while let Some(first) = node.decided.first_entry().filter(|first| first.key().0 <= now) {
            acts.done.push((first.key().1, *first.get()));
            first.remove();
        }
    }

    fn wake_at(&self, _now: Time, node: usize) -> Option<Time> {
        let node = self.nodes.get(node)?;
        let asked = node.asked.first_key_value().map(|(_, at)| *at);
        let decided = node.decided.first_key_value().map(|((at, _), _)| *at);
        asked.into_iter().chain(decided).min()
    }

    fn at_centre(&mut self, now: Time, _node: usize, ask: Ask) -> (u64, Option<Span>) {
        self.refill(now);
        let wait = span((ask.cost - self.tokens).max(0.0) / self.rate);
        if now.after(wait) > ask.deadline {
            return (ask.id, None);
        }
        self.tokens -= ask.cost;
        (ask.id, Some(wait))
    }

    fn at_node(&mut self, now: Time, node: usize, (id, wait): (u64, Option<Span>)) {
        if let Some(node) = self.nodes.get_mut(node)
            && node.asked.remove(&id).is_some()
        {
            node.decided.insert((now.after(wait.unwrap_or_default()), id), wait.is_some());
        }
    }

    fn set_cap(&mut self, now: Time, rate: f64) {
        self.refill(now);
        self.rate = rate;
    }

    fn restart(&mut self, now: Time) {
        self.tokens = self.rate;
        self.since = now;
    }
}
