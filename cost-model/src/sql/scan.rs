//! The scanner: one pass over SQL bytes, without allocation, that feeds tokens to a sink.
//!
//! In: bytes, need not be UTF-8, of which the first [`MAX_SCAN_BYTES`] are read. Out: words, quoted identifiers,
//! symbols, one mark per literal. White space and comments (not `/*+` hints) are left out, and so are the value of
//! a literal or placeholder and the sign before a number. `NULL`, `TRUE` and `FALSE` are literals where a value
//! stands (after `(`, `,` or an operator), so `IS NULL` is kept. Repetition is left to `collapse`.

use super::collapse::{Before, Collapse};
use super::conditional::Conditional;
use super::cursor::Cursor;
use super::dialect::{Rules, class};
use super::token::{Literal, Sink, Token};

/// Longest text that is read, in bytes. A longer one counts as its beginning: what distinguishes statements comes
/// first, and a bulk insert of any length stays one statement.
pub const MAX_SCAN_BYTES: usize = 1 << 20;

struct Scanner<'a, S: Sink> {
    text: Cursor<'a>,
    out: Collapse<S>,
    in_hint: bool,
    /// The comment in which it reads code.
    conditional: Option<Conditional>,
    /// The first that has two ends.
    unclear: Option<Conditional>,
    /// A backslash escaped in the last string.
    escaped: bool,
}

/// Feeds the tokens of `sql` to `sink` and gives it back.
pub(super) fn scan<S: Sink>(sql: &[u8], rules: &'static Rules, sink: S) -> S {
    let sql = sql.get(..MAX_SCAN_BYTES).unwrap_or(sql);
    let begin = sink.mark();
    let (mut sink, unclear) = scanned(sql, rules, sink);
    if let Some(conditional) = unclear {
        sink.rewind(begin);
        sink = apart(conditional, sql, rules, sink);
    }
    sink
}

/// The tokens of a text that servers read in two ways from this comment on.
#[cold]
fn apart<S: Sink>(conditional: Conditional, sql: &[u8], rules: &'static Rules, sink: S) -> S {
    let (mut sink, _) = scanned(conditional.before(sql), rules, sink);
    // No parser takes this for a part of a statement, so the kind is unknown, too.
    sink.token(Token::Symbol(b"*/"));
    sink.token(Token::Word(conditional.word(sql).as_bytes()));
    sink
}

/// The same, whatever servers make of comments; and the first one that they take for two things.
fn scanned<S: Sink>(sql: &[u8], rules: &'static Rules, sink: S) -> (S, Option<Conditional>) {
    let text = Cursor { bytes: sql, at: 0, rules };
    let out = Collapse::new(sink);
    let mut scanner = Scanner { text, out, in_hint: false, conditional: None, unclear: None, escaped: false };
    while let Some(byte) = scanner.text.peek(0) {
        scanner.step(byte);
    }
    scanner.leave_conditional();
    (scanner.out.finish(), scanner.unclear)
}

