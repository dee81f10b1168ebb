//! Changes as bytes: of a batch in the log, and of rows in a checkpoint.
//!
//! An entry is its kind, the number of its table, its key and, for a row that is put, its value, each behind its length
//! in LEB128. Entries follow each other without a gap; where the bytes are cut does not matter. The log has two kinds
//! more, which a checkpoint has not: what rows of a table grew by (`growth`), behind its length, and a mark, which is its
//! kind alone.

use super::super::{Table, Write};
use super::scope;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_BELOW: u8 = 3;
const GROWN: u8 = 4;
const MARK: u8 = 5;

/// Longest key or value, and longest batch: four times the leases of a clean stop with a million of them. A length above
/// it is damage, which nobody should reserve memory for.
pub(super) const LONGEST: usize = 256 << 20;

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A change of a row, or of several.
    Write(Write),
    /// What rows of a table grew by.
    Grown(Table, Vec<u8>),
    /// The owner makes a checkpoint of the state behind this batch.
    Mark,
}

/// Reads bytes from the front; `None`: they end too early.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn word(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) fn half(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A number, in as few bytes as it takes.
    pub(super) fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || (shift == 63 && bits > 1) || (byte == 0 && shift > 0) {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
        }
    }

    /// A length, in as few bytes as it takes.
    fn length(&mut self) -> Result<Option<usize>, String> {
        let (mut length, mut shift) = (0_usize, 0_u32);
        loop {
            let Some(byte) = self.byte() else { return Ok(None) };
            length |= usize::from(byte & 0x7f) << shift;
            if length > LONGEST || (byte == 0 && shift > 0) {
                return Err("a length in it cannot be".to_owned());
            }
            if byte & 0x80 == 0 {
                return Ok(Some(length));
            }
            shift += 7;
            if shift > 28 {
                return Err("a length in it cannot be".to_owned());
            }
        }
    }

    fn text(&mut self) -> Result<Option<Vec<u8>>, String> {
        let Some(length) = self.length()? else { return Ok(None) };
        Ok(self.take(length).map(<[u8]>::to_vec))
    }

    /// The next entry of a log; `None` if it is not all there.
    fn logged(&mut self) -> Result<Option<Entry>, String> {
        match self.0 {
            [MARK, rest @ ..] => {
                self.0 = rest;
                Ok(Some(Entry::Mark))
            }
            [GROWN, code, rest @ ..] => {
                let table = table_of(*code)?;
                self.0 = rest;
                Ok(self.text()?.map(|grown| Entry::Grown(table, grown)))
            }
            _ => Ok(self.entry()?.map(Entry::Write)),
        }
    }

    /// The next entry; `None` if it is not all there, and nothing is read.
    pub(super) fn entry(&mut self) -> Result<Option<Write>, String> {
        let mut ahead = self.clone();
        let (Some(kind), Some(code)) = (ahead.byte(), ahead.byte()) else { return Ok(None) };
        let table = table_of(code)?;
        let Some(key) = ahead.text()? else { return Ok(None) };
        let write = match kind {
            PUT => {
                let Some(value) = ahead.text()? else { return Ok(None) };
                Write::Put(table, key, value)
            }
            DELETE => Write::Delete(table, key),
            DELETE_BELOW => Write::DeleteBelow(table, key),
            other => return Err(format!("it has an entry of kind {other}, which is not known")),
        };
        *self = ahead;
        Ok(Some(write))
    }
}

fn table_of(code: u8) -> Result<Table, String> {
    scope::table(code).ok_or_else(|| format!("it names table {code}, which is not known"))
}

/// Appends what rows of a table grew by.
pub(super) fn put_grown(out: &mut Vec<u8>, table: Table, grown: &[u8]) {
    out.extend([GROWN, scope::code(table)]);
    put_length(out, grown.len());
    out.extend_from_slice(grown);
}

/// Appends a mark.
pub(super) fn put_mark(out: &mut Vec<u8>) {
    out.push(MARK);
}

/// Appends a number, in as few bytes as it takes.
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(0x80 | u8::try_from(number & 0x7f).unwrap_or_default());
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap_or_default());
}

