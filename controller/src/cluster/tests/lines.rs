//! The way between a node and each machine: messages are late, lost, repeated and held up, in each direction by itself.

use super::world::{Draws, MS, SECOND};

/// A message may be on its way for so long that its stream is long gone.
const LATEST: u64 = 30 * SECOND;

/// A direction between a node and a machine.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// To the machine.
    Up,
    /// To the node.
    Down,
}

/// All ways of one node.
pub(super) struct Lines {
    /// One message in so many has a fault; 0: none.
    pub(super) one_in: u64,
    /// A message takes up to this time.
    pub(super) delay: u64,
    /// By machine and direction.
    ways: [[Line; 2]; 3],
}

#[derive(Default)]
struct Line {
    cut_until: u64,
    /// When the newest message arrives: those of one stream keep their order.
    last: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { one_in: 0, delay: 2 * MS, ways: Default::default() }
    }
}

impl Lines {
    pub(super) fn cut(&mut self, machine: usize, way: Way, until: u64) {
        self.ways[machine][way as usize].cut_until = until;
    }

    /// When copies of a message that is sent now arrive.
    pub(super) fn arrivals(&mut self, draws: &Draws, now: u64, machine: usize, way: Way) -> Vec<u64> {
        let (delay, line) = (1 + draws.below(self.delay), &mut self.ways[machine][way as usize]);
        if line.cut_until > now && draws.below(2) == 0 {
            return Vec::new();
        }
        let fault = if self.one_in == 0 || draws.below(self.one_in) != 0 { 3 } else { draws.below(3) };
        // What is held up is sent again when the way is open.
        line.last = line.last.max(line.cut_until.max(now) + delay);
        match fault {
            0 => Vec::new(),
            1 => vec![line.last, line.last],
            2 => vec![now + delay + draws.below(draws.among(&[SECOND, 5 * SECOND, LATEST]))],
            _ => vec![line.last],
        }
    }

    /// All is well from now on.
    pub(super) fn calm(&mut self) {
        *self = Self::default();
    }
}