impl<S: Sink> Scanner<'_, S> {
    // Always: a call for each token costs a tenth of a scan.
    #[inline(always)]
    fn step(&mut self, byte: u8) {
        let class = self.text.rules.class(byte);
        if class & class::SPACE != 0 {
            self.text.at += 1;
        } else if class & class::WORD_START != 0 {
            self.word();
        } else if class & class::DIGIT != 0 {
            self.number();
        } else {
            self.punctuation(byte);
        }
    }

    fn punctuation(&mut self, byte: u8) {
        let next = self.text.peek(1);
        match byte {
            b'\'' => self.string(byte, self.text.rules.backslash || self.goes_on_escaped()),
            b'"' if self.text.rules.double_quoted_strings => self.string(byte, self.text.rules.backslash),
            b'"' => self.identifier(byte),
            b'`' if self.text.rules.backtick_identifiers => self.identifier(byte),
            b'[' if self.text.rules.bracket_identifiers => self.identifier(b']'),
            b'(' | b'[' | b')' | b']' | b',' | b';' => self.bracket_or_separator(byte),
            b'.' if self.text.class_at(1) & class::DIGIT != 0 && self.out.wants_value() => self.number(),
            b'.' => self.symbol(1, Before::Dot),
            b'-' if next == Some(b'-') && self.dashes_comment() => self.text.line_comment(),
            b'#' if self.text.rules.hash_comments => self.text.line_comment(),
            b'/' if next == Some(b'*') => self.block_comment(),
            b'*' if next == Some(b'/') && self.conditional.is_some() => {
                self.text.at += 2;
                self.leave_conditional();
            }
            b'-' | b'+' if self.signs_a_number() => self.text.at += 1,
            b'$' if self.text.rules.dollar_quotes && self.text.dollar_string() => {
                self.out.literal(Literal::String)
            }
            // `$1` or `$name`; in MySQL it begins a word.
            b'$' => self.placeholder(),
            b'?' if self.text.rules.question_placeholders => self.placeholder(),
            b':' if self.text.rules.colon_placeholders && self.text.class_at(1) & class::WORD != 0 => {
                self.placeholder()
            }
            b'@' if self.text.rules.at_placeholders => self.placeholder(),
            _ => self.symbol(self.text.operator(byte), Before::Operator),
        }
    }

    fn signs_a_number(&self) -> bool {
        let digit = |ahead| self.text.class_at(ahead) & class::DIGIT != 0;
        self.out.wants_value() && (digit(1) || (self.text.peek(1) == Some(b'.') && digit(2)))
    }

    fn dashes_comment(&self) -> bool {
        !self.text.rules.dashes_need_space
            || self.text.peek(2).is_none()
            || self.text.class_at(2) & class::SPACE != 0
    }

    /// Whether a string follows the word that began at `start` whose end is unclear. `@q'..` is a name and a string, or
    /// an operator and a string with a prefix. In `R'..` or `B"..` a backslash escapes or not, and three quotes are
    /// one, as the server has it; or it is a word before a quoted name.
    fn begins_an_unclear_string(&self, start: usize, word: &[u8]) -> bool {
        let sign = || start.checked_sub(1).and_then(|before| self.text.bytes.get(before));
        let unclear = match self.text.peek(0) {
            Some(b'\'') => matches!(sign(), Some(b'@' | b'#')) || is_one_of(word, &[b"r", b"rb", b"br"]),
            Some(b'"') => is_one_of(word, &[b"r", b"b", b"rb", b"br"]),
            _ => false,
        };
        unclear && self.text.rules.any_server
    }

    /// Reads the string of which `word` is the prefix, as in `N'..'`, if it is one.
    fn prefixes_a_string(&mut self, word: &[u8]) -> bool {
        let escapes = self.text.rules.escape_prefix;
        if self.text.rules.any_server
            && self.text.peek(0) == Some(b'\'')
            && is_one_of(word, &[b"q", b"nq"])
            && self.text.delimited_string()
        {
            self.out.literal(Literal::String);
            return true;
        }
        if word.len() > 1 {
            return false;
        }
        match (word.first().map(u8::to_ascii_lowercase), self.text.peek(0), self.text.peek(1)) {
            (Some(b'n' | b'x' | b'b'), Some(b'\''), _) => self.string(b'\'', self.text.rules.backslash),
            (Some(b'e'), Some(b'\''), _) if escapes => self.string(b'\'', true),
            (Some(b'u'), Some(b'&'), Some(b'\'')) if escapes => {
                self.text.at += 1;
                self.string(b'\'', false);
            }
            _ => return false,
        }
        true
    }

    /// Whether a string here goes on an `E'..'`, whose rules then hold for it, too.
    fn goes_on_escaped(&self) -> bool {
        self.escaped && self.out.follows_a_string()
    }

    fn string(&mut self, quote: u8, backslash: bool) {
        self.escaped = backslash;
        self.text.quotes(quote, backslash);
        self.out.literal(Literal::String);
    }

    fn identifier(&mut self, closing: u8) {
        let start = self.text.at;
        self.text.quotes(closing, false);
        self.out.emit(Token::Quoted(self.text.since(start)), Before::Word);
    }

    fn placeholder(&mut self) {
        self.text.at += 1;
        self.text.placeholder();
        self.out.literal(Literal::Placeholder);
    }

    fn block_comment(&mut self) {
        if self.in_hint {
            self.text.skip_comment();
        } else if self.text.peek(2) == Some(b'+') {
            self.hint();
        } else if self.text.rules.executable_comments
            && let Some(conditional) = Conditional::open(&mut self.text)
        {
            // Where the outer one ends is not looked for within another one.
            let outer = self.conditional.replace(conditional);
            self.unclear = self.unclear.or(outer);
        } else {
            self.text.skip_comment();
        }
    }

    /// Code in a comment ends here.
    fn leave_conditional(&mut self) {
        let left = self.conditional.take().filter(|left| !left.ends_at(self.text.at));
        self.unclear = self.unclear.or(left);
    }

    /// A hint ends where the comment ends that it is for most servers, whatever quotes and comments begin in it.
    #[cold]
    fn hint(&mut self) {
        let mut behind = self.text;
        behind.skip_comment();
        let read = behind.bytes.get(..behind.at).unwrap_or_default();
        self.text.bytes = read.strip_suffix(b"*/").unwrap_or(read);
        self.text.at += 3;
        self.in_hint = true;
        let around = self.out.open_hint();
        while let Some(byte) = self.text.peek(0) {
            self.step(byte);
        }
        self.out.close_hint(around);
        self.in_hint = false;
        self.text = behind;
    }

    fn bracket_or_separator(&mut self, byte: u8) {
        self.text.at += 1;
        match byte {
            b'(' | b'[' => self.out.open(&[byte]),
            b',' => self.out.comma(),
            b';' => self.out.semicolon(),
            _ => self.out.close(&[byte]),
        }
    }

    fn symbol(&mut self, length: usize, then: Before) {
        let start = self.text.at;
        self.text.at += length;
        self.out.emit(Token::Symbol(self.text.since(start)), then);
    }

    fn word(&mut self) {
        let start = self.text.at;
        self.text.word();
        let word = self.text.since(start);
        if self.begins_an_unclear_string(start, word) {
            // All of the rest counts as value.
            self.text.at = self.text.bytes.len();
            self.out.literal(Literal::String);
        } else if word.len() > 2 || !self.prefixes_a_string(word) {
            self.out.word(word);
        }
    }

    fn number(&mut self) {
        self.text.number();
        self.out.literal(Literal::Number);
    }
}

/// Whether a word is one of these, in any case.
fn is_one_of(word: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|other| word.eq_ignore_ascii_case(other))
}
