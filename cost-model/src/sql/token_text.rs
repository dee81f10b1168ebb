//! The text of a statement's tokens: what the parser reads on a cache miss.
//!
//! In: tokens from the scanner. Out: SQL with words in lower case, one space between tokens, and a stand-in for
//! each literal that the parser accepts where a literal of that kind may stand; [`shown`] turns stand-ins into `?`.
//! Hints are left out, since they steer a statement and do not make it another one; of them only the resource
//! group is kept.

use super::token::{Literal, Sink, Token};

/// Stands for a number: fits every integer type the parser knows, and no one writes it.
pub(super) const NUMBER: &str = "8888888888888888888";
/// Stands for a string or a placeholder.
pub(super) const STRING: &str = "'?'";
/// Room made at once, in bytes. Lists shrink to one value, so the length of a long text says nothing.
const USUAL_BYTES: usize = 1_024;
/// Longest resource group name taken from a hint, in bytes. A longer one cannot be a group's and is ignored.
const MAX_GROUP_NAME: usize = 128;

#[derive(Default)]
pub(super) struct TokenText {
    text: Vec<u8>,
    tokens: usize,
    in_hint: bool,
    /// How much of `resource_group(name)` the last tokens of a hint are.
    matched: Matched,
    /// What the hint names, while its bracket is open.
    named: Option<String>,
    group: Option<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Matched {
    #[default]
    Nothing,
    Name,
    Open,
    Named,
}

/// All of the state, as a token hash's state is all of it: tokens that are taken back must leave no trace in either.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    length: usize,
    tokens: usize,
    in_hint: bool,
    matched: Matched,
    grouped: bool,
}

impl TokenText {
    /// For the tokens of `sql`, with room for what they usually take.
    pub(super) fn of(sql: &[u8]) -> Self {
        Self { text: Vec::with_capacity(sql.len().min(USUAL_BYTES)), ..Self::default() }
    }

    /// How many tokens the text has.
    pub(super) const fn tokens(&self) -> usize {
        self.tokens
    }

    /// The text, in which bytes that are not UTF-8 are replaced, and the first resource group named in a hint.
    pub(super) fn finish(self) -> (String, Option<String>) {
        let text = String::from_utf8(self.text)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        (text, self.group)
    }

    fn push(&mut self, token: &[u8], lower: bool) {
        let tight_before = matches!(token, b"," | b")" | b"]" | b"." | b";" | b"::");
        let tight_after =
            matches!(self.text.last(), None | Some(b'(' | b'[' | b'.')) || self.text.ends_with(b"::");
        if !tight_before && !tight_after {
            self.text.push(b' ');
        }
        if lower {
            self.text.extend(token.iter().map(u8::to_ascii_lowercase));
        } else {
            self.text.extend_from_slice(token);
        }
    }

    fn hint(&mut self, token: Token<'_>) {
        self.matched = match (self.matched, token) {
            (_, Token::Word(word)) if word.eq_ignore_ascii_case(b"resource_group") => Matched::Name,
            (Matched::Name, Token::Symbol(b"(")) => Matched::Open,
            (Matched::Open, Token::Word(name) | Token::Quoted(name)) => {
                let name = String::from_utf8_lossy(name);
                let name = name.trim_matches(['`', '"']).to_ascii_lowercase();
                self.named = (!name.is_empty() && name.len() <= MAX_GROUP_NAME).then_some(name);
                Matched::Named
            }
            // A name of several tokens, as `a-b` without quotes, is not that of the group `a`.
            (Matched::Named, Token::Symbol(b")")) => {
                if self.group.is_none() {
                    self.group = self.named.take();
                }
                Matched::Nothing
            }
            _ => Matched::Nothing,
        };
    }
}

impl Sink for TokenText {
    type Mark = Mark;

    fn token(&mut self, token: Token<'_>) {
        match token {
            Token::HintOpen => (self.in_hint, self.matched) = (true, Matched::Nothing),
            Token::HintClose => self.in_hint = false,
            other if self.in_hint => self.hint(other),
            other => {
                self.tokens += 1;
                match other {
                    Token::Word(word) => self.push(word, true),
                    Token::Quoted(bytes) | Token::Symbol(bytes) => self.push(bytes, false),
                    Token::Literal(Literal::Number) => self.push(NUMBER.as_bytes(), false),
                    Token::Literal(_) => self.push(STRING.as_bytes(), false),
                    Token::HintOpen | Token::HintClose => {}
                }
            }
        }
    }

    fn mark(&self) -> Mark {
        Mark {
            length: self.text.len(),
            tokens: self.tokens,
            in_hint: self.in_hint,
            matched: self.matched,
            grouped: self.group.is_some(),
        }
    }

    fn rewind(&mut self, mark: Mark) {
        self.text.truncate(mark.length);
        self.tokens = mark.tokens;
        self.in_hint = mark.in_hint;
        self.matched = mark.matched;
        if !mark.grouped {
            self.group = None;
        }
    }
}

/// The text with `?` for every stand-in.
pub(super) fn shown(mut text: String) -> String {
    for stand_in in [NUMBER, STRING] {
        if text.contains(stand_in) {
            text = text.replace(stand_in, "?");
        }
    }
    text
}
