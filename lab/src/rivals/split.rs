//! A static, even split: each of n nodes has a bucket with an n-th of the rate and of the burst, and no node speaks with
//! any other. What one node leaves, no other can have.

use tidegate_core::units::Time;

use super::ideal::Ideal;
use super::number::count;
use super::{Acts, Operation, Rival};

/// A bucket and a queue for each node.
#[derive(Clone, Debug)]
pub struct Split(Vec<Ideal>);

impl Split {
    /// Splits `rate` RU/s.
    pub fn new(rate: f64, nodes: usize) -> Self {
        Self(vec![Ideal::new(rate / count(nodes)); nodes])
    }
}

impl Rival for Split {
    type Ask = ();
    type Answer = ();

    fn submit(&mut self, now: Time, node: usize, operation: Operation) {
        if let Some(own) = self.0.get_mut(node) {
            own.submit(now, node, operation);
        }
    }

    fn act(&mut self, now: Time, node: usize, acts: &mut Acts<()>) {
        if let Some(own) = self.0.get_mut(node) {
            own.act(now, node, acts);
        }
    }

    fn wake_at(&self, now: Time, node: usize) -> Option<Time> {
        self.0.get(node)?.wake_at(now, node)
    }

    fn at_centre(&mut self, _now: Time, _node: usize, _ask: ()) {}

    fn at_node(&mut self, _now: Time, _node: usize, _answer: ()) {}

    fn set_cap(&mut self, now: Time, rate: f64) {
        let part = rate / count(self.0.len());
        self.0.iter_mut().for_each(|own| own.set_cap(now, part));
    }

    fn restart(&mut self, _now: Time) {}
}
