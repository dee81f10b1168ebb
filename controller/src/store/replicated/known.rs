//! Rows of counters as the log has them last: what increments are counted from, by the owner and by followers.
//!
//! The owner's local store takes a batch only when the log has it, and nothing else is counted from. So an increment is
//! the difference to what every reader of the log has behind the segment before, whatever became of earlier attempts:
//! a commit that failed is in none of them, and one whose outcome was open is applied before the next is encoded.
//!
//! A row is logged whole where it is new, where a counter fell, and in a batch that also removes rows of counters or has
//! one twice. What is kept here only saves reads of the local store: rows that were not used for long are dropped.

use std::collections::HashMap;

use super::super::records::{Narrow, narrow, narrow_bytes, pair_key, pair_of};
use super::super::{Batch, Store, StoreError, Table, Write};
use super::bytes::{put_entry, put_grown};
use super::calls::unfit;
use super::growth::{Growing, Grown, Pair};
use super::scope;

/// Rows that are kept, some 200 bytes each: twice as many as move within seconds in a controller at its limits. With
/// fewer than move, each would be read from the file whenever it is logged.
pub(super) const MOST: usize = 1 << 19;

/// A row of counters.
type At = (Table, Pair);
/// Its counters; `None`: it is not there, or increments cannot be added to it.
type Rows = HashMap<At, Option<Box<Narrow>>>;

/// Rows as the log has them.
#[derive(Debug)]
pub(super) struct Known {
    rows: Rows,
    /// Rows that were used before those.
    older: Rows,
    /// Rows below these keys were removed since the local store was written.
    floors: Vec<(Table, Vec<u8>)>,
    most: usize,
}

/// Whether the rows of a table are counters by a number and a group.
fn counts(table: Table) -> bool {
    matches!(table, Table::Ledger | Table::Minutes | Table::Hours)
}

/// The row of a key, if it is one of counters.
fn at(table: Table, key: &[u8]) -> Option<At> {
    let (number, group) = pair_of(table, key).ok().filter(|_| counts(table))?;
    (number <= u64::MAX >> 1).then_some((table, (number, group.0)))
}

fn key_of((number, group): Pair) -> Vec<u8> {
    pair_key(number, tidegate_core::group::GroupId(group))
}

/// What each counter grew by; `None`: one fell.
fn growth(from: &Narrow, to: &Narrow) -> Option<Narrow> {
    let mut by = *to;
    for (by, from) in by.iter_mut().zip(from) {
        *by = by.checked_sub(*from)?;
    }
    Some(by)
}

impl Known {
    /// Keeps at most so many rows from one batch to the next.
    pub(super) fn new(most: usize) -> Self {
        Self { rows: Rows::new(), older: Rows::new(), floors: Vec::new(), most }
    }

    /// What of a batch goes into the log, as bytes. `local` is what the log says.
    pub(super) fn encode(&mut self, batch: &[Write], local: &dyn Store) -> Result<Vec<u8>, StoreError> {
        let shared = scope::shared(batch)?;
        let puts = counted(&shared);
        self.load(puts.iter().map(|(at, ..)| *at), local)?;
        let (mut out, mut is_whole) = (Vec::new(), vec![true; shared.len()]);
        for of in puts.chunk_by(|((one, _), ..), ((next, _), ..)| one == next) {
            let mut growing = Growing::default();
            for (at, to, place) in of {
                let from = self.rows.get(at).and_then(Option::as_deref);
                if let Some(by) = from.zip(to.as_ref()).and_then(|(from, to)| growth(from, to))
                    && let Some(is_whole) = is_whole.get_mut(*place)
                {
                    growing.push(at.1, &by);
                    *is_whole = false;
                }
            }
            let grown = growing.finish();
            if let Some(((table, _), ..)) = of.first()
                && !grown.is_empty()
            {
                put_grown(&mut out, *table, &grown);
            }
        }
        let whole = shared.into_iter().zip(is_whole).filter(|(_, is_whole)| *is_whole);
        whole.for_each(|(write, _)| put_entry(&mut out, write));
        Ok(out)
    }

    /// Makes rows of what they grew by, behind the writes that were noted. `key` names the segment.
    pub(super) fn grow(
        &mut self,
        (table, grown): (Table, &[u8]),
        local: &dyn Store,
        key: &[u8],
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let (mut reading, mut rows) = (Grown::of(grown), Vec::new());
        while let Some((pair, by)) = reading.next().map_err(|reason| unfit(key, reason))? {
            rows.push(((table, pair), by));
        }
        self.load(rows.iter().map(|(at, _)| *at), local)?;
        for (at, by) in rows {
            let row = self.rows.get_mut(&at).and_then(Option::as_deref_mut);
            let row = row.and_then(|row| {
                for (sum, by) in row.iter_mut().zip(by) {
                    *sum = sum.checked_add(by)?;
                }
                narrow_bytes(row)
            });
            let Some(row) = row else {
                let reason = format!("a row of {} that it adds to is not there, or full", table.name());
                return Err(unfit(key, reason));
            };
            batch.push(Write::Put(table, key_of(at.1), row));
        }
        Ok(())
    }

    /// Takes in a write that is in the log.
    pub(super) fn note(&mut self, write: &Write) {
        match write {
            Write::Put(table, key, value) => {
                if let Some(at) = at(*table, key) {
                    self.older.remove(&at);
                    self.rows.insert(at, narrow(value).map(Box::new));
                }
            }
            Write::Delete(table, key) => {
                if let Some(at) = at(*table, key) {
                    self.older.remove(&at);
                    self.rows.insert(at, None);
                }
            }
            Write::DeleteBelow(table, below) => {
                let stays = |(of, pair): &At| of != table || key_of(*pair) >= *below;
                self.rows.retain(|at, _| stays(at));
                self.older.retain(|at, _| stays(at));
                self.floors.push((*table, below.clone()));
            }
        }
    }

