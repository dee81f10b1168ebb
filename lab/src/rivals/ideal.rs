//! The ideal, which cannot be built: one token bucket for all nodes, one queue in the order of arrival, no delay.
//!
//! It uses all there is to use and never admits more. It is not fair: the node that offers most is served most.

use tidegate_core::units::Time;

use super::number::{between, span};
use super::queue::Queue;
use super::{Acts, Operation, Rival};

/// One bucket, full at the start, and one queue.
#[derive(Clone, Debug)]
pub struct Ideal {
    rate: f64,
    burst: f64,
    tokens: f64,
    since: Time,
    queue: Queue,
}

impl Ideal {
    /// A full bucket of one second of `rate` RU/s.
    pub fn new(rate: f64) -> Self {
        Self { rate, burst: rate, tokens: rate, since: Time(0), queue: Queue::default() }
    }

    /// The bucket is full, as at a start.
    pub(super) fn fill_up(&mut self, now: Time) {
        self.tokens = self.burst;
        self.since = now;
    }

    /// Takes out all who wait.
    pub(super) fn give_up_all(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.queue.pop()).map(|operation| operation.id).collect()
    }

    fn refill(&mut self, now: Time) {
        self.tokens = (self.tokens + self.rate * between(self.since, now)).min(self.burst);
        self.since = now;
    }
}

impl Rival for Ideal {
    type Ask = ();
    type Answer = ();

    fn submit(&mut self, _now: Time, _node: usize, operation: Operation) {
        self.queue.push(operation);
    }

    fn act(&mut self, now: Time, _node: usize, acts: &mut Acts<()>) {
        self.refill(now);
        while let Some(id) = self.queue.give_up(now) {
            acts.done.push((id, false));
        }
        while let Some(first) = self.queue.first()
            && first.cost <= self.tokens
        {
            self.tokens -= first.cost;
            acts.done.extend(self.queue.pop().map(|operation| (operation.id, true)));
        }
    }

    fn wake_at(&self, now: Time, _node: usize) -> Option<Time> {
        let first = self.queue.first()?;
        let covered = now.after(span((first.cost - self.tokens) / self.rate));
        Some(self.queue.next_deadline().map_or(covered, |deadline| covered.min(deadline)))
    }

    fn at_centre(&mut self, _now: Time, _node: usize, _ask: ()) {}

    fn at_node(&mut self, _now: Time, _node: usize, _answer: ()) {}

    fn set_cap(&mut self, now: Time, rate: f64) {
        self.refill(now);
        self.rate = rate;
        self.burst = rate;
        self.tokens = self.tokens.min(rate);
    }

    fn restart(&mut self, _now: Time) {}
}
