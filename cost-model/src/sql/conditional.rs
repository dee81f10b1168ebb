//! Comments that are code for some servers: `/*! .. */` for all of MySQL's kind, `/*!50000 .. */` from a version on,
//! `/*M! .. */` for MariaDB and `/*T! .. */` for TiDB.
//!
//! They are read as code, since the version of the server is not known here. A server for which one is a comment goes on
//! where that ends, which may be another place than where the code ends, as in `/*!99999 ' */ code -- '`. Such a text is
//! two statements in one: from there on it is one token of its own, so that neither hides in the template of another text.

use super::cursor::Cursor;
use super::dialect::class;
use super::template::Fingerprint;

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
            (true, _) => Some(end_of_comment(whole, 1)),
            // A server that skips code of a later version skips comments within it.
            (false, true) => Some(end_of_comment(whole, 2)),
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

    /// A word for it and all behind it, from which no value can be read.
    pub(super) fn word(self, text: &[u8]) -> String {
        // With a digit at its beginning it would be read as a number.
        format!("_{}", Fingerprint::of(text.get(self.from..).unwrap_or_default()))
    }
}

/// Where a comment ends in which others begin as deep as this.
fn end_of_comment(mut text: Cursor<'_>, deepest: u32) -> usize {
    text.skip_comments(deepest);
    text.at
}
