//! Collapsing repetition in a stream of tokens: lists of literals, rows of values, semicolons.
//!
//! In: the tokens of a text, one at a time. Out, to the sink: the same without all but the first of a list of
//! literals after `IN (` or `ARRAY[`, of the literal tuples in such a list, and of the rows after `VALUES`, and
//! without leading, trailing and repeated semicolons.
//!
//! Method: one token of lookbehind and at most one held separator, in constant memory; a row that turns out to
//! repeat the one before it is taken back from the sink. Rows within rows are left as they are.

use super::keyword::{Keyword, keyword};
use super::token::{Literal, Sink, Token};

/// The token before, as far as it changes how the next is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Start,
    Word,
    /// A word after which a sign belongs to the number that follows.
    Clause,
    /// `ON`, which is one.
    On,
    In,
    Array,
    Values,
    /// `VALUE`: a row may follow, or a sign that is an operator.
    Value,
    Literal(Literal),
    Open,
    Close,
    /// The end of a row or tuple that an equal one may follow.
    Row(RowKind),
    Comma,
    Dot,
    Operator,
}

/// A separator that counts only if something else than a repetition follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    ListComma,
    RowComma(RowKind),
    Semicolon,
}

/// What makes a row repeat the one before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    /// After `VALUES`: repeats the first row whatever it holds.
    Values,
    /// A tuple in a list: repeats the first if both hold literals only.
    Tuple,
}

struct Row<M> {
    kind: RowKind,
    depth: u32,
    /// Before the comma in front of it; none for the first row.
    mark: Option<M>,
}

/// What a hint leaves as it is.
pub(super) struct Around<M> {
    before: Before,
    held: Held,
    depth: u32,
    lists: u64,
    row: Option<Row<M>>,
    row_is_literal: bool,
}

/// A sink behind which repetition does not show.
pub(super) struct Collapse<S: Sink> {
    sink: S,
    before: Before,
    held: Held,
    depth: u32,
    /// Whether each of the innermost 64 brackets is a list of values; the lowest bit is the innermost.
    lists: u64,
    /// The outermost row being read.
    row: Option<Row<S::Mark>>,
    row_is_literal: bool,
    /// Behind `ON DUPLICATE` of the statement.
    updates: bool,
}

impl<S: Sink> Collapse<S> {
    pub(super) const fn new(sink: S) -> Self {
        Self {
            sink,
            before: Before::Start,
            held: Held::Nothing,
            depth: 0,
            lists: 0,
            row: None,
            row_is_literal: false,
            updates: false,
        }
    }

    /// The sink, without a repeated row that the end of the text has cut.
    pub(super) fn finish(mut self) -> S {
        if let Some(Row { kind, mark: Some(mark), .. }) = self.row
            && (kind == RowKind::Values || self.row_is_literal)
        {
            self.sink.rewind(mark);
        }
        self.sink
    }

    /// Whether a value, rather than an operator, may stand here.
    pub(super) fn wants_value(&self) -> bool {
        matches!(
            self.before,
            Before::Start
                | Before::Clause
                | Before::On
                | Before::Values
                | Before::Open
                | Before::Comma
                | Before::Operator
        )
    }

    /// Whether the token before is a string.
    pub(super) fn follows_a_string(&self) -> bool {
        self.before == Before::Literal(Literal::String)
    }

    /// An unquoted word.
    pub(super) fn word(&mut self, word: &[u8]) {
        let meaning = if self.before == Before::Dot { Keyword::None } else { keyword(word) };
        let then = match meaning {
            Keyword::Constant if matches!(self.before, Before::Open | Before::Comma | Before::Operator) => {
                return self.literal(Literal::Number);
            }
            // Where a value stands it is a column.
            Keyword::Offset if self.wants_value() && self.before != Before::Start => Before::Word,
            // Here it is the function of `ON DUPLICATE KEY UPDATE`, whose brackets are no row.
            Keyword::Values | Keyword::Value
                if self.updates || matches!(self.before, Before::Comma | Before::Operator) =>
            {
                Before::Word
            }
            Keyword::Duplicate => {
                self.updates |= self.before == Before::On;
                Before::Word
            }
            Keyword::None | Keyword::Constant => Before::Word,
            Keyword::On => Before::On,
            Keyword::Clause | Keyword::Offset => Before::Clause,
            Keyword::In => Before::In,
            Keyword::Array => Before::Array,
            Keyword::Values => Before::Values,
            Keyword::Value => Before::Value,
        };
        self.emit(Token::Word(word), then);
    }