/// Appends an entry.
pub(super) fn put_entry(out: &mut Vec<u8>, write: &Write) {
    let (kind, key, value) = match write {
        Write::Put(_, key, value) => (PUT, key, Some(value)),
        Write::Delete(_, key) => (DELETE, key, None),
        Write::DeleteBelow(_, key) => (DELETE_BELOW, key, None),
    };
    out.extend([kind, scope::code(write.table())]);
    for text in [Some(key), value].into_iter().flatten() {
        put_length(out, text.len());
        out.extend_from_slice(text);
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    put_number(out, length as u64);
}

/// Reads the entries of a whole batch.
pub(super) fn entries(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let (mut cursor, mut entries) = (Cursor(bytes), Vec::new());
    while !cursor.0.is_empty() {
        entries.push(cursor.logged()?.ok_or_else(|| "its last entry is cut off".to_owned())?);
    }
    Ok(entries)
}

/// Appends the checksum of all that is there.
pub(super) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32fast::hash(&bytes);
    bytes.extend(sum.to_be_bytes());
    bytes
}

/// The bytes behind the version, once checksum and version are right: one up to the newest that this build knows.
pub(super) fn unsealed(bytes: &[u8], newest: u8) -> Result<Cursor<'_>, String> {
    match bytes.first() {
        None => return Err("it is empty".to_owned()),
        Some(found) if !(1..=newest).contains(found) => {
            return Err(format!("it has version {found}, this build reads up to {newest}"));
        }
        Some(_) => {}
    }
    let (content, sum) = bytes.split_last_chunk::<4>().ok_or_else(cut_off)?;
    if crc32fast::hash(content).to_be_bytes() != *sum {
        return Err("its checksum does not match".to_owned());
    }
    Ok(Cursor(content.get(1..).unwrap_or_default()))
}

/// The reason of bytes that end too early.
pub(super) fn cut_off() -> String {
    "it is cut off".to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::super::Batch;
    use super::*;

    /// Any changes of what is in the log.
    pub(in super::super) fn batches() -> impl Strategy<Value = Batch> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
        let write = (proptest::sample::select(Table::ALL.to_vec()), 0..3_u8, bytes(), bytes());
        let write = write.prop_map(|(table, kind, key, value)| match kind {
            0 => Write::Put(table, key, value),
            1 => Write::Delete(table, key),
            _ => Write::DeleteBelow(table, key),
        });
        proptest::collection::vec(write, 0..20)
    }

    proptest! {
        #[test]
        fn entries_are_read_as_they_were_written(batch in batches()) {
            let mut out = Vec::new();
            batch.iter().for_each(|write| put_entry(&mut out, write));
            put_grown(&mut out, Table::Hours, &[7; 300]);
            put_mark(&mut out);
            let logged = batch.into_iter().map(Entry::Write);
            let logged = logged.chain([Entry::Grown(Table::Hours, vec![7; 300]), Entry::Mark]).collect::<Vec<_>>();
            prop_assert_eq!(entries(&out).unwrap(), logged);
            prop_assert!(entries(&out[..out.len() - 2]).is_err());
        }

        #[test]
        fn entries_of_any_bytes_are_read_or_refused(bytes in proptest::collection::vec(0..20_u8, 0..60)) {
            if let Ok(batch) = entries(&bytes) {
                let mut out = Vec::new();
                batch.iter().for_each(|entry| match entry {
                    Entry::Write(write) => put_entry(&mut out, write),
                    Entry::Grown(table, grown) => put_grown(&mut out, *table, grown),
                    Entry::Mark => put_mark(&mut out),
                });
                prop_assert_eq!(out, bytes);
            }
        }
    }

    #[test]
    fn numbers_are_exact() {
        for number in [0, 127, 128, 16_384, 1 << 62, u64::MAX >> 1, 1 << 63, u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!(Cursor(&out).number(), Some(number));
            assert_eq!(Cursor(&out[..out.len() - 1]).number(), None);
        }
        let more = [&[0xff; 9][..], &[2]].concat();
        assert!(Cursor(&more).number().is_none() && Cursor(&[0x80, 0]).number().is_none());
        assert!(Cursor(&[0xff; 12]).number().is_none());
    }

    #[test]
    fn lengths_are_exact() {
        for length in [0, 127, 128, 16_383, 16_384, LONGEST] {
            let mut out = Vec::new();
            put_length(&mut out, length);
            assert_eq!(Cursor(&out).length(), Ok(Some(length)));
            assert_eq!(Cursor(&out[..out.len() - 1]).length(), Ok(None));
        }
        let mut out = Vec::new();
        put_length(&mut out, LONGEST + 1);
        assert!(Cursor(&out).length().is_err() && Cursor(&[0x80, 0]).length().is_err());
        assert!(Cursor(&[0xff; 9]).length().is_err());
    }
}