    /// The local store has all that was noted.
    pub(super) fn committed(&mut self) {
        self.floors.clear();
        if self.rows.len() > self.most {
            self.rows = Rows::new();
            self.older = Rows::new();
        } else if self.rows.len() > self.most / 2 {
            self.older = std::mem::take(&mut self.rows);
        }
    }

    /// Brings rows to the newer ones.
    fn load(&mut self, ats: impl Iterator<Item = At>, local: &dyn Store) -> Result<(), StoreError> {
        let mut missing: Vec<At> = Vec::new();
        for at in ats.filter(|at| !self.rows.contains_key(at)).collect::<Vec<_>>() {
            let is_removed =
                || self.floors.iter().any(|(table, below)| *table == at.0 && key_of(at.1) < *below);
            if let Some(row) = self.older.remove(&at) {
                self.rows.insert(at, row);
            } else if is_removed() {
                self.rows.insert(at, None);
            } else {
                missing.push(at);
            }
        }
        for of in missing.chunk_by(|(one, _), (next, _)| one == next) {
            let Some((table, _)) = of.first() else { continue };
            let keys: Vec<Vec<u8>> = of.iter().map(|(_, pair)| key_of(*pair)).collect();
            let values = local.get(*table, &keys)?;
            let rows = values.iter().map(|value| value.as_deref().and_then(narrow).map(Box::new));
            self.rows.extend(of.iter().copied().zip(rows));
        }
        Ok(())
    }
}

/// The rows of counters that are put, with their places; none where one is put twice, or some are removed, too, since
/// then order matters.
fn counted(shared: &[&Write]) -> Vec<(At, Option<Narrow>, usize)> {
    let mut puts = Vec::new();
    for (place, write) in shared.iter().enumerate() {
        match write {
            Write::Put(table, key, value) => {
                puts.extend(at(*table, key).map(|at| (at, narrow(value), place)));
            }
            Write::Delete(table, key) if at(*table, key).is_none() => {}
            Write::DeleteBelow(table, _) if !counts(*table) => {}
            Write::Delete(..) | Write::DeleteBelow(..) => return Vec::new(),
        }
    }
    puts.sort_unstable_by_key(|(at, ..)| *at);
    if puts.windows(2).any(|pair| matches!(pair, [(one, ..), (next, ..)] if one == next)) {
        puts.clear();
    }
    puts
}

#[cfg(test)]
mod tests {
    use super::super::tests::memory::Memory;
    use super::*;

    fn row(number: u64, sum: u64) -> Write {
        let mut words = Narrow::default();
        words[0] = sum;
        Write::Put(Table::Ledger, key_of((number, 7)), narrow_bytes(&words).unwrap())
    }

    #[test]
    fn rows_that_are_kept_are_bounded_and_none_is_missed() {
        let place = Memory::new();
        let (local, mut known) = (place.store(), Known::new(10));
        let mut commit = |batch: &[Write]| {
            let entries = known.encode(batch, &*local).unwrap();
            local.commit(batch).unwrap();
            batch.iter().for_each(|write| known.note(write));
            known.committed();
            assert!(known.rows.len() + known.older.len() <= 15);
            entries.len()
        };
        let all = |sum: u64| (0..40).map(|number| row(number, sum)).collect::<Vec<_>>();
        let first: Vec<usize> = all(1).chunks(4).map(&mut commit).collect();
        assert!(first.iter().all(|bytes| *bytes > 4 * 153), "new rows are whole");
        for sum in 2..5 {
            let next: Vec<usize> = all(sum).chunks(4).map(&mut commit).collect();
            assert!(next.iter().all(|bytes| *bytes < 4 * 8), "{next:?}");
        }
        assert!(commit(&all(5)) < 40 * 5, "more at once than are kept");
    }

    #[test]
    fn what_was_removed_and_is_not_in_the_local_store_yet_is_not_there() {
        let place = Memory::new();
        let (local, mut known) = (place.store(), Known::new(10));
        local.commit(&[row(1, 5), row(2, 5), row(3, 5)]).unwrap();
        known.note(&Write::Delete(Table::Ledger, key_of((1, 7))));
        known.note(&Write::DeleteBelow(Table::Ledger, key_of((3, 0))));
        let by = |number| {
            let (mut growing, mut by) = (Growing::default(), Narrow::default());
            by[0] = 2;
            growing.push((number, 7), &by);
            growing.finish()
        };
        for (number, is_there) in [(1, false), (2, false), (3, true)] {
            let (grown, mut batch) = (by(number), Batch::new());
            let done = known.grow((Table::Ledger, &grown), &*local, b"k", &mut batch);
            assert_eq!(done.is_ok(), is_there, "{number}");
            assert!(!is_there || batch == [row(3, 7)]);
        }
        // A row that was put behind that is there, and counts on.
        known.note(&row(2, 1));
        let mut batch = Batch::new();
        known.grow((Table::Ledger, &by(2)), &*local, b"k", &mut batch).unwrap();
        known.grow((Table::Ledger, &by(2)), &*local, b"k", &mut batch).unwrap();
        assert_eq!(batch, [row(2, 3), row(2, 5)]);
    }
}
