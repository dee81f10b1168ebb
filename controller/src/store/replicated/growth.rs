//! What rows of counters grew by, as bytes: a few for each counter that moved.
//!
//! Rows are in order of their keys, a number and a group. Each is the difference of its number to that of the row before,
//! doubled, plus one where other counters moved than in the row before; the group, as a difference where the number is
//! the same; the mask of the counters that moved, where it is another; and what each of them grew by, above 0. All are
//! in LEB128. A reader needs nothing but the rows as they were: there are no names to remember from earlier entries.

use tidegate_core::usage::Total;

use super::super::records::Narrow;
use super::bytes::{Cursor, put_number};

/// The key of a row of counters: a number below 2^63, and a group.
pub(super) type Pair = (u64, u32);

/// Writes rows.
#[derive(Debug, Default)]
pub(super) struct Growing {
    out: Vec<u8>,
    last: Option<Pair>,
    mask: u64,
}

impl Growing {
    /// Adds the next row; it comes after those before it.
    pub(super) fn push(&mut self, pair: Pair, by: &Narrow) {
        let mask = by.iter().rev().fold(0, |mask, step| mask << 1 | u64::from(*step > 0));
        let (number, group) = pair;
        let before = self.last.map_or(0, |(number, _)| number);
        let ahead = number.saturating_sub(before);
        put_number(&mut self.out, ahead << 1 | u64::from(mask != self.mask));
        let base = self.last.filter(|_| ahead == 0).map_or(0, |(_, group)| group);
        put_number(&mut self.out, group.saturating_sub(base).into());
        if mask != self.mask {
            put_number(&mut self.out, mask);
        }
        by.iter().filter(|step| **step > 0).for_each(|step| put_number(&mut self.out, *step));
        (self.last, self.mask) = (Some(pair), mask);
    }

    /// The bytes of all rows.
    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }
}

/// Reads rows.
#[derive(Debug)]
pub(super) struct Grown<'a> {
    cursor: Cursor<'a>,
    last: Option<Pair>,
    mask: u64,
}

impl<'a> Grown<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { cursor: Cursor(bytes), last: None, mask: 0 }
    }

    /// The next row; `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<(Pair, Narrow)>, String> {
        if self.cursor.0.is_empty() {
            return Ok(None);
        }
        self.row().map(Some).ok_or_else(|| "a row of counters in it cannot be".to_owned())
    }

    fn row(&mut self) -> Option<(Pair, Narrow)> {
        let head = self.cursor.number()?;
        let group = u32::try_from(self.cursor.number()?).ok()?;
        let pair = match self.last {
            Some((number, before)) if head >> 1 == 0 => {
                (number, before.checked_add(group).filter(|_| group > 0)?)
            }
            last => {
                let number = last.map_or(0, |(number, _)| number).checked_add(head >> 1)?;
                (number, group)
            }
        };
        if pair.0 > u64::MAX >> 1 {
            return None;
        }
        if head & 1 == 1 {
            let mask = self.cursor.number()?;
            self.mask = Some(mask).filter(|mask| *mask != self.mask && mask >> Total::WORDS == 0)?;
        }
        let mut by = [0; Total::WORDS];
        for (place, step) in by.iter_mut().enumerate() {
            if self.mask >> place & 1 == 1 {
                *step = self.cursor.number().filter(|step| *step > 0)?;
            }
        }
        self.last = Some(pair);
        Some((pair, by))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(Pair, Narrow)>, String> {
        let (mut grown, mut rows) = (Grown::of(bytes), Vec::new());
        while let Some(row) = grown.next()? {
            rows.push(row);
        }
        Ok(rows)
    }

    fn written(rows: &[(Pair, Narrow)]) -> Vec<u8> {
        let mut growing = Growing::default();
        rows.iter().for_each(|(pair, by)| growing.push(*pair, by));
        growing.finish()
    }

    proptest! {
        #[test]
        fn rows_are_read_as_they_were_written(
            pairs in proptest::collection::btree_map(
                (prop_oneof![0..4_u64, 0..=u64::MAX >> 1], prop_oneof![0..4_u32, any::<u32>()]),
                (0..3_u64, any::<u64>()), 0..40,
            ),
        ) {
            let row = |(pair, (kind, bits)): (Pair, (u64, u64))| {
                (pair, std::array::from_fn(|place| (bits >> place & 1) * (kind * (bits >> 2)).max(1)))
            };
            let rows: Vec<(Pair, Narrow)> = BTreeMap::into_iter(pairs).map(row).collect();
            prop_assert_eq!(read(&written(&rows)).unwrap(), rows);
        }

        #[test]
        fn rows_of_any_bytes_are_refused_or_written_so(bytes in proptest::collection::vec(0..9_u8, 0..40)) {
            if let Ok(rows) = read(&bytes) {
                prop_assert_eq!(written(&rows), bytes);
            }
        }
    }

    #[test]
    fn a_row_of_nine_counters_that_move_takes_some_twenty_five_bytes() {
        let mut by = [0; Total::WORDS];
        // Micro-RU, operations, microseconds and bytes of a second's work.
        by[..9].copy_from_slice(&[90_000_000, 4_000_000, 2_000_000, 1_000_000, 7, 9_000, 70, 1_000, 40_000]);
        let groups = |client| (0..10).map(move |group| ((client, 1 + group * 100), by));
        let rows: Vec<_> = (0..100).flat_map(groups).collect();
        assert!(written(&rows).len() < 26 * rows.len(), "{}", written(&rows).len());
    }

    #[test]
    fn a_row_out_of_order_and_a_step_of_nothing_are_refused() {
        // Number 1, group 2, mask of the first counter, by 3; then the same number.
        assert_eq!(read(&[3, 2, 1, 3]).unwrap().len(), 1);
        for bytes in
            [&[3, 2, 1, 3, 0, 0, 3][..], &[3, 2, 1, 0], &[3, 2, 1], &[3, 2, 0, 3], &[3, 2, 1, 3, 1, 1, 1, 3]]
        {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
