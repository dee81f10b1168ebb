//! Messages under way between a node and the controller, oldest first; any of them may arrive next, or none.

use super::Model;
use super::state::{Down, State, Up};

/// One node's stream.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Link {
    pub(super) up: Vec<Up>,
    pub(super) down: Vec<Down>,
}

impl State {
    /// Whether one more message may be late; counts it.
    pub(super) fn delay(&mut self) -> bool {
        let may = self.left.delays > 0;
        if self.left.delays < u8::MAX {
            self.left.delays = self.left.delays.saturating_sub(1);
        }
        may
    }

    /// A message to the controller arrives, for good or to arrive once more.
    pub(super) fn take_up(&mut self, node: usize, place: usize, again: bool) -> Result<Up, String> {
        self.left.repeats = self.left.repeats.saturating_sub(u8::from(again));
        let link = self.links.get_mut(node).ok_or("no such node")?;
        let up = link.up.get(place).cloned().ok_or("no such message")?;
        if !again {
            link.change(|link| link.up.remove(place));
        }
        Ok(up)
    }

    /// A message to a node arrives, for good or to arrive once more.
    pub(super) fn take_down(&mut self, node: usize, place: usize, again: bool) -> Result<Down, String> {
        self.left.repeats = self.left.repeats.saturating_sub(u8::from(again));
        let link = self.links.get_mut(node).ok_or("no such node")?;
        let down = link.down.get(place).cloned().ok_or("no such message")?;
        if !again {
            link.change(|link| link.down.remove(place));
        }
        Ok(down)
    }
}

impl Model {
    /// Keeps a message to the controller under way; past the limit the oldest is lost.
    pub(super) fn keep_up(&self, state: &mut State, node: usize, up: Up) {
        let most = usize::from(self.setting.bounds.in_flight);
        if let Some(link) = state.links.get_mut(node) {
            link.change(|link| {
                link.up.push(up);
                link.up.drain(..link.up.len().saturating_sub(most));
            });
        }
    }

    /// Keeps a message to a node under way; past the limit the oldest is lost.
    pub(super) fn keep_down(&self, state: &mut State, node: usize, down: Down) {
        let most = usize::from(self.setting.bounds.in_flight);
        if let Some(link) = state.links.get_mut(node) {
            link.change(|link| {
                link.down.push(down);
                link.down.drain(..link.down.len().saturating_sub(most));
            });
        }
    }
}
