//! Groups without anything to do: what is kept of them, and how they come back.

use std::sync::Arc;

use tidegate_core::node::{Dormant, NodeGroup};
use tidegate_core::units::Time;
use tidegate_core::usage::Total;

use super::packed::{pack, unpack};
use super::{CellState, GroupCell};
use crate::journal::Slot;

/// Words of a group that sleeps: the machine's, then its slot's.
const WORDS: usize = Dormant::WORDS + Slot::WORDS;

/// A group's state, or what is left of it while it sleeps.
#[derive(Default)]
pub(crate) struct Phase {
    /// `None`: it sleeps.
    state: Option<Box<CellState>>,
    /// [`WORDS`] packed, while it sleeps.
    rest: Box<[u8]>,
}

impl Phase {
    pub(super) fn awake(state: CellState) -> Self {
        Self { state: Some(Box::new(state)), ..Self::default() }
    }

    pub(super) fn asleep(rest: Box<[u8]>) -> Self {
        Self { state: None, rest }
    }

    /// The state of a group that is awake.
    pub(super) fn state(&mut self) -> Option<&mut CellState> {
        self.state.as_deref_mut()
    }

    /// What a group that sleeps remembers.
    pub(super) fn dormant(&self) -> Dormant {
        Dormant::from_words(unpack(&self.rest))
    }
}

impl GroupCell {
    /// The state, of a group that slept until now if need be.
    pub(super) fn wake<'p>(self: &Arc<Self>, phase: &'p mut Phase, now: Time) -> &'p mut CellState {
        let Phase { state, rest } = phase;
        state.get_or_insert_with(|| {
            let [machine @ .., id, version] = unpack::<WORDS>(&std::mem::take(rest));
            let slot = [id, version].map(|word| u64::try_from(word).unwrap_or_default());
            let dormant = Dormant::from_words(machine);
            self.shared.awake.woke(self, dormant.consumption.usage.cpu_ns);
            let mut node = NodeGroup::awaken(now, self.shared.config, &dormant);
            node.expect_round_trip(self.shared.round_trip());
            Box::new(CellState::new(node, Slot::from_words(slot)))
        })
    }

    /// Sends the group to sleep if it has nothing to do and all it ever consumed is `durable`. Whether it sleeps.
    pub(crate) fn try_sleep(self: &Arc<Self>, durable: &Total) -> bool {
        let mut phase = self.lock();
        let Some(state) = phase.state() else {
            return true;
        };
        let Some(dormant) = state.node.dormant().filter(|_| state.is_quiet()) else {
            return false;
        };
        if dormant.consumption != *durable {
            return false;
        }
        self.empty_slot(state);
        let slot = state.slot.as_ref().map(Slot::to_words).unwrap_or_default();
        let words: Vec<u128> = dormant.to_words().into_iter().chain(slot.map(u128::from)).collect();
        *phase = Phase::asleep(pack(&words));
        self.shared.awake.slept(self, dormant.consumption.usage.cpu_ns);
        true
    }

    /// The memory of a sleeping group, from which a later cell can be made; `None` when it is awake.
    pub(crate) fn take_rest(&self) -> Option<Box<[u8]>> {
        let mut phase = self.lock();
        let asleep = phase.state().is_none();
        asleep.then(|| std::mem::take(&mut phase.rest))
    }
}

impl CellState {
    /// No caller holds, waits for, or is about to look at anything.
    fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
            && self.open == 0
            && self.open_purses.is_empty()
            && !self.announced
            && self.scheduled.is_none()
            && self.listening.is_empty()
    }
}
