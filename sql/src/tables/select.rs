//! A query of our tables, translated into SQLite's words.
//!
//! In: the tokens of a dialect. Out: text with the same tokens and blanks, in which strings and names are quoted as
//! SQLite does and the few operators are replaced that it spells differently. Comments become blanks.

use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};
use tidegate_cost_model::SqlDialect;

use super::schema::VirtualTable;

/// A query all of whose tables are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    text: String,
    tables: Vec<VirtualTable>,
    dialect: SqlDialect,
}

impl Select {
    pub(crate) fn new(tokens: &[&TokenWithSpan], tables: Vec<VirtualTable>, dialect: SqlDialect) -> Self {
        let mut text = String::new();
        let mut end = None;
        for token in tokens {
            // A blank where there was one, so that columns without a name are called as they are written.
            if end.is_some_and(|end| end != token.span.start) {
                text.push(' ');
            }
            end = Some(token.span.end);
            text.push_str(&translated(&token.token, dialect));
        }
        Self { text, tables, dialect }
    }

    /// Every row and column of a table.
    pub(crate) fn all(table: VirtualTable, dialect: SqlDialect) -> Self {
        Self { text: format!("SELECT * FROM {}", table.full_name()), tables: vec![table], dialect }
    }

    /// The tables it reads.
    pub fn tables(&self) -> &[VirtualTable] {
        &self.tables
    }

    /// The query as SQLite reads it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The dialect it came in.
    pub(crate) fn dialect(&self) -> SqlDialect {
        self.dialect
    }
}

fn translated(token: &Token, dialect: SqlDialect) -> String {
    match token {
        Token::SingleQuotedString(text)
        | Token::DoubleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text)
        | Token::NationalStringLiteral(text) => string(text),
        Token::DollarQuotedString(text) => string(&text.value),
        Token::Word(Word { value, quote_style: Some(_), .. }) => {
            format!("\"{}\"", value.replace('"', "\"\""))
        }
        // LIKE ignores case here.
        Token::Word(word) if word.value.eq_ignore_ascii_case("ILIKE") => "LIKE".to_owned(),
        Token::Spaceship => "IS".to_owned(),
        Token::Overlap if dialect == SqlDialect::MySql => "AND".to_owned(),
        Token::StringConcat if dialect == SqlDialect::MySql => "OR".to_owned(),
        Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_)) => {
            " ".to_owned()
        }
        other => other.to_string(),
    }
}

fn string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
