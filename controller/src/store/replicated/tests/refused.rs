//! Bytes that no controller writes, though their checksums fit: they are refused, and nothing is made of them.

use sha2::{Digest as _, Sha256};

use super::super::bytes::{Cursor, entries, put_entry, put_number, sealed};
use super::super::checkpoint::{Checkpoint, Content, Unpager};
use super::super::growth::Grown;
use super::super::segment::Segment;
use super::*;

#[test]
fn numbers_and_lengths_without_an_end_are_refused() {
    let endless = [0x80; 12];
    assert_eq!(Cursor(&[&endless[..], &[1]].concat()).number(), None);
    // A row of the ledger whose key has such a length.
    let entry = [&[1, scope::code(Table::Ledger)], &endless[..], &[1]].concat();
    assert!(entries(&entry).unwrap_err().contains("length"));
}

#[test]
fn rows_of_counters_beyond_the_last_counter_or_number_are_refused() {
    let count = |numbers: &[u64]| {
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| put_number(&mut bytes, *number));
        let (mut grown, mut rows) = (Grown::of(&bytes), 0);
        while grown.next()?.is_some() {
            rows += 1;
        }
        Ok::<u8, String>(rows)
    };
    // Number 1, group 2, the mask, and what the counter grew by.
    let last = 1 << (Total::WORDS - 1);
    assert_eq!(count(&[3, 2, last, 3]), Ok(1));
    assert!(count(&[3, 2, last << 1]).is_err());
    // The highest number, and the next.
    assert_eq!(count(&[u64::MAX, 2, 1, 3]), Ok(1));
    assert!(count(&[u64::MAX, 2, 1, 3, 2, 2, 3]).is_err());
}

#[test]
fn a_segment_of_no_number_of_no_epoch_or_behind_the_last_part_is_refused() {
    let read = |n, epoch, part, of| {
        let bytes = Segment { n, epoch, part, of, second: 5, before: 70, piece: b"" }.encode();
        Segment::decode(&bytes).map(|segment| segment.n)
    };
    assert_eq!(read(3, 4, 1, 2), Ok(3));
    for (n, epoch, part, of) in [(0, 4, 1, 2), (3, 0, 1, 2), (3, 4, 2, 2), (3, 4, 3, 2), (3, 4, 0, 0)] {
        let error = read(n, epoch, part, of).unwrap_err();
        assert!(error.contains("cannot be"), "{error}");
    }
}

#[test]
fn a_checkpoint_of_no_number_or_of_no_epoch_is_refused() {
    let content = Content { pages: 0, size: 0, hash: [7; 32] };
    let read =
        |n, epoch| Checkpoint::decode(&Checkpoint { generation: 9, n, epoch, logged: 70, content }.encode());
    assert_eq!(read(3, 4).unwrap().n, 3);
    for (n, epoch) in [(0, 4), (3, 0)] {
        assert!(read(n, epoch).unwrap_err().contains("cannot be"));
    }
}

#[test]
fn a_checkpoint_that_ends_within_a_row_is_refused() {
    let mut rows = Vec::new();
    put_entry(&mut rows, &put(Table::Groups, b"g", b"value"));
    for (left, is_whole) in [(rows.len(), true), (rows.len() - 1, false)] {
        let piece = &rows[..left];
        let page = [&[1][..], &9_u64.to_be_bytes(), &0_u64.to_be_bytes(), piece].concat();
        let content = Content { pages: 1, size: left as u64, hash: Sha256::digest(piece).into() };
        let mut unpager = Unpager::new(Checkpoint { generation: 9, n: 3, epoch: 4, logged: 70, content });
        assert_eq!(unpager.page(&sealed(page)).unwrap().len(), usize::from(is_whole));
        assert_eq!(unpager.finish().is_ok(), is_whole);
    }
}
