//! The consumption ledger: what each client incarnation charged to each group, counted exactly once.
//!
//! Reports are cumulative. The ledger keeps the last value per (client, group) and adds only the difference: a repeated
//! report changes nothing, and the next report contains a lost one (invariant I6). The shell stores the dirty rows in
//! one transaction; after a crash rows and totals fall back together, and the next reports bring both forward again.
//!
//! A claim beyond what any process can have used since its last report is counted apart: in the row, so that the next
//! report starts from it, and in a sum of its own, not in the group's total.
//!
//! Nodes report by the name of a group. For a group created under the name of a removed one, each client's count starts
//! where the count for the removed one ended, so that nothing is counted for both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::group::{ClientId, GroupId};
use crate::plausible::Paid;
use crate::units::Time;
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

/// The result of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// The new part counts.
    Counted(Total),
    /// The new part is more than any process can have used since the last report.
    Apart(Total),
}

/// The consumption that a client incarnation charged to a group.
#[derive(Clone, Debug)]
struct Row {
    /// The newest report.
    total: Total,
    /// The part that counted for a removed group of the same name.
    before: Option<Box<Total>>,
    /// The part that is counted apart.
    apart: Option<Box<Total>>,
    paid: Paid,
    /// Whether it is in the list of rows to be stored.
    dirty: bool,
}

impl Row {
    /// The part that counts for the group.
    fn charged(&self) -> Total {
        let less = self.before.as_deref().copied().unwrap_or_default().plus(&self.apart());
        // It never falls, because the ledger rejects reports of less.
        self.total.minus(&less).unwrap_or_default()
    }

    fn apart(&self) -> Total {
        self.apart.as_deref().copied().unwrap_or_default()
    }
}

/// `paid` is left out: it matters only once a report claims too much.
impl Hash for Row {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { total, before, apart, paid: _, dirty } = self;
        (total, before, apart, dirty).hash(state);
    }
}

/// Total by client incarnation and group.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Boxed, because a map keeps room for almost as many rows as it holds, and moves its neighbours for a new one.
    rows: BTreeMap<(GroupId, ClientId), Box<Row>>,
    totals: BTreeMap<GroupId, Total>,
    /// Sums counted apart, by group.
    apart: BTreeMap<GroupId, Total>,
    /// Changed rows, each once, in the order of their first change.
    dirty: Vec<(GroupId, ClientId)>,
}

/// The order of the rows to be stored is left out.
impl Hash for Ledger {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { rows, totals, apart, dirty: _ } = self;
        (rows, totals, apart).hash(state);
    }
}

impl Ledger {
    /// Loads a ledger as it was stored: for each group the sum of folded rows, the parts that counted for removed
    /// groups of the same name, and the rows. Stored rows are trusted: what a report may add is counted from `now` on.
    ///
    /// # Errors
    /// [`LedgerError::Backwards`] when a row has less than its part for a removed group.
    pub fn load(
        now: Time,
        folded: impl Iterator<Item = (GroupId, Total)>,
        before: impl Iterator<Item = (ClientId, GroupId, Total)>,
        rows: impl Iterator<Item = (ClientId, GroupId, Total)>,
    ) -> Result<Self, LedgerError> {
        let mut ledger = Self::default();
        for (group, total) in folded {
            ledger.totals.entry(group).or_default().add(&total);
        }
        for (client, group, total) in before {
            ledger.begin_at(now, client, group, total);
        }
        for (client, group, total) in rows {
            ledger.load_row(now, client, group, &total)?;
        }
        Ok(ledger)
    }

    /// Loads one more stored row.
    ///
    /// # Errors
    /// [`LedgerError::Backwards`] when it has less than its part for a removed group.
    pub fn load_row(
        &mut self,
        now: Time,
        client: ClientId,
        group: GroupId,
        total: &Total,
    ) -> Result<(), LedgerError> {
        let row = self.row(now, client, group);
        let new = total.minus(&row.total).ok_or(LedgerError::Backwards)?;
        row.total = *total;
        self.totals.entry(group).or_default().add(&new);
        Ok(())
    }

