//! The consumption ledger: what every client incarnation charged to every group, counted exactly once.
//!
//! Reports are cumulative, so the ledger keeps the last value per (client, group) and adds only the difference:
//! repeating a report changes nothing, a lost one is contained in the next (invariant I6). The shell stores the
//! dirty rows in one transaction; after a crash the rows and totals fall back together and the next reports bring
//! both forward again.
//!
//! Nodes report by the name of a group. One that is created again under the name of a removed one begins, client by
//! client, where the counting for that one ended, so that nothing is counted for both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::group::{ClientId, GroupId};
use crate::usage::Total;

/// Why a report was not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerError {
    /// A counter is lower than in an earlier report of the same incarnation.
    Backwards,
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backwards => f.write_str(
                "a cumulative counter is lower than reported before; restart the client under a new incarnation",
            ),
        }
    }
}

impl std::error::Error for LedgerError {}

/// What a client incarnation charged to a group.
#[derive(Clone, Debug, Default, Hash)]
struct Row {
    /// As it was reported.
    total: Total,
    /// The part of it that was counted for a removed group of the same name.
    before: Option<Box<Total>>,
    /// In the list of rows to be stored.
    dirty: bool,
}

impl Row {
    /// What counts for the group.
    fn charged(&self) -> Total {
        let before = self.before.as_deref().copied().unwrap_or_default();
        // Never less than before: reports of less are refused.
        self.total.minus(&before).unwrap_or_default()
    }
}

/// Total by client incarnation and group.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    rows: BTreeMap<(GroupId, ClientId), Row>,
    totals: BTreeMap<GroupId, Total>,
    /// Each once, in the order in which they changed.
    dirty: Vec<(GroupId, ClientId)>,
}

/// The order of what is to be stored says nothing.
impl Hash for Ledger {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { rows, totals, dirty: _ } = self;
        (rows, totals).hash(state);
    }
}

impl Ledger {
    /// A ledger as it was stored: for each group the sum of rows that were folded away, what was counted for removed
    /// groups of the same names, and rows.
    ///
    /// # Errors
    /// [`LedgerError::Backwards`] when a row has less than was counted before.
    pub fn load(
        folded: impl Iterator<Item = (GroupId, Total)>,
        before: impl Iterator<Item = (ClientId, GroupId, Total)>,
        rows: impl Iterator<Item = (ClientId, GroupId, Total)>,
    ) -> Result<Self, LedgerError> {
        let mut ledger = Self::default();
        for (group, total) in folded {
            ledger.add(group, &total);
        }
        for (client, group, total) in before {
            ledger.begin_at(client, group, total);
        }
        for (client, group, total) in rows {
            ledger.report(client, group, &total)?;
        }
        ledger.take_dirty();
        Ok(ledger)
    }

    /// The first report of `client` to `group` counts from here.
    pub fn begin_at(&mut self, client: ClientId, group: GroupId, total: Total) {
        let row = Row { total, before: Some(Box::new(total)), dirty: false };
        self.rows.entry((group, client)).or_insert(row);
    }

    /// Counts a cumulative report; returns what was new in it.
    ///
    /// # Errors
    /// [`LedgerError::Backwards`] when a counter fell; nothing is counted then.
    pub fn report(&mut self, client: ClientId, group: GroupId, total: &Total) -> Result<Total, LedgerError> {
        let row = self.rows.entry((group, client)).or_default();
        let new = total.minus(&row.total).ok_or(LedgerError::Backwards)?;
        if new != Total::default() {
            row.total = *total;
            if !std::mem::replace(&mut row.dirty, true) {
                self.dirty.push((group, client));
            }
            self.add(group, &new);
        }
        Ok(new)
    }

    fn add(&mut self, group: GroupId, new: &Total) {
        self.totals.entry(group).or_default().add(new);
    }

    /// All that was ever charged to a group.
    pub fn total(&self, group: GroupId) -> Total {
        self.totals.get(&group).copied().unwrap_or_default()
    }

