//! The slot of each group, by its number. Numbers are assigned in sequence and never reused, so they form dense runs,
//! which pages of slots hold at about four bytes a group.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::group::GroupId;

/// The place of a group while it exists; another group may take it afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(NonZeroU32);

impl Slot {
    /// The index into a list.
    pub(crate) fn place(self) -> usize {
        // A machine of 16 bits has no such place.
        usize::try_from(self.0.get() - 1).unwrap_or(usize::MAX)
    }

    pub(crate) fn at(place: usize) -> Option<Self> {
        NonZeroU32::new(u32::try_from(place).ok()?.checked_add(1)?).map(Self)
    }
}

/// Slots in one page.
const PAGE: u32 = 256;

/// Slots by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    pages: BTreeMap<u32, Page>,
}

#[derive(Clone, Debug)]
struct Page {
    slots: Box<[Option<Slot>]>,
    used: u32,
}

impl Index {
    pub(crate) fn get(&self, id: GroupId) -> Option<Slot> {
        *self.pages.get(&(id.0 / PAGE))?.slots.get(offset(id))?
    }

    pub(crate) fn insert(&mut self, id: GroupId, slot: Slot) {
        let fresh =
            || Page { slots: std::iter::repeat_n(None, offset(GroupId(PAGE - 1)) + 1).collect(), used: 0 };
        let page = self.pages.entry(id.0 / PAGE).or_insert_with(fresh);
        if let Some(place) = page.slots.get_mut(offset(id)) {
            page.used += u32::from(place.is_none());
            *place = Some(slot);
        }
    }

    pub(crate) fn remove(&mut self, id: GroupId) -> Option<Slot> {
        let found = self.get(id)?;
        let page = self.pages.get_mut(&(id.0 / PAGE))?;
        *page.slots.get_mut(offset(id))? = None;
        page.used -= 1;
        if page.used == 0 {
            self.pages.remove(&(id.0 / PAGE));
        }
        Some(found)
    }

    /// All slots, in the order of the groups' numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.pages.values().flat_map(|page| page.slots.iter().flatten().copied())
    }
}

fn offset(id: GroupId) -> usize {
    usize::try_from(id.0 % PAGE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_near_and_far_lead_to_their_slots_in_order() {
        let mut index = Index::default();
        let ids = [0, 1, PAGE - 1, PAGE, 70_000, u32::MAX];
        for (place, id) in ids.iter().enumerate().rev() {
            index.insert(GroupId(*id), Slot::at(place).unwrap());
        }
        assert_eq!(index.iter().map(Slot::place).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(index.get(GroupId(70_000)), Slot::at(4));
        assert_eq!(index.get(GroupId(2)), None);
        assert_eq!(index.remove(GroupId(70_000)), Slot::at(4));
        assert_eq!((index.remove(GroupId(70_000)), index.pages.len()), (None, 3));
    }
}