    /// The start of a hint, which is no part of the statement around it: that goes on behind it as it was.
    pub(super) fn open_hint(&mut self) -> Around<S::Mark> {
        self.sink.token(Token::HintOpen);
        Around {
            before: std::mem::replace(&mut self.before, Before::Start),
            held: std::mem::replace(&mut self.held, Held::Nothing),
            depth: std::mem::take(&mut self.depth),
            lists: std::mem::take(&mut self.lists),
            row: self.row.take(),
            row_is_literal: std::mem::take(&mut self.row_is_literal),
        }
    }

    /// The end of a hint. A word before it is taken for the verb that hints follow, whatever it is.
    pub(super) fn close_hint(&mut self, around: Around<S::Mark>) {
        self.sink.token(Token::HintClose);
        let Around { before, held, depth, lists, row, row_is_literal } = around;
        self.before = if before == Before::Word { Before::Clause } else { before };
        (self.held, self.depth, self.lists) = (held, depth, lists);
        (self.row, self.row_is_literal) = (row, row_is_literal);
    }

    /// Any other token, after which `then` is the token before.
    pub(super) fn emit(&mut self, token: Token<'_>, then: Before) {
        self.release();
        self.sink.token(token);
        self.before = then;
        self.row_is_literal = false;
    }

    /// A literal or placeholder.
    pub(super) fn literal(&mut self, kind: Literal) {
        let repeats = self.held == Held::ListComma;
        // Adjacent strings are one string.
        let continues = kind == Literal::String && self.before == Before::Literal(Literal::String);
        if repeats || continues {
            self.held = Held::Nothing;
            self.before = Before::Literal(kind);
            return;
        }
        let literal = self.row_is_literal;
        self.emit(Token::Literal(kind), Before::Literal(kind));
        self.row_is_literal = literal;
    }

    /// `(` or `[`
    pub(super) fn open(&mut self, bracket: &[u8]) {
        let list = matches!(self.before, Before::In | Before::Array);
        let row = match (self.before, self.held) {
            _ if self.row.is_some() => None,
            (Before::Values | Before::Value, _) => Some((RowKind::Values, None)),
            (_, Held::RowComma(kind)) => Some((kind, Some(self.sink.mark()))),
            (Before::Open | Before::Comma, _) if self.lists & 1 == 1 => Some((RowKind::Tuple, None)),
            _ => None,
        };
        self.emit(Token::Symbol(bracket), Before::Open);
        self.depth = self.depth.saturating_add(1);
        self.lists = self.lists << 1 | u64::from(list);
        if let Some((kind, mark)) = row {
            self.row = Some(Row { kind, depth: self.depth, mark });
            self.row_is_literal = true;
        }
    }

    /// `)` or `]`
    pub(super) fn close(&mut self, bracket: &[u8]) {
        let literal = self.row_is_literal;
        self.emit(Token::Symbol(bracket), Before::Close);
        if let Some(row) = self.row.take_if(|row| row.depth == self.depth)
            && (row.kind == RowKind::Values || literal)
        {
            if let Some(mark) = row.mark {
                self.sink.rewind(mark);
            }
            self.before = Before::Row(row.kind);
        }
        self.depth = self.depth.saturating_sub(1);
        self.lists >>= 1;
    }

    /// `,`
    pub(super) fn comma(&mut self) {
        let held = match self.before {
            Before::Literal(_) if self.lists & 1 == 1 => Held::ListComma,
            Before::Row(kind) => Held::RowComma(kind),
            _ => {
                let literal = self.row_is_literal;
                self.emit(Token::Symbol(b","), Before::Comma);
                self.row_is_literal = literal;
                return;
            }
        };
        self.held = held;
        self.before = Before::Comma;
    }

    /// `;`
    pub(super) fn semicolon(&mut self) {
        if self.before != Before::Start {
            self.updates = false;
            self.release();
            self.held = Held::Semicolon;
            self.before = Before::Start;
        }
    }

    /// Lets a held separator through, since no repetition follows.
    fn release(&mut self) {
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => {}
            Held::ListComma | Held::RowComma(_) => self.sink.token(Token::Symbol(b",")),
            Held::Semicolon => self.sink.token(Token::Symbol(b";")),
        }
    }
}