    fn rows_of(&self, group: GroupId) -> impl Iterator<Item = (ClientId, &Row)> {
        let rows = self.rows.range((group, ClientId(0))..=(group, ClientId(u64::MAX)));
        rows.map(|((_, client), row)| (*client, row))
    }

    /// What each client charged to a group.
    pub fn charged(&self, group: GroupId) -> impl Iterator<Item = (ClientId, Total)> {
        let charged = self.rows_of(group).map(|(client, row)| (client, row.charged()));
        charged.filter(|(_, charged)| *charged != Total::default())
    }

    /// What each client reported of a group, and of those before it under its name.
    pub fn reported(&self, group: GroupId) -> impl Iterator<Item = (ClientId, &Total)> {
        self.rows_of(group).map(|(client, row)| (client, &row.total))
    }

    /// What clients charged together, by group.
    pub fn charged_by(&self, clients: &BTreeSet<ClientId>) -> BTreeMap<GroupId, Total> {
        let mut sums: BTreeMap<GroupId, Total> = BTreeMap::new();
        for ((group, _), row) in self.rows.iter().filter(|((_, client), _)| clients.contains(client)) {
            sums.entry(*group).or_default().add(&row.charged());
        }
        sums
    }

    /// Rows changed since the last call, as they were reported.
    pub fn take_dirty(&mut self) -> Vec<(ClientId, GroupId, Total)> {
        let dirty = std::mem::take(&mut self.dirty);
        let row = |(group, client)| {
            let row = self.rows.get_mut(&(group, client))?;
            row.dirty = false;
            Some((client, group, row.total))
        };
        dirty.into_iter().filter_map(row).collect()
    }

    /// Marks rows as changed again, because storing them failed.
    pub fn mark_dirty(&mut self, rows: impl Iterator<Item = (ClientId, GroupId)>) {
        for (client, group) in rows {
            if let Some(row) = self.rows.get_mut(&(group, client)).filter(|row| !row.dirty) {
                row.dirty = true;
                self.dirty.push((group, client));
            }
        }
    }

    /// Drops the rows of clients that will never report again; their consumption stays in the totals.
    pub fn forget(&mut self, clients: &BTreeSet<ClientId>) {
        self.rows.retain(|(_, client), _| !clients.contains(client));
        self.dirty.retain(|(_, client)| !clients.contains(client));
    }

    /// Drops a deleted group.
    pub fn forget_group(&mut self, group: GroupId) {
        self.rows.retain(|(id, _), _| *id != group);
        self.dirty.retain(|(id, _)| *id != group);
        self.totals.remove(&group);
    }
}

#[cfg(test)]
mod tests {
    use std::iter::{empty, once};

    use super::*;
    use crate::units::Ru;
    use crate::usage::{Consumption, RuParts};

    fn charged(ru: i64, operations: u64) -> Total {
        Consumption { charged: RuParts::flat(Ru(ru)), operations, ..Consumption::default() }.into()
    }

    #[test]
    fn repeated_late_and_skipped_reports_are_counted_once() {
        let (a, b, group) = (ClientId(1), ClientId(2), GroupId(7));
        let mut ledger = Ledger::default();
        assert_eq!(ledger.report(a, group, &charged(10, 1)), Ok(charged(10, 1)));
        assert_eq!(ledger.report(a, group, &charged(10, 1)), Ok(Total::default()));
        assert_eq!(ledger.report(a, group, &charged(35, 4)), Ok(charged(25, 3)));
        assert_eq!(ledger.report(a, group, &charged(10, 1)), Err(LedgerError::Backwards));
        assert_eq!(ledger.report(b, group, &charged(5, 1)), Ok(charged(5, 1)));
        assert_eq!(ledger.total(group), charged(40, 5));
        assert_eq!(ledger.charged(group).count(), 2);
    }

