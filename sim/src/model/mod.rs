//! The exhaustive search: every order of events that a small system allows, on the machines that ship.
//!
//! Two nodes, one controller, a network that loses, repeats and reorders, time in steps. [`setting`] says how large
//! the system is and how often each fault may strike; within that nothing is left out. After every step the engine's
//! own invariants, the nodes' true sums, every window and the books are judged.
//!
//! Method: breadth-first search over hashed states (Holzmann, The SPIN Model Checker, ch. 8), so that the first
//! counterexample is a shortest one. A state is known by 128 bits of hash; two states with equal hashes would be
//! taken for one, which is less likely than a broken memory at any size that fits into it.

mod check;
mod controller;
mod describe;
mod enabled;
mod link;
mod node;
pub mod search;
pub mod setting;
mod shared;
mod state;
mod step;
mod window;

use setting::Setting;
pub use state::State;
pub use step::Step;

/// A small system, and what may happen to it.
#[derive(Clone, Debug)]
pub struct Model {
    setting: Setting,
}

impl Model {
    /// The system of a setting.
    pub fn new(setting: Setting) -> Self {
        Self { setting }
    }

    /// The state that `step` leads to.
    ///
    /// # Errors
    /// Says which promise the step breaks, with the numbers.
    pub fn take(&self, state: &State, step: Step) -> Result<State, String> {
        let mut next = state.clone();
        match step {
            Step::Tick => self.tick(&mut next)?,
            Step::Arrive { node, kind } => self.arrive(&mut next, node, kind)?,
            Step::Settle { node, as_dear } => self.settle(&mut next, node, as_dear)?,
            Step::Cancel { node, waiter } => self.cancel(&mut next, node, waiter)?,
            Step::Renew { node, late } => self.renew(&mut next, node, late)?,
            Step::Notice { node } => self.notice(&mut next, node),
            Step::Reset { node } => {
                next.left.resets = next.left.resets.saturating_sub(1);
                self.lose_stream(&mut next, node);
            }
            Step::Kill { node } => self.kill(&mut next, node),
            Step::Leave { node, late } => self.leave(&mut next, node, late)?,
            Step::ToController { node, place, late, again } => {
                let up = next.take_up(node, place, again)?;
                self.hear(&mut next, node, &up, late)?;
            }
            Step::ToNode { node, place, again } => {
                let down = next.take_down(node, place, again)?;
                self.obey(&mut next, node, down)?;
            }
            Step::Commit => next.commit(),
            Step::Crash => self.crash(&mut next),
            Step::Restart => self.restart(&mut next)?,
        }
        self.judge(state, &next)?;
        Ok(next)
    }
}
