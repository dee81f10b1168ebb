//! Comments that are code for some servers: `/*! .. */` for all of MySQL's kind, `/*!50000 .. */` from a version on,
//! `/*M! .. */` for MariaDB and `/*T! .. */` for TiDB.
//!
//! They are read as code, since the version of the server is not known here. A server for which one is a comment goes on
//! where that ends, which may be another place than where the code ends, as in `/*!99999 ' */ code -- '`. Such a text is
//! two statements in one: from there on it is one token of its own, so that neither hides in the template of another text.

use super::cursor::Cursor;
use super::dialect::class;
use crate::mix::{GOLDEN, fold};

/// One that was opened.
#[derive(Clone, Copy)]
pub(super) struct Conditional {
    from: usize,
    /// Where it ends as a comment; `None`: it is code for all of them.
    skipped_to: Option<usize>,
}

impl Conditional {
    /// Passes the opening of one, if there is one here.
    pub(super) fn open(text: &mut Cursor<'_>) -> Option<Self> {
        let (from, whole) = (text.at, *text);
        let is_of_one_kind = match (text.peek(2), text.peek(3)) {
            (Some(b'!'), _) => false,
            (Some(b'M' | b'T'), Some(b'!')) => true,
            _ => return None,
        };
        text.at += if is_of_one_kind { 4 } else { 3 };
        let digits = text.at;
        while text.class_at(0) & class::DIGIT != 0 {
            text.at += 1;
        }
        let skipped_to = match (is_of_one_kind, text.at > digits) {
            (true, _) => Some(end_of_comment(whole)),
            (false, true) => Some(end_of_skipped(whole)),
            (false, false) => None,
        };
        Some(Self { from, skipped_to })
    }

    /// Whether all servers go on there behind it.
    pub(super) fn ends_at(self, at: usize) -> bool {
        self.skipped_to.is_none_or(|end| end == at)
    }

    /// The text before it.
    pub(super) fn before(self, text: &[u8]) -> &[u8] {
        text.get(..self.from).unwrap_or(text)
    }

    /// A word for it and all behind it, which ends in sixteen hexadecimal digits: no value can be read from it.
    pub(super) fn word(self, text: &[u8]) -> [u8; 17] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let rest = text.get(self.from..).unwrap_or_default();
        let mix = |state: u64, byte: &u8| fold(state ^ u64::from(*byte), GOLDEN).wrapping_add(GOLDEN);
        let hash = rest.iter().fold(GOLDEN, mix);
        // With a digit at its beginning it would be read as a number.
        let mut word = [b'_'; 17];
        for (digit, shift) in word.iter_mut().skip(1).zip((0..64).step_by(4).rev()) {
            let value = usize::try_from(hash >> shift & 0xf).unwrap_or_default();
            *digit = DIGITS.get(value).copied().unwrap_or_default();
        }
        word
    }
}

fn end_of_comment(mut text: Cursor<'_>) -> usize {
    text.skip_comment();
    text.at
}

/// Where code of a later version ends for a server that skips it, and comments within it.
fn end_of_skipped(mut text: Cursor<'_>) -> usize {
    text.at += 2;
    while let Some(byte) = text.peek(0) {
        match (byte, text.peek(1)) {
            (b'/', Some(b'*')) => text.skip_comment(),
            (b'*', Some(b'/')) => {
                text.at += 2;
                break;
            }
            _ => text.at += 1,
        }
    }
    text.at
}
