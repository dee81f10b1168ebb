//! A place in SQL bytes, and how far each kind of token reaches from there.
//!
//! In: bytes and a dialect's rules. Out: the place after a string, number, word or comment. An unclosed token reaches
//! to the end of the text, so nothing here fails, and each byte is passed once.

use super::dialect::{Rules, class};

#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) rules: &'static Rules,
}

impl<'a> Cursor<'a> {
    /// The byte `ahead` of here.
    pub(super) fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    /// The class of the byte `ahead` of here.
    pub(super) fn class_at(&self, ahead: usize) -> u8 {
        self.peek(ahead).map_or(0, |byte| self.rules.class(byte))
    }

    /// The text from `start` to here.
    pub(super) fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    /// Passes a quoted text, with doubled quotes and escapes, from its opening quote past the closing one.
    pub(super) fn quotes(&mut self, quote: u8, backslash: bool) {
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            if byte == b'\\' && backslash {
                self.at += 1;
            } else if byte == quote {
                if self.peek(0) != Some(quote) {
                    return;
                }
                self.at += 1;
            }
        }
    }

    /// Past `'[..]'`, whose end is the counterpart of its first character and a quote. False: the first is a space.
    pub(super) fn delimited_string(&mut self) -> bool {
        let rest = self.bytes.get(self.at + 1..).unwrap_or_default();
        let first = rest.get(..4).unwrap_or(rest).utf8_chunks().next();
        let Some(opening) = first.and_then(|chunk| chunk.valid().chars().next()) else {
            return false;
        };
        let closing = match opening {
            ' ' | '\t' | '\r' | '\n' => return false,
            '[' => ']',
            '{' => '}',
            '<' => '>',
            '(' => ')',
            other => other,
        };
        let mut buffer = [0; 4];
        let closing = closing.encode_utf8(&mut buffer).as_bytes();
        self.at += 1 + opening.len_utf8();
        while let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) {
            if let Some([b'\'', ..]) = rest.strip_prefix(closing) {
                self.at += closing.len() + 1;
                break;
            }
            self.at += 1;
        }
        true
    }

    /// Passes a comment to the end of the line.
    pub(super) fn line_comment(&mut self) {
        let ends = |byte| byte == b'\n' || byte == b'\r' && self.rules.returns_end_lines;
        while self.peek(0).is_some_and(|byte| !ends(byte)) {
            self.at += 1;
        }
    }

    /// Past a block comment and those within it.
    pub(super) fn skip_comment(&mut self) {
        self.skip_comments(if self.rules.nested_comments { u32::MAX } else { 1 });
    }

    /// Past a block comment, in which others begin until so many are open.
    pub(super) fn skip_comments(&mut self, deepest: u32) {
        let mut open: u32 = 0;
        while let Some(byte) = self.peek(0) {
            match (byte, self.peek(1)) {
                (b'/', Some(b'*')) if open < deepest => {
                    open += 1;
                    self.at += 2;
                }
                (b'*', Some(b'/')) => {
                    open = open.saturating_sub(1);
                    self.at += 2;
                    if open == 0 {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    /// Digits, letters and points, so also 0x1f, 1_000 and 1.5e3, and the sign of an exponent. That of 0x1e+5 is none.
    pub(super) fn number(&mut self) {
        let mut last = 0;
        let hex = matches!((self.peek(0), self.peek(1)), (Some(b'0'), Some(b'x' | b'X')));
        while let Some(byte) = self.peek(0) {
            let exponent =
                matches!(byte, b'+' | b'-') && last == b'e' && !hex && self.class_at(1) & class::DIGIT != 0;
            if !self.is_value(byte) && byte != b'.' && !exponent {
                break;
            }
            last = byte.to_ascii_lowercase();
            self.at += 1;
        }
        self.end_value();
    }

    /// Reads `$tag$..$tag$` if there is one here.
    pub(super) fn dollar_string(&mut self) -> bool {
        let mut length = 1;
        while self.class_at(length) & class::WORD != 0 && self.peek(length) != Some(b'$') {
            length += 1;
        }
        if self.peek(length) != Some(b'$') || self.class_at(1) & class::DIGIT != 0 {
            return false;
        }
        let start = self.at;
        self.at += length + 1;
        let tag = self.since(start);
        while let Some(byte) = self.peek(0) {
            if byte == b'$' && self.bytes.get(self.at..self.at + tag.len()) == Some(tag) {
                self.at += tag.len();
                break;
            }
            self.at += 1;
        }
        true
    }

    /// Length of a run of operator bytes, which stops where a comment, a sign or a placeholder begins.
    pub(super) fn operator(&self, first: u8) -> usize {
        let mut length = 1;
        if self.rules.class(first) & class::OPERATOR != 0 {
            while self.class_at(length) & class::OPERATOR != 0 {
                let next = self.peek(length + 1);
                let stops = match self.peek(length) {
                    // Part of an operator only in an arrow, as in `->` and `<->`.
                    // Or as PostgreSQL's `#-`.
                    Some(b'-' | b'+') => next != Some(b'>') && !self.removes_a_path(length),
                    Some(b'/') => next == Some(b'*'),
                    Some(b'*') => next == Some(b'/'),
                    Some(b':') => {
                        self.rules.colon_placeholders && !matches!(next, Some(b':' | b'=')) && first != b':'
                    }
                    _ => false,
                };
                if stops {
                    break;
                }
                length += 1;
            }
        }
        length
    }

    /// Whether the operator of `length` bytes so far and the sign behind it are `#-`.
    fn removes_a_path(&self, length: usize) -> bool {
        self.rules.path_operators
            && length == 1
            && matches!((self.peek(0), self.peek(1)), (Some(b'#'), Some(b'-')))
    }

    /// Whether a byte goes on a number or a placeholder.
    fn is_value(&self, byte: u8) -> bool {
        self.rules.class(byte) & class::WORD != 0 && !(byte == b'$' && self.rules.dollar_quotes)
    }

    /// The rest of a placeholder.
    pub(super) fn placeholder(&mut self) {
        while self.peek(0).is_some_and(|byte| self.is_value(byte)) {
            self.at += 1;
        }
        self.end_value();
    }

    /// In `1a$b$c` a string begins or a name goes on, and in `1e'a\'b'` a backslash escapes or not, as the server's
    /// version has it, so the ends of strings from here on are unknown: all of the rest counts as value.
    fn end_value(&mut self) {
        let letter = self.at.checked_sub(1).and_then(|before| self.bytes.get(before));
        let unclear = match self.peek(0) {
            Some(b'$') => self.rules.dollar_quotes,
            Some(b'\'') => self.rules.escape_prefix && letter.is_some_and(u8::is_ascii_alphabetic),
            _ => false,
        };
        if unclear {
            self.at = self.bytes.len();
        }
    }

    /// The rest of a word.
    pub(super) fn word(&mut self) {
        while self.class_at(0) & class::WORD != 0 {
            self.at += 1;
        }
    }
}