    /// Loads the part of `client` that is counted apart; without a row, if the row was folded away.
    ///
    /// # Errors
    /// [`LedgerError::Backwards`] when the row has less.
    pub fn load_apart(
        &mut self,
        client: Option<ClientId>,
        group: GroupId,
        apart: &Total,
    ) -> Result<(), LedgerError> {
        if let Some(client) = client {
            let row = self.rows.get_mut(&(group, client)).ok_or(LedgerError::Backwards)?;
            row.charged().minus(apart).ok_or(LedgerError::Backwards)?;
            row.apart = Some(Box::new(*apart));
            let total = self.totals.entry(group).or_default();
            *total = total.minus(apart).ok_or(LedgerError::Backwards)?;
        }
        self.apart.entry(group).or_default().add(apart);
        Ok(())
    }

    /// Counts the first report of `client` to `group` from `total` on.
    pub fn begin_at(&mut self, now: Time, client: ClientId, group: GroupId, total: Total) {
        let row =
            Row { total, before: Some(Box::new(total)), apart: None, paid: Paid::since(now), dirty: false };
        self.rows.entry((group, client)).or_insert_with(|| Box::new(row));
    }

    /// Counts a cumulative report.
    ///
    /// # Errors
    /// [`LedgerError::Backwards`] when a counter fell; then nothing is counted.
    pub fn report(
        &mut self,
        now: Time,
        client: ClientId,
        group: GroupId,
        total: &Total,
    ) -> Result<Reported, LedgerError> {
        let new = self.take_up(now, client, group, total)?;
        let Some(row) = self.rows.get_mut(&(group, client)).filter(|_| new != Total::default()) else {
            return Ok(Reported::Counted(new));
        };
        if row.paid.take(now, &new) {
            self.totals.entry(group).or_default().add(&new);
            return Ok(Reported::Counted(new));
        }
        row.apart = Some(Box::new(row.apart().plus(&new)));
        self.apart.entry(group).or_default().add(&new);
        Ok(Reported::Apart(new))
    }

    /// Raises a row to `total` and returns the difference.
    fn take_up(
        &mut self,
        now: Time,
        client: ClientId,
        group: GroupId,
        total: &Total,
    ) -> Result<Total, LedgerError> {
        let row = self.row(now, client, group);
        let new = total.minus(&row.total).ok_or(LedgerError::Backwards)?;
        if new != Total::default() {
            row.total = *total;
            if !std::mem::replace(&mut row.dirty, true) {
                self.dirty.push((group, client));
            }
        }
        Ok(new)
    }

    /// The row of a client, which counts from zero at `now` if it is new.
    fn row(&mut self, now: Time, client: ClientId, group: GroupId) -> &mut Row {
        let fresh = || {
            let (total, paid) = (Total::default(), Paid::since(now));
            Box::new(Row { total, before: None, apart: None, paid, dirty: false })
        };
        self.rows.entry((group, client)).or_insert_with(fresh)
    }

    /// The groups of all rows, loaded, reported or folded.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.totals.keys().copied()
    }

    /// All that was ever charged to a group.
    pub fn total(&self, group: GroupId) -> Total {
        self.totals.get(&group).copied().unwrap_or_default()
    }

    /// The sum counted apart for a group.
    pub fn apart(&self, group: GroupId) -> Total {
        self.apart.get(&group).copied().unwrap_or_default()
    }

    /// Groups with a sum counted apart.
    pub fn groups_apart(&self) -> impl Iterator<Item = (GroupId, &Total)> {
        self.apart.iter().map(|(group, apart)| (*group, apart))
    }

    /// The part of a client's report on a group that is counted apart.
    pub fn apart_of(&self, client: ClientId, group: GroupId) -> Option<&Total> {
        self.rows.get(&(group, client))?.apart.as_deref()
    }

    fn rows_of(&self, group: GroupId) -> impl Iterator<Item = (ClientId, &Row)> {
        let rows = self.rows.range((group, ClientId(0))..=(group, ClientId(u64::MAX)));
        rows.map(|((_, client), row)| (*client, &**row))
    }

    /// What each client charged to a group, and what is counted apart.
    pub fn accounts(&self, group: GroupId) -> impl Iterator<Item = (ClientId, Total, Total)> {
        let accounts = self.rows_of(group).map(|(client, row)| (client, row.charged(), row.apart()));
        accounts.filter(|(_, charged, apart)| (*charged, *apart) != Default::default())
    }

    /// What each client charged to a group.
    pub fn charged(&self, group: GroupId) -> impl Iterator<Item = (ClientId, Total)> {
        let charged = self.accounts(group).map(|(client, charged, _)| (client, charged));
        charged.filter(|(_, charged)| *charged != Total::default())
    }

    /// What each client reported for a group, including for earlier groups of its name.
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

    /// The sums of clients counted apart, by group.
    pub fn apart_by(&self, clients: &BTreeSet<ClientId>) -> BTreeMap<GroupId, Total> {
        let mut sums: BTreeMap<GroupId, Total> = BTreeMap::new();
        for ((group, client), row) in &self.rows {
            if let Some(apart) = row.apart.as_deref().filter(|_| clients.contains(client)) {
                sums.entry(*group).or_default().add(apart);
            }
        }
        sums
    }

    /// Returns the rows changed since the last call, as they were reported.
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
        self.apart.remove(&group);
    }
}

