//! SQL text cut into tokens and statements, by the rules of a dialect.
//!
//! In: a text. Out: tokens with their places, and the statements between semicolons. Strings and identifiers come
//! without quotes and escapes. The tokenizer is sqlparser's.

use std::ops::Range;

use sqlparser::dialect::{Dialect, GenericDialect, MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use tidegate_cost_model::SqlDialect;

use crate::error::{SqlError, cut};

/// The parser's rules for `dialect`.
pub(crate) fn rules(dialect: SqlDialect) -> &'static dyn Dialect {
    match dialect {
        SqlDialect::Generic => &GenericDialect {},
        SqlDialect::MySql => &MySqlDialect {},
        SqlDialect::PostgreSql => &PostgreSqlDialect {},
        SqlDialect::SQLite => &SQLiteDialect {},
    }
}

/// The tokens of `text`, white space and comments included.
pub(crate) fn tokenise(text: &str, dialect: SqlDialect) -> Result<Vec<TokenWithSpan>, SqlError> {
    Tokenizer::new(rules(dialect), text).tokenize_with_location().map_err(|error| {
        let byte = byte_at(text, error.location);
        syntax(text, error.location, text.get(byte..).unwrap_or_default(), &error.message)
    })
}

/// The tokens of each statement; those without any but blanks are left out.
pub(crate) fn statements(tokens: &[TokenWithSpan]) -> Vec<&[TokenWithSpan]> {
    let parts = tokens.split(|token| token.token == Token::SemiColon);
    parts.filter(|part| part.iter().any(is_code)).collect()
}

/// Whether a token is neither white space nor a comment.
pub(crate) fn is_code(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

/// The statements of `text`, without the semicolons between them and those that are only comments.
///
/// Bodies of procedures and triggers hold semicolons and are cut as well.
pub fn split(text: &str, dialect: SqlDialect) -> Result<Vec<&str>, SqlError> {
    let tokens = tokenise(text, dialect)?;
    let mut places = Places::new(text);
    let texts = statements(&tokens).into_iter().filter_map(|part| {
        let range = places.range(part)?;
        text.get(range)
    });
    Ok(texts.collect())
}

/// An error at a place.
pub(crate) fn syntax(text: &str, place: Location, near: &str, expected: &str) -> SqlError {
    let byte = byte_at(text, place);
    let characters = text.get(..byte).unwrap_or(text).chars().count();
    SqlError::Syntax {
        line: place.line,
        column: place.column,
        position: characters + 1,
        near: cut(near.trim()),
        expected: expected.to_owned(),
    }
}

/// The byte at a place; the end when it is beyond.
pub(crate) fn byte_at(text: &str, place: Location) -> usize {
    Places::new(text).byte(place)
}

/// Finds the bytes of places that only go forward, in one pass.
struct Places<'t> {
    text: &'t str,
    at: usize,
    line: u64,
    column: u64,
}

impl<'t> Places<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, at: 0, line: 1, column: 1 }
    }

    fn byte(&mut self, place: Location) -> usize {
        for c in self.text.get(self.at..).unwrap_or_default().chars() {
            if (self.line, self.column) >= (place.line, place.column) {
                break;
            }
            self.at += c.len_utf8();
            if c == '\n' {
                (self.line, self.column) = (self.line + 1, 1);
            } else {
                self.column += 1;
            }
        }
        self.at
    }

    /// The range from the first token that is code to the last.
    fn range(&mut self, tokens: &[TokenWithSpan]) -> Option<Range<usize>> {
        let first = tokens.iter().find(|token| is_code(token))?;
        let last = tokens.iter().rev().find(|token| is_code(token))?;
        Some(self.byte(first.span.start)..self.byte(last.span.end))
    }
}

/// The bytes from the first token that is code to the last.
pub(crate) fn range(text: &str, tokens: &[TokenWithSpan]) -> Option<Range<usize>> {
    Places::new(text).range(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes_and_comments() {
        for (text, statements) in [
            ("", vec![]),
            (" ; ;\n-- nothing; here\n/* or; here */;", vec![]),
            ("select 1", vec!["select 1"]),
            ("select 1; select 2;", vec!["select 1", "select 2"]),
            ("select ';''' , `b;`; x", vec!["select ';''' , `b;`", "x"]),
            ("select 1 -- one; two\n, 3; y", vec!["select 1 -- one; two\n, 3", "y"]),
            ("select 'ä;ö\\';'; é", vec!["select 'ä;ö\\';'", "é"]),
        ] {
            assert_eq!(split(text, SqlDialect::MySql).unwrap(), statements, "{text:?}");
        }
        assert_eq!(split("select $$a;b$$; c", SqlDialect::PostgreSql).unwrap(), ["select $$a;b$$", "c"]);
    }

    #[test]
    fn a_text_that_cannot_be_cut_says_where() {
        let error = split("select 1;\n  'open", SqlDialect::MySql).unwrap_err();
        let SqlError::Syntax { line, column, position, .. } = error else { panic!("{error}") };
        assert_eq!((line, column, position), (2, 3, 13));
    }
}
