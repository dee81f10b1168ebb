//! The time that the controller takes for a renewal, and the renewals that wait for it meanwhile: first come, first
//! served, as sockets and tasks do it. By default everything is done at once.

use std::collections::VecDeque;

use tidegate_core::units::Span;

use super::network::Message;
use super::world::{Event, World};

/// Node, incarnation and process that sent a message.
type Sender = (usize, u64, u64);

/// A task of the controller.
#[derive(Clone, Debug)]
pub(super) struct Work {
    renewal: Span,
    shed: Span,
    waiting: VecDeque<(Sender, Message)>,
    busy: bool,
    counts: Counts,
}

/// Its work since the times were set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Renewals that were considered.
    pub considered: u64,
    /// Renewals that were shed.
    pub shed: u64,
    /// The most that waited.
    pub longest: usize,
}

impl World {
    /// A renewal takes the controller so long from now on, and one that it sheds so long.
    pub fn set_work(&mut self, renewal: Span, shed: Span) {
        let before = self.work.take();
        let (waiting, busy) = before.map_or_else(Default::default, |work| (work.waiting, work.busy));
        self.work = Some(Work { renewal, shed, waiting, busy, counts: Counts::default() });
    }

    /// The controller's work since its times were set.
    pub fn work(&self) -> Option<Counts> {
        self.work.as_ref().map(|work| work.counts)
    }

    /// A message has arrived at the controller.
    pub(super) fn receive(&mut self, from: Sender, message: Message) {
        let Some(work) = &mut self.work else {
            self.at_controller(from, message);
            return;
        };
        work.waiting.push_back((from, message));
        work.counts.longest = work.counts.longest.max(work.waiting.len());
        if !work.busy {
            self.serve();
        }
    }

    /// The controller takes the next message in hand.
    pub(super) fn serve(&mut self) {
        let Some(work) = &mut self.work else { return };
        let next = work.waiting.pop_front();
        work.busy = next.is_some();
        let Some((from, message)) = next else { return };
        let shed = self.at_controller(from, message);
        let Some(work) = &mut self.work else { return };
        let takes = if shed { work.shed } else { work.renewal };
        work.counts.shed += u64::from(shed);
        work.counts.considered += u64::from(!shed);
        self.at(self.now.after(takes), Event::Served);
    }
}