#[cfg(test)]
mod tests {
    use std::iter::{empty, once};

    use super::*;
    use crate::units::Ru;
    use crate::usage::{Consumption, RuParts};

    const NOW: Time = Time(1_000_000);

    fn charged(ru: i64, operations: u64) -> Total {
        Consumption { charged: RuParts::flat(Ru(ru)), operations, ..Consumption::default() }.into()
    }

    #[test]
    fn repeated_late_and_skipped_reports_are_counted_once() {
        let (a, b, group) = (ClientId(1), ClientId(2), GroupId(7));
        let mut ledger = Ledger::default();
        assert_eq!(ledger.report(NOW, a, group, &charged(10, 1)), Ok(Reported::Counted(charged(10, 1))));
        assert_eq!(ledger.report(NOW, a, group, &charged(10, 1)), Ok(Reported::Counted(Total::default())));
        assert_eq!(ledger.report(NOW, a, group, &charged(35, 4)), Ok(Reported::Counted(charged(25, 3))));
        assert_eq!(ledger.report(NOW, a, group, &charged(10, 1)), Err(LedgerError::Backwards));
        assert_eq!(ledger.report(NOW, b, group, &charged(5, 1)), Ok(Reported::Counted(charged(5, 1))));
        assert_eq!(ledger.total(group), charged(40, 5));
        assert_eq!(ledger.charged(group).count(), 2);
    }

    #[test]
    fn a_ledger_that_fell_back_to_its_last_commit_is_brought_forward_by_the_next_reports() {
        let (client, group) = (ClientId(1), GroupId(7));
        let mut ledger = Ledger::default();
        let _ = ledger.report(NOW, client, group, &charged(10, 1));
        let stored = ledger.take_dirty();
        assert!(ledger.take_dirty().is_empty());
        let _ = ledger.report(NOW, client, group, &charged(30, 2));
        let mut after_crash = Ledger::load(NOW, empty(), empty(), stored.into_iter()).unwrap();
        assert_eq!(after_crash.take_dirty(), []);
        assert_eq!(after_crash.total(group), charged(10, 1));
        assert_eq!(
            after_crash.report(NOW, client, group, &charged(42, 3)),
            Ok(Reported::Counted(charged(32, 2)))
        );
        assert_eq!(after_crash.total(group), charged(42, 3));
    }

    #[test]
    fn what_a_client_that_is_gone_had_counted_apart_is_loaded_without_its_row() {
        let (client, group) = (ClientId(1), GroupId(7));
        let mut ledger = Ledger::load(NOW, empty(), empty(), once((client, group, charged(10, 1)))).unwrap();
        assert_eq!(ledger.load_apart(None, group, &charged(5, 1)), Ok(()));
        assert_eq!(ledger.load_apart(Some(client), group, &charged(4, 0)), Ok(()));
        assert_eq!((ledger.apart(group), ledger.total(group)), (charged(9, 1), charged(6, 1)));
    }

