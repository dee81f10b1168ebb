//! What a statement does with the names that SQL gives to statements: `PREPARE`, `EXECUTE`, `DEALLOCATE`.
//!
//! In: a text in PostgreSQL's or MySQL's dialect. Out: the name that it gives, runs or takes away, as the server knows
//! it, and the statement behind it where the text has it. A text of several statements, or one that is read in more
//! than one way, yields nothing: the keeper of the names then follows the server's answer.
//!
//! *Source*: the manuals of PostgreSQL 15 (`PREPARE`, `EXECUTE`, `DEALLOCATE`; 4.1.1 for names), MySQL 8.4 (15.5) and
//! MariaDB 10.11 (`EXECUTE IMMEDIATE`).

use sqlparser::tokenizer::{Token, Word};
use tidegate_cost_model::{SqlDialect, Template};

use crate::cursor::Cursor;
use crate::recognise::Words;
use crate::tokens::{byte_at, statements, tokenise};

/// Bytes that PostgreSQL keeps of a name.
pub const POSTGRES_NAME_BYTES: usize = 63;
/// Longest name of MySQL's, in characters, which are bytes here.
const MYSQL_NAME: usize = 64;
/// Escapes that the tokenizer reads as control characters, and MySQL as the letters.
const READ_OTHERWISE: [&str; 2] = ["\\a", "\\f"];
/// Words of MySQL statements that give names, or take them, in places that are not read here.
const RENAMING: [&str; 3] = ["PREPARE", "EXECUTE", "CALL"];

/// What a statement does with names; `S` stands for the statement behind one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Naming<S> {
    /// A statement gets a name.
    Prepare {
        /// The name.
        name: String,
        /// `None` when the text does not have it, as in MySQL's `FROM @variable`.
        statement: Option<S>,
    },
    /// The statement of this name runs.
    Execute {
        /// The name.
        name: String,
    },
    /// MariaDB's `EXECUTE IMMEDIATE`.
    Immediate {
        /// What runs.
        statement: S,
    },
    /// A name is given up.
    Forget {
        /// The name.
        name: String,
    },
    /// All names are given up.
    ForgetAll,
}

/// Whether [`Naming::parse`] may give something. It looks at the first words only, and may err towards yes.
pub fn may_name(text: &[u8]) -> bool {
    // The first letter decides for most statements.
    let first = text.first().map_or(0, u8::to_ascii_lowercase);
    if first.is_ascii_lowercase() && !matches!(first, b'p' | b'e' | b'd') {
        return false;
    }
    let mut words = Words::of(text);
    let is = |word: Option<&[u8]>, wanted: &[u8]| word.is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    let word = words.next();
    is(word, b"EXECUTE")
        || is(word, b"PREPARE")
        || is(word, b"DEALLOCATE")
        || (is(word, b"DROP") && is(words.next(), b"PREPARE"))
        || words.is_nested()
}

/// Whether a statement of MySQL's of this template may give names or take them away where [`Naming::parse`] does not
/// see it: in a procedure, in a compound statement, or as one of several.
pub fn may_rename(template: &str) -> bool {
    // The part cut off may hold anything; the cut is between characters.
    template.len() + char::MAX.len_utf8() > Template::MAX_TEXT
        || template
            .split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
            .any(|word| RENAMING.iter().any(|renaming| word.eq_ignore_ascii_case(renaming)))
}

