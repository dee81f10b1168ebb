//! What is kept of a group's consumption beside the machine's own count: its slot in the journal, and what the controller
//! has on disk.

use tidegate_core::usage::Total;

use crate::journal::{Journal, JournalError, Slot};
use crate::names::GroupName;

pub(crate) struct Kept {
    slot: Option<Slot>,
    /// Its consumption when it woke, which is on the controller's disk.
    confirmed: Total,
    /// The journal may say less than what was charged or is reported.
    is_behind: bool,
}

impl Kept {
    pub(super) fn new(slot: Option<Slot>, confirmed: Total) -> Self {
        Self { slot, confirmed, is_behind: false }
    }

    /// Its consumption when it fell asleep last, which is on the controller's disk.
    pub(crate) fn confirmed(&self) -> Total {
        self.confirmed
    }

    /// The journal is to be brought up to the consumption, before anyone hears of it.
    pub(crate) fn fall_behind(&mut self) {
        self.is_behind = true;
    }

    /// Brings the journal up to `total`.
    pub(crate) fn catch_up(
        &mut self,
        journal: &Journal,
        group: &GroupName,
        total: &Total,
    ) -> Result<(), JournalError> {
        match &mut self.slot {
            Some(slot) if std::mem::take(&mut self.is_behind) => journal.write(slot, group, total),
            _ => Ok(()),
        }
    }

    /// Empties the slot, as all that was consumed is on the controller's disk. A charge after that writes it again.
    pub(crate) fn empty(&self, journal: Option<&Journal>) {
        if let (Some(journal), Some(slot)) = (journal, &self.slot)
            && slot.is_written()
            && let Err(error) = journal.empty(slot.id())
        {
            tracing::error!(%error, "what was confirmed will be reported again");
        }
    }

    /// Gives the slot back: the group is no more.
    pub(crate) fn release(&mut self, journal: &Journal) {
        if let Some(slot) = self.slot.take()
            && let Err(error) = journal.release(&slot)
        {
            tracing::error!(%error, "the next start will report a group that is no more");
        }
    }

    /// The slot as words, zeros for none.
    pub(super) fn to_words(&self) -> [u64; Slot::WORDS] {
        self.slot.as_ref().map(Slot::to_words).unwrap_or_default()
    }
}