    #[test]
    fn a_client_that_has_reported_goes_on_from_there_whatever_it_is_said_to_begin_at() {
        let (client, group) = (ClientId(1), GroupId(7));
        let mut ledger = Ledger::default();
        let _ = ledger.report(NOW, client, group, &charged(10, 1));
        ledger.begin_at(NOW, client, group, charged(10, 1));
        ledger.begin_at(NOW, client, group, charged(90, 9));
        assert_eq!(ledger.charged(group).collect::<Vec<_>>(), [(client, charged(10, 1))]);
        assert_eq!(ledger.report(NOW, client, group, &charged(12, 2)), Ok(Reported::Counted(charged(2, 1))));
        assert_eq!(ledger.take_dirty(), [(client, group, charged(12, 2))]);
    }

    #[test]
    fn a_row_is_stored_once_for_all_its_changes_and_again_when_storing_failed() {
        let (client, group) = (ClientId(1), GroupId(7));
        let mut ledger = Ledger::default();
        let _ = ledger.report(NOW, client, group, &charged(10, 1));
        let _ = ledger.report(NOW, client, group, &charged(20, 2));
        assert_eq!(ledger.take_dirty(), [(client, group, charged(20, 2))]);
        let _ = ledger.report(NOW, client, group, &charged(30, 3));
        ledger.mark_dirty([(client, group), (ClientId(9), group)].into_iter());
        assert_eq!(ledger.take_dirty(), [(client, group, charged(30, 3))]);
        ledger.mark_dirty(once((client, group)));
        assert_eq!(ledger.take_dirty(), [(client, group, charged(30, 3))]);
        ledger.mark_dirty(once((client, group)));
        ledger.forget(&[client].into());
        assert_eq!(ledger.take_dirty(), []);
    }

    #[test]
    fn rows_of_others_are_stored_when_a_client_or_a_group_is_forgotten() {
        let (gone, stays, deleted, group) = (ClientId(1), ClientId(2), GroupId(7), GroupId(8));
        let mut ledger = Ledger::default();
        for (client, group) in [(gone, group), (stays, deleted), (stays, group)] {
            let _ = ledger.report(NOW, client, group, &charged(10, 1));
        }
        ledger.forget(&[gone].into());
        ledger.forget_group(deleted);
        assert_eq!(ledger.take_dirty(), [(stays, group, charged(10, 1))]);
    }

    #[test]
    fn ledgers_hash_alike_when_they_differ_in_nothing_but_the_order_of_rows_to_be_stored() {
        let hash = |reports: &[(u64, i64)]| {
            let (mut ledger, mut hasher) = (Ledger::default(), std::hash::DefaultHasher::new());
            for (client, ru) in reports {
                let _ = ledger.report(NOW, ClientId(*client), GroupId(7), &charged(*ru, 1));
            }
            ledger.hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(&[(1, 10), (2, 5)]), hash(&[(2, 5), (1, 10)]));
        // The totals are the same, but not who charged what.
        assert_ne!(hash(&[(1, 10), (2, 5)]), hash(&[(1, 5), (2, 10)]));
        assert_ne!(hash(&[]), hash(&[(1, 10)]));
    }

    #[test]
    fn a_report_that_falls_is_answered_with_what_to_do() {
        assert!(LedgerError::Backwards.to_string().contains("under a new incarnation"));
    }

