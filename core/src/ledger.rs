//! The consumption ledger: what every client incarnation charged to every group, counted exactly once.
//!
//! Reports are cumulative, so the ledger keeps the last value per (client, group) and adds only the difference:
//! repeating a report changes nothing, a lost one is contained in the next (invariant I6). The shell stores the
//! dirty rows in one transaction; after a crash the rows and totals fall back together and the next reports bring
//! both forward again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::group::{ClientId, GroupId};
use crate::usage::Consumption;

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

/// Consumption by client incarnation and group.
#[derive(Clone, Debug, Default, Hash)]
pub struct Ledger {
    rows: BTreeMap<(GroupId, ClientId), Consumption>,
    totals: BTreeMap<GroupId, Consumption>,
    dirty: BTreeSet<(GroupId, ClientId)>,
}

impl Ledger {
    /// A ledger as it was stored: rows, and for each group the sum of rows that were folded away.
    pub fn load(
        rows: impl Iterator<Item = (ClientId, GroupId, Consumption)>,
        folded: impl Iterator<Item = (GroupId, Consumption)>,
    ) -> Self {
        let mut ledger = Self::default();
        for (group, total) in folded {
            ledger.add(group, &total);
        }
        for (client, group, total) in rows {
            ledger.add(group, &total);
            ledger.rows.insert((group, client), total);
        }
        ledger
    }

    /// Counts a cumulative report; returns what was new in it.
    ///
    /// # Errors
    /// [`LedgerError::Backwards`] when a counter fell; nothing is counted then.
    pub fn report(
        &mut self,
        client: ClientId,
        group: GroupId,
        total: &Consumption,
    ) -> Result<Consumption, LedgerError> {
        let row = self.rows.entry((group, client)).or_default();
        let new = total.minus(row).ok_or(LedgerError::Backwards)?;
        if new != Consumption::default() {
            *row = *total;
            self.dirty.insert((group, client));
            self.add(group, &new);
        }
        Ok(new)
    }

    fn add(&mut self, group: GroupId, new: &Consumption) {
        let total = self.totals.entry(group).or_default();
        *total = total.plus(new);
    }

    /// All that was ever charged to a group.
    pub fn total(&self, group: GroupId) -> Consumption {
        self.totals.get(&group).copied().unwrap_or_default()
    }

    /// By client.
    pub fn rows(&self, group: GroupId) -> impl Iterator<Item = (ClientId, &Consumption)> {
        self.rows
            .range((group, ClientId(0))..=(group, ClientId(u64::MAX)))
            .map(|((_, client), consumption)| (*client, consumption))
    }

    /// Rows changed since the last call.
    pub fn take_dirty(&mut self) -> Vec<(ClientId, GroupId, Consumption)> {
        let dirty = std::mem::take(&mut self.dirty);
        let row = |key: (GroupId, ClientId)| Some((key.1, key.0, *self.rows.get(&key)?));
        dirty.into_iter().filter_map(row).collect()
    }

    /// Marks rows as changed again, because storing them failed.
    pub fn mark_dirty(&mut self, rows: impl Iterator<Item = (ClientId, GroupId)>) {
        self.dirty.extend(rows.map(|(client, group)| (group, client)));
    }

    /// Drops the rows of a client that will never report again; its consumption stays in the totals.
    pub fn forget(&mut self, client: ClientId) {
        self.rows.retain(|(_, holder), _| *holder != client);
        self.dirty.retain(|(_, holder)| *holder != client);
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
    use super::*;
    use crate::units::Ru;
    use crate::usage::RuParts;

    fn charged(ru: i64, operations: u64) -> Consumption {
        Consumption { charged: RuParts::flat(Ru(ru)), operations, ..Consumption::default() }
    }

    #[test]
    fn repeated_late_and_skipped_reports_are_counted_once() {
        let (a, b, group) = (ClientId(1), ClientId(2), GroupId(7));
        let mut ledger = Ledger::default();
        assert_eq!(ledger.report(a, group, &charged(10, 1)), Ok(charged(10, 1)));
        assert_eq!(ledger.report(a, group, &charged(10, 1)), Ok(Consumption::default()));
        assert_eq!(ledger.report(a, group, &charged(35, 4)), Ok(charged(25, 3)));
        assert_eq!(ledger.report(a, group, &charged(10, 1)), Err(LedgerError::Backwards));
        assert_eq!(ledger.report(b, group, &charged(5, 1)), Ok(charged(5, 1)));
        assert_eq!(ledger.total(group), charged(40, 5));
        assert_eq!(ledger.rows(group).count(), 2);
    }

    #[test]
    fn a_ledger_that_fell_back_to_its_last_commit_is_brought_forward_by_the_next_reports() {
        let (client, group) = (ClientId(1), GroupId(7));
        let mut ledger = Ledger::default();
        let _ = ledger.report(client, group, &charged(10, 1));
        let stored = ledger.take_dirty();
        assert!(ledger.take_dirty().is_empty());
        let _ = ledger.report(client, group, &charged(30, 2));
        let mut after_crash = Ledger::load(stored.into_iter(), std::iter::empty());
        assert_eq!(after_crash.total(group), charged(10, 1));
        assert_eq!(after_crash.report(client, group, &charged(42, 3)), Ok(charged(32, 2)));
        assert_eq!(after_crash.total(group), charged(42, 3));
    }

    #[test]
    fn forgetting_a_client_keeps_the_total() {
        let (client, group) = (ClientId(1), GroupId(7));
        let mut ledger = Ledger::default();
        let _ = ledger.report(client, group, &charged(10, 1));
        ledger.forget(client);
        assert_eq!((ledger.total(group), ledger.rows(group).count()), (charged(10, 1), 0));
        ledger.forget_group(group);
        assert_eq!(ledger.total(group), Consumption::default());
    }
}
