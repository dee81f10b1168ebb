//! A group beside the one in which its operations may go on.

use tidegate_core::node::{self, Refusal};
use tidegate_core::units::{Ru, Time};
use tokio::sync::oneshot;

use super::{CellState, Wish};

/// What a group is asked for the sake of operations that may go on elsewhere.
pub(crate) struct Passing<'s>(pub(crate) &'s mut CellState);

impl Passing<'_> {
    /// Why an operation would be refused now; `None` when it would start or wait. Counts nothing.
    pub(crate) fn denies(&mut self, now: Time, wish: Wish) -> Option<Refusal> {
        node::Passing(&mut self.0.node).denies(now, wish.cost, wish.deadline)
    }

    /// An operation that found no tokens here goes on in another group.
    pub(crate) fn pass_on(&mut self, now: Time, cost: Ru) {
        node::Passing(&mut self.0.node).pass_on(now, cost);
    }

    /// Completes with the next answer of the controller.
    pub(crate) fn next_answer(&mut self) -> oneshot::Receiver<()> {
        self.0.asking.listen()
    }
}