    #[test]
    fn forgetting_a_client_keeps_the_total() {
        let (client, group) = (ClientId(1), GroupId(7));
        let mut ledger = Ledger::default();
        let _ = ledger.report(NOW, client, group, &charged(10, 1));
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
        let _ = ledger.report(NOW, a, first, &charged(10, 1));
        let before: Vec<_> = ledger.reported(first).map(|(client, total)| (client, *total)).collect();
        ledger.forget_group(first);
        for (client, total) in before {
            ledger.begin_at(NOW, client, second, total);
        }
        assert_eq!((ledger.total(second), ledger.charged(second).count()), (charged(0, 0), 0));
        assert_eq!(ledger.report(NOW, a, second, &charged(10, 1)), Ok(Reported::Counted(charged(0, 0))));
        assert_eq!(ledger.report(NOW, a, second, &charged(9, 1)), Err(LedgerError::Backwards));
        assert_eq!(ledger.report(NOW, a, second, &charged(14, 3)), Ok(Reported::Counted(charged(4, 2))));
        assert_eq!(ledger.report(NOW, b, second, &charged(5, 1)), Ok(Reported::Counted(charged(5, 1))));
        assert_eq!(ledger.total(second), charged(9, 3));
        assert_eq!(ledger.charged(second).collect::<Vec<_>>(), [(a, charged(4, 2)), (b, charged(5, 1))]);
        assert_eq!(ledger.charged_by(&[a].into()), [(second, charged(4, 2))].into());
        // Stored rows are reports, and add up to the same totals after a start.
        let stored = ledger.take_dirty();
        assert_eq!(stored, [(a, second, charged(14, 3)), (b, second, charged(5, 1))]);
        let before = || once((a, second, charged(10, 1)));
        let loaded = Ledger::load(NOW, empty(), before(), stored.into_iter()).unwrap();
        assert_eq!(loaded.total(second), charged(9, 3));
        assert_eq!(loaded.charged(second).next(), Some((a, charged(4, 2))));
        let less = once((a, second, charged(9, 1)));
        assert_eq!(Ledger::load(NOW, empty(), before(), less).err(), Some(LedgerError::Backwards));
    }

    #[test]
    fn what_came_before_a_group_that_is_there_again_and_what_is_counted_apart_are_both_left_out() {
        let (liar, group) = (ClientId(1), GroupId(8));
        let mut ledger = Ledger::default();
        ledger.begin_at(NOW, liar, group, charged(10, 1));
        let lie = charged(Ru::MAX.0 - 10, 1);
        assert_eq!(ledger.report(NOW, liar, group, &charged(Ru::MAX.0, 2)), Ok(Reported::Apart(lie)));
        let next = charged(Ru::MAX.0 + 4, 5);
        assert_eq!(ledger.report(NOW, liar, group, &next), Ok(Reported::Counted(charged(4, 3))));
        assert_eq!(ledger.accounts(group).collect::<Vec<_>>(), [(liar, charged(4, 3), lie)]);
        assert_eq!(ledger.charged_by(&[liar].into()), [(group, charged(4, 3))].into());
        assert_eq!((ledger.total(group), ledger.apart(group)), (charged(4, 3), lie));
    }

    #[test]
    fn what_no_process_can_use_is_counted_apart_and_once() {
        let (liar, honest, group) = (ClientId(1), ClientId(2), GroupId(7));
        let (lie, next) = (charged(Ru::MAX.0, 1), charged(Ru::MAX.0 + 9, 4));
        let mut ledger = Ledger::default();
        assert_eq!(ledger.report(NOW, liar, group, &lie), Ok(Reported::Apart(lie)));
        assert_eq!(ledger.report(NOW, liar, group, &lie), Ok(Reported::Counted(Total::default())));
        assert_eq!(ledger.report(NOW, honest, group, &charged(5, 1)), Ok(Reported::Counted(charged(5, 1))));
        assert_eq!(ledger.report(NOW, liar, group, &next), Ok(Reported::Counted(charged(9, 3))));
        let accounts = [(liar, charged(9, 3), lie), (honest, charged(5, 1), Total::default())];
        assert_eq!(ledger.accounts(group).collect::<Vec<_>>(), accounts);
        assert_eq!((ledger.total(group), ledger.apart(group)), (charged(14, 4), lie));
        // A start changes neither sum, and folding keeps both.
        let rows = ledger.take_dirty();
        let mut loaded = Ledger::load(NOW, empty(), empty(), rows.into_iter()).unwrap();
        assert_eq!(loaded.load_apart(Some(liar), group, ledger.apart_of(liar, group).unwrap()), Ok(()));
        assert_eq!(loaded.accounts(group).collect::<Vec<_>>(), accounts);
        assert_eq!((loaded.total(group), loaded.apart(group)), (charged(14, 4), lie));
        assert_eq!(loaded.load_apart(Some(honest), group, &lie), Err(LedgerError::Backwards));
        assert_eq!(loaded.apart_by(&[liar, honest].into()), [(group, lie)].into());
        loaded.forget(&[liar, honest].into());
        assert_eq!((loaded.total(group), loaded.apart(group)), (charged(14, 4), lie));
        loaded.forget_group(group);
        assert_eq!(loaded.groups_apart().count(), 0);
    }
}
