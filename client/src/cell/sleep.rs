//! Groups without anything to do: what is kept of them, and how they come back.

use tidegate_core::node::{Dormant, NodeConfig, NodeGroup};
use tidegate_core::units::Time;
use tidegate_core::usage::Total;

use super::CellState;
use super::packed::{pack, unpack};
use crate::journal::{Journal, Slot};
use crate::shared::Shared;

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
    /// A new group.
    pub(crate) fn awake(now: Time, shared: &Shared, config: NodeConfig, slot: Option<Slot>) -> Self {
        let state = started(NodeGroup::new(now, config), shared, slot);
        Self { state: Some(state), ..Self::default() }
    }

    /// A group that sleeps, from what is left of it.
    pub(crate) fn asleep(rest: Box<[u8]>) -> Self {
        Self { state: None, rest }
    }

    /// The state of a group that is awake.
    pub(crate) fn state(&mut self) -> Option<&mut CellState> {
        self.state.as_deref_mut()
    }

    /// What a group that sleeps had consumed.
    pub(crate) fn consumed(&self) -> Total {
        dormant(&self.rest).0.consumption
    }

    /// The state; when the group slept until now, passes the CPU time that it has used to `woke`.
    pub(crate) fn wake(&mut self, now: Time, shared: &Shared, woke: impl FnOnce(u128)) -> &mut CellState {
        let Self { state, rest } = self;
        state.get_or_insert_with(|| {
            let (dormant, slot) = dormant(&std::mem::take(rest));
            woke(dormant.consumption.usage.cpu_ns);
            started(NodeGroup::awaken(now, shared.config, &dormant), shared, slot)
        })
    }

    /// Falls asleep if the group has nothing to do and all it ever consumed is `durable`. Returns the CPU time that it has
    /// used; `None` when it is awake, or slept already.
    pub(crate) fn fall_asleep(&mut self, durable: &Total, journal: Option<&Journal>) -> Option<u128> {
        let state = self.state.as_deref_mut()?;
        let dormant = quiet(state).filter(|dormant| dormant.consumption == *durable)?;
        let (kept, _) = state.kept();
        kept.empty(journal);
        let slot = kept.to_words().map(u128::from);
        let words: Vec<u128> = dormant.to_words().into_iter().chain(slot).collect();
        *self = Self::asleep(pack(&words));
        Some(dormant.consumption.usage.cpu_ns)
    }

    /// The memory of a sleeping group, from which a later one can be made; `None` when it is awake.
    pub(crate) fn take_rest(&mut self) -> Option<Box<[u8]>> {
        self.state.is_none().then(|| std::mem::take(&mut self.rest))
    }
}

fn started(mut node: NodeGroup, shared: &Shared, slot: Option<Slot>) -> Box<CellState> {
    node.expect_round_trip(shared.round_trip());
    Box::new(CellState::new(node, slot))
}

/// What to remember of a group; `None` while a caller holds, waits for, or is about to look at anything.
fn quiet(state: &CellState) -> Option<Dormant> {
    let is_quiet = state.operations.is_quiet()
        && state.loans.is_empty()
        && state.asking.is_quiet()
        && state.scheduled.is_none();
    state.node.dormant().filter(|_| is_quiet)
}

fn dormant(rest: &[u8]) -> (Dormant, Option<Slot>) {
    let [machine @ .., id, version] = unpack::<WORDS>(rest);
    let slot = [id, version].map(|word| u64::try_from(word).unwrap_or_default());
    (Dormant::from_words(machine), Slot::from_words(slot))
}
