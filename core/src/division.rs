//! The division of a group's rate among those below it.
//!
//! The guarantees of the parties with demand are met first (in proportion to the guarantees when they do not fit). The
//! rest goes to parties that may use more: higher priorities first, max-min by weight within a priority. Each step
//! leaves a sixteenth to those after it, so that no party starves. A group's own clients compete as one more party
//! without a guarantee.

use crate::fill::{Member, WaterFill};
use crate::group::{GroupId, Priority};
use crate::units::Rate;

/// Guarantees, and then each priority, leave one part in this many to each priority after them, so that no party
/// starves.
const LEFT_FOR_OTHERS: i64 = 16;

/// A party to the division of a group's rate: a child group, or the group's own clients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Party {
    Own,
    Child(GroupId),
}

/// A party's entry: the rate that its guarantee covers, and the rate that it would borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    sure: Member,
    rest: Member,
    priority: Priority,
}

impl Entry {
    /// `None` when `want` is zero. `guarantee` is zero for own clients.
    pub(crate) fn new(want: Rate, guarantee: Rate, priority: Priority, weight: u32) -> Option<Self> {
        let sure = want.min(guarantee);
        (want.0 != 0).then(|| Self {
            sure: Member::new(sure.0, guarantee.0),
            rest: Member::new((want - sure).0, i64::from(weight)),
            priority,
        })
    }
}

/// Parties with demand, in the order in which they are served.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Division {
    guarantees: WaterFill<Party>,
    borrowing: [WaterFill<Party>; 3],
    /// The entry of the group's own clients.
    own: Option<Entry>,
}

impl Division {
    pub(crate) const fn new() -> Self {
        Self { guarantees: WaterFill::new(), borrowing: [const { WaterFill::new() }; 3], own: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.guarantees.len() == 0
    }

    /// Parties with demand.
    pub(crate) fn len(&self) -> usize {
        self.guarantees.len()
    }

    /// Sum of all wants.
    pub(crate) fn demand(&self) -> i64 {
        self.borrowing.iter().fold(self.guarantees.demand(), |sum, f| sum.saturating_add(f.demand()))
    }

    /// Adds a party, changes its entry from `before`, or removes it.
    pub(crate) fn change(&mut self, party: Party, before: Option<Entry>, after: Option<Entry>) {
        self.guarantees.change(party, before.map(|entry| entry.sure), after.map(|entry| entry.sure));
        for (rank, fill) in self.borrowing.iter_mut().enumerate() {
            let rest = |entry: Entry| (usize::from(entry.priority.rank()) == rank).then_some(entry.rest);
            fill.change(party, before.and_then(rest), after.and_then(rest));
        }
    }

    /// Whether exactly these are its parties.
    pub(crate) fn is_of(&self, own: Option<Entry>, children: &[(GroupId, Entry)]) -> bool {
        let children = children.iter().map(|(id, entry)| (Party::Child(*id), *entry));
        let parties: Vec<_> = own.map(|entry| (Party::Own, entry)).into_iter().chain(children).collect();
        let borrows = |rank: usize| {
            let of_rank = parties.iter().filter(move |(_, entry)| usize::from(entry.priority.rank()) == rank);
            of_rank.map(|(party, entry)| (*party, entry.rest))
        };
        self.own == own
            && self.guarantees.is_of(parties.iter().map(|(party, entry)| (*party, entry.sure)))
            && self.borrowing.iter().enumerate().all(|(rank, fill)| fill.is_of(borrows(rank)))
    }

    /// The same as `change`, for the group's own clients.
    pub(crate) fn change_own(&mut self, after: Option<Entry>) {
        let before = std::mem::replace(&mut self.own, after);
        self.change(Party::Own, before, after);
    }

    /// The share of `capacity` for the group's own clients.
    pub(crate) fn own_share(&self, capacity: Rate) -> Rate {
        self.share(Party::Own, self.own, capacity)
    }

    /// A party's share of `capacity`.
    pub(crate) fn share(&self, party: Party, entry: Option<Entry>, capacity: Rate) -> Rate {
        let Some(entry) = entry else { return Rate::ZERO };
        let part = capacity.0 / LEFT_FOR_OTHERS;
        let mut left_after: i64 = self.borrowing.iter().map(|fill| fill.demand().min(part)).sum();
        let sure = self.guarantees.share(party, entry.sure, capacity.0 - left_after);
        let mut left = capacity.0 - self.guarantees.given(capacity.0 - left_after);
        for (rank, fill) in self.borrowing.iter().enumerate() {
            left_after -= fill.demand().min(part);
            if usize::from(entry.priority.rank()) == rank {
                return Rate(sure.saturating_add(fill.share(party, entry.rest, left - left_after)));
            }
            left -= fill.given(left - left_after);
        }
        Rate(sure)
    }
}
