//! Sticky nodes: a balancer sends every operation of the group to the one node that owns it, which has the whole bucket.
//!
//! The balancer stands in front of the nodes anyway, so that this costs no message and no time. The owner is the centre:
//! when it dies, operations fail until the balancer takes it out, and the next owner begins with a full bucket; when it
//! is back, the balancer returns to it, and its bucket is full again. That one node must carry the whole group is not
//! modelled.

use tidegate_core::units::{Span, Time};

use super::ideal::Ideal;
use super::{Acts, Operation, Rival};

/// Until a dead node is taken out: three checks, two seconds apart, as HAProxy has it by default (`fall 3`, `inter 2s`).
const FALLS: Span = Span::secs(6);
/// Until it is taken in again: two checks (`rise 2`).
const RISES: Span = Span::secs(4);

/// The owner's bucket, and what the balancer waits for.
#[derive(Clone, Debug)]
pub struct Sticky {
    owner: Ideal,
    /// The owner is dead, and the balancer does not know.
    down: bool,
    /// When the balancer chooses another owner.
    moves_at: Option<Time>,
    failed: Vec<u64>,
}

impl Sticky {
    /// An owner with a full bucket of `rate` RU/s.
    pub fn new(rate: f64) -> Self {
        Self { owner: Ideal::new(rate), down: false, moves_at: None, failed: Vec::new() }
    }
}

impl Rival for Sticky {
    type Ask = ();
    type Answer = ();

    fn submit(&mut self, now: Time, node: usize, operation: Operation) {
        if self.down && self.moves_at.is_none_or(|at| now < at) {
            self.failed.push(operation.id);
        } else {
            self.owner.submit(now, node, operation);
        }
    }

    fn act(&mut self, now: Time, node: usize, acts: &mut Acts<()>) {
        if self.moves_at.is_some_and(|at| at <= now) {
            self.moves_at = None;
            self.down = false;
            self.owner.fill_up(now);
        }
        acts.done.extend(self.failed.drain(..).map(|id| (id, false)));
        if !self.down {
            self.owner.act(now, node, acts);
        }
    }

    fn wake_at(&self, now: Time, node: usize) -> Option<Time> {
        let served = if self.down { None } else { self.owner.wake_at(now, node) };
        self.moves_at.into_iter().chain(served).min()
    }

    fn at_centre(&mut self, _now: Time, _node: usize, _ask: ()) {}

    fn at_node(&mut self, _now: Time, _node: usize, _answer: ()) {}

    fn set_cap(&mut self, now: Time, rate: f64) {
        self.owner.set_cap(now, rate);
    }

    fn lost(&mut self, now: Time) {
        self.failed.extend(self.owner.give_up_all());
        self.down = true;
        self.moves_at = Some(now.after(FALLS));
    }

    fn restart(&mut self, now: Time) {
        self.moves_at = Some(now.after(RISES));
    }
}