impl Naming<String> {
    /// Reads `text`, which is whole; `escapes` is whether a backslash escapes in MySQL's strings, where its mode
    /// `NO_BACKSLASH_ESCAPES` is not set. `None` when it is one statement about other things, or more than one.
    pub fn parse(text: &[u8], dialect: SqlDialect, escapes: bool) -> Option<Self> {
        if !may_name(text) {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        let is_mysql = dialect == SqlDialect::MySql;
        if is_mysql && is_ambiguous(text, escapes) {
            return None;
        }
        let tokens = tokenise(text, dialect).ok()?;
        let parts = statements(&tokens);
        let [only] = parts.as_slice() else { return None };
        let words = &mut Cursor::new(text, only, dialect);
        if is_mysql { mysql(words) } else { postgres(words) }
    }
}

impl<S> Naming<S> {
    /// The same about what `known` makes of the statement.
    pub fn map<T>(self, known: impl FnOnce(S) -> T) -> Naming<T> {
        match self {
            Self::Prepare { name, statement } => Naming::Prepare { name, statement: statement.map(known) },
            Self::Execute { name } => Naming::Execute { name },
            Self::Immediate { statement } => Naming::Immediate { statement: known(statement) },
            Self::Forget { name } => Naming::Forget { name },
            Self::ForgetAll => Naming::ForgetAll,
        }
    }
}

fn postgres(words: &mut Cursor<'_>) -> Option<Naming<String>> {
    if words.take(&["PREPARE"]) {
        let name = postgres_name(words)?;
        if words.peek() == Some(&Token::LParen) {
            skip_brackets(words)?;
        }
        if !words.take(&["AS"]) {
            return None;
        }
        let statement = behind(words)?.to_owned();
        return Some(Naming::Prepare { name, statement: Some(statement) });
    }
    if words.take(&["EXECUTE"]) {
        let name = postgres_name(words)?;
        let ends = matches!(words.peek(), None | Some(Token::LParen));
        return ends.then_some(Naming::Execute { name });
    }
    if !words.take(&["DEALLOCATE"]) {
        return None;
    }
    // A name may be `prepare`.
    if words.ahead(1).is_some() && !words.take(&["PREPARE"]) {
        return None;
    }
    if words.take(&["ALL"]) {
        return words.peek().is_none().then_some(Naming::ForgetAll);
    }
    let name = postgres_name(words)?;
    words.peek().is_none().then_some(Naming::Forget { name })
}

fn mysql(words: &mut Cursor<'_>) -> Option<Naming<String>> {
    if words.take(&["PREPARE"]) {
        let name = mysql_name(words)?;
        if !words.take(&["FROM"]) {
            return None;
        }
        // An expression, in MariaDB, may begin with a string.
        let statement = strings(words).filter(|_| words.peek().is_none());
        return Some(Naming::Prepare { name, statement });
    }
    if words.take(&["EXECUTE"]) {
        let ends = |words: &Cursor<'_>| words.peek().is_none() || words.sees("USING");
        let behind_immediate = words.ahead(1).is_some_and(|token| string(token).is_some());
        if behind_immediate && words.take(&["IMMEDIATE"]) {
            let statement = strings(words).filter(|_| ends(words))?;
            return Some(Naming::Immediate { statement });
        }
        let name = mysql_name(words)?;
        return ends(words).then_some(Naming::Execute { name });
    }
    if !(words.take(&["DEALLOCATE", "PREPARE"]) || words.take(&["DROP", "PREPARE"])) {
        return None;
    }
    let name = mysql_name(words)?;
    words.peek().is_none().then_some(Naming::Forget { name })
}

/// Whether MySQL may read the text in another way than the tokenizer does: code in comments holds for some versions
/// only.
fn is_ambiguous(text: &str, escapes: bool) -> bool {
    let escaped =
        text.contains('\\') && (!escapes || READ_OTHERWISE.iter().any(|letter| text.contains(letter)));
    escaped || text.contains("/*!") || text.contains("/*M!")
}

/// A name as PostgreSQL knows it: folded unless it is in quotes, and cut.
fn postgres_name(words: &mut Cursor<'_>) -> Option<String> {
    let Some(Token::Word(Word { value, quote_style, .. })) = words.peek() else { return None };
    let folded = if quote_style.is_some() { value.clone() } else { value.to_ascii_lowercase() };
    words.skip();
    let kept = folded.get(..folded.floor_char_boundary(POSTGRES_NAME_BYTES))?;
    (!kept.is_empty()).then(|| kept.to_owned())
}

/// A name as MySQL knows it, in lower case. `None` for a name that MySQL's collation may take for another.
fn mysql_name(words: &mut Cursor<'_>) -> Option<String> {
    let Some(Token::Word(Word { value, quote_style: None | Some('`'), .. })) = words.peek() else {
        return None;
    };
    words.skip();
    let plain = value.is_ascii() && !value.is_empty() && value.len() <= MYSQL_NAME && !value.ends_with(' ');
    plain.then(|| value.to_ascii_lowercase())
}

/// Goes past brackets and what is in them.
fn skip_brackets(words: &mut Cursor<'_>) -> Option<()> {
    let mut depth: usize = 0;
    loop {
        match words.peek()? {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        words.skip();
        if depth == 0 {
            return Some(());
        }
    }
}

/// The text from here to the end of the statement, with a hint that may come first.
fn behind<'t>(words: &Cursor<'t>) -> Option<&'t str> {
    words.peek()?;
    let start = byte_at(words.text(), words.last_place()?);
    let end = byte_at(words.text(), words.end_place()?);
    words.text().get(start..end).map(str::trim)
}

/// Strings in a row, which are one.
fn strings(words: &mut Cursor<'_>) -> Option<String> {
    let mut all = string(words.peek()?)?.to_owned();
    words.skip();
    while let Some(more) = words.peek().and_then(string) {
        all.push_str(more);
        words.skip();
    }
    Some(all)
}

fn string(token: &Token) -> Option<&str> {
    match token {
        Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