    #[test]
    fn a_ledger_that_fell_back_to_its_last_commit_is_brought_forward_by_the_next_reports() {
        let (client, group) = (ClientId(1), GroupId(7));
        let mut ledger = Ledger::default();
        let _ = ledger.report(client, group, &charged(10, 1));
        let stored = ledger.take_dirty();
        assert!(ledger.take_dirty().is_empty());
        let _ = ledger.report(client, group, &charged(30, 2));
        let mut after_crash = Ledger::load(empty(), empty(), stored.into_iter()).unwrap();
        assert_eq!(after_crash.take_dirty(), []);
        assert_eq!(after_crash.total(group), charged(10, 1));
        assert_eq!(after_crash.report(client, group, &charged(42, 3)), Ok(charged(32, 2)));
        assert_eq!(after_crash.total(group), charged(42, 3));
    }

    #[test]
    fn a_row_is_stored_once_for_all_its_changes_and_again_when_storing_failed() {
        let (client, group) = (ClientId(1), GroupId(7));
        let mut ledger = Ledger::default();
        let _ = ledger.report(client, group, &charged(10, 1));
        let _ = ledger.report(client, group, &charged(20, 2));
        assert_eq!(ledger.take_dirty(), [(client, group, charged(20, 2))]);
        let _ = ledger.report(client, group, &charged(30, 3));
        ledger.mark_dirty([(client, group), (ClientId(9), group)].into_iter());
        assert_eq!(ledger.take_dirty(), [(client, group, charged(30, 3))]);
        ledger.mark_dirty(once((client, group)));
        ledger.forget(&[client].into());
        assert_eq!(ledger.take_dirty(), []);
    }

    #[test]
    fn forgetting_a_client_keeps_the_total() {
        let (client, group) = (ClientId(1), GroupId(7));
        let mut ledger = Ledger::default();
        let _ = ledger.report(client, group, &charged(10, 1));
        assert_eq!(ledger.charged_by(&[client].into()), [(group, charged(10, 1))].into());
        ledger.forget(&[client].into());
        assert_eq!((ledger.total(group), ledger.charged(group).count()), (charged(10, 1), 0));
        ledger.forget_group(group);
        assert_eq!(ledger.total(group), Total::default());
    }

    #[test]
    fn a_group_that_is_there_again_counts_only_what_is_new() {
        let (a, b, first, second) = (ClientId(1), ClientId(2), GroupId(7), GroupId(8));
        let mut ledger = Ledger::default();
        let _ = ledger.report(a, first, &charged(10, 1));
        let before: Vec<_> = ledger.reported(first).map(|(client, total)| (client, *total)).collect();
        ledger.forget_group(first);
        for (client, total) in before {
            ledger.begin_at(client, second, total);
        }
        assert_eq!((ledger.total(second), ledger.charged(second).count()), (charged(0, 0), 0));
        assert_eq!(ledger.report(a, second, &charged(10, 1)), Ok(charged(0, 0)));
        assert_eq!(ledger.report(a, second, &charged(9, 1)), Err(LedgerError::Backwards));
        assert_eq!(ledger.report(a, second, &charged(14, 3)), Ok(charged(4, 2)));
        assert_eq!(ledger.report(b, second, &charged(5, 1)), Ok(charged(5, 1)));
        assert_eq!(ledger.total(second), charged(9, 3));
        assert_eq!(ledger.charged(second).collect::<Vec<_>>(), [(a, charged(4, 2)), (b, charged(5, 1))]);
        assert_eq!(ledger.charged_by(&[a].into()), [(second, charged(4, 2))].into());
        // What is stored is what was reported; it adds up to the same after a start.
        let stored = ledger.take_dirty();
        assert_eq!(stored, [(a, second, charged(14, 3)), (b, second, charged(5, 1))]);
        let before = || once((a, second, charged(10, 1)));
        let loaded = Ledger::load(empty(), before(), stored.into_iter()).unwrap();
        assert_eq!(loaded.total(second), charged(9, 3));
        assert_eq!(loaded.charged(second).next(), Some((a, charged(4, 2))));
        let less = once((a, second, charged(9, 1)));
        assert_eq!(Ledger::load(empty(), before(), less).err(), Some(LedgerError::Backwards));
    }
}
