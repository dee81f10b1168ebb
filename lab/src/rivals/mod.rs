//! Other allocators, modelled so that they can be measured beside tidegate: the same operations at the same moments,
//! the same delays between nodes and centre, the same record of what was admitted.
//!
//! Each model is written from a description of the system; `docs/comparison.md` says what it takes and what it leaves
//! out. RU and RU/s are floats here, because they are floats in most of the systems; times are exact microseconds.

pub mod arena;
pub mod cockroach;
pub mod doorman;
pub mod ideal;
pub mod known;
mod number;
pub mod pd;
mod queue;
pub mod server;
pub mod split;
pub mod sticky;
pub mod window;

use tidegate_core::units::Time;

/// An operation that a node is asked to admit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operation {
    /// Unique in a run, rising with the arrivals.
    pub id: u64,
    /// Cost in RU, known in advance.
    pub cost: f64,
    /// It gives up then.
    pub deadline: Time,
}

/// An action of a node at a moment.
#[derive(Debug)]
pub struct Acts<Ask> {
    /// Operations that are admitted (true), or refused or out of patience (false), by number.
    pub done: Vec<(u64, bool)>,
    /// Messages to the centre.
    pub asks: Vec<Ask>,
}

impl<Ask> Default for Acts<Ask> {
    fn default() -> Self {
        Self { done: Vec::new(), asks: Vec::new() }
    }
}

/// One allocator: its centre and all its nodes, without the network between them.
pub trait Rival {
    /// Node to centre.
    type Ask;
    /// Centre to node.
    type Answer;

    /// An operation arrives at a node. The outcome comes from `act`.
    fn submit(&mut self, now: Time, node: usize, operation: Operation);

    /// Lets a node act; called after everything that happens to it.
    fn act(&mut self, now: Time, node: usize, acts: &mut Acts<Self::Ask>);

    /// When a node wants to act next if nothing happens to it.
    fn wake_at(&self, now: Time, node: usize) -> Option<Time>;

    /// The centre hears a node, and answers.
    fn at_centre(&mut self, now: Time, node: usize, ask: Self::Ask) -> Self::Answer;

    /// A node hears the centre, or another node.
    fn at_node(&mut self, now: Time, node: usize, answer: Self::Answer);

    /// What a node that has acted sends to others, where nodes speak with each other.
    fn to_others(&mut self, _now: Time, _node: usize) -> Vec<(usize, Self::Answer)> {
        Vec::new()
    }

    /// The cap is now this many RU/s, with a burst of one second.
    fn set_cap(&mut self, now: Time, rate: f64);

    /// The centre dies.
    fn lost(&mut self, _now: Time) {}

    /// The centre starts again after it was away; what it does not keep is gone.
    fn restart(&mut self, now: Time);
}
