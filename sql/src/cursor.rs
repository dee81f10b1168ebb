//! A place among the tokens of one statement, and the small things that are read there: words, names, numbers, strings.
//! A missing part is an error that names the place and what should be there.

use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Word};
use tidegate_cost_model::SqlDialect;

use crate::error::{SqlError, cut};
use crate::tokens::{byte_at, is_code, syntax};

/// Reads one statement.
#[derive(Clone)]
pub(crate) struct Cursor<'t> {
    text: &'t str,
    tokens: Vec<&'t TokenWithSpan>,
    at: usize,
    pub(crate) dialect: SqlDialect,
}

impl<'t> Cursor<'t> {
    /// The beginning of the statement `tokens` of `text`.
    pub(crate) fn new(text: &'t str, tokens: &'t [TokenWithSpan], dialect: SqlDialect) -> Self {
        Self { text, tokens: tokens.iter().filter(|token| is_code(token)).collect(), at: 0, dialect }
    }

    /// The token here.
    pub(crate) fn peek(&self) -> Option<&'t Token> {
        self.ahead(0)
    }

    /// The token `distance` behind the one here.
    pub(crate) fn ahead(&self, distance: usize) -> Option<&'t Token> {
        self.tokens.get(self.at + distance).map(|token| &token.token)
    }

    /// The tokens from here on.
    pub(crate) fn rest(&self) -> impl Iterator<Item = &'t Token> + use<'_, 't> {
        self.tokens.get(self.at..).unwrap_or_default().iter().map(|token| &token.token)
    }

    /// All tokens of the statement.
    pub(crate) fn tokens(&self) -> &[&'t TokenWithSpan] {
        &self.tokens
    }

    /// Where the token here begins.
    pub(crate) fn place(&self) -> Option<Location> {
        self.tokens.get(self.at).map(|token| token.span.start)
    }

    /// Where the token before this one ends.
    pub(crate) fn last_place(&self) -> Option<Location> {
        self.tokens.get(self.at.checked_sub(1)?).map(|token| token.span.end)
    }

    /// Where the statement ends.
    pub(crate) fn end_place(&self) -> Option<Location> {
        self.tokens.last().map(|token| token.span.end)
    }

    /// The whole text.
    pub(crate) fn text(&self) -> &'t str {
        self.text
    }

    /// Goes past one token.
    pub(crate) fn skip(&mut self) {
        self.at += 1;
    }

    /// Whether the word here is `keyword`, without quotes and in whatever case.
    pub(crate) fn sees(&self, keyword: &str) -> bool {
        self.peek().is_some_and(|token| is_keyword(token, keyword))
    }

    /// Whether these words are here.
    pub(crate) fn sees_all(&self, keywords: &[&str]) -> bool {
        let mut here = self.rest();
        keywords.iter().all(|keyword| here.next().is_some_and(|token| is_keyword(token, keyword)))
    }

    /// Goes past these words if they are all here.
    pub(crate) fn take(&mut self, keywords: &[&str]) -> bool {
        let here = self.sees_all(keywords);
        if here {
            self.at += keywords.len();
        }
        here
    }

    /// Goes past these words.
    pub(crate) fn expect(&mut self, keywords: &[&str]) -> Result<(), SqlError> {
        for keyword in keywords {
            if !self.take(&[*keyword]) {
                return Err(self.expected(keyword));
            }
        }
        Ok(())
    }

    /// Goes past the token if it is here.
    pub(crate) fn take_token(&mut self, token: &Token) -> bool {
        let here = self.peek() == Some(token);
        if here {
            self.skip();
        }
        here
    }

    /// Goes past one of these words and gives what stands beside it.
    pub(crate) fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Result<T, SqlError> {
        for (keyword, value) in choices {
            if self.take(&[*keyword]) {
                return Ok(*value);
            }
        }
        let words: Vec<&str> = choices.iter().map(|(keyword, _)| *keyword).collect();
        Err(self.expected(&listed(&words)))
    }

    /// The end of the statement.
    pub(crate) fn end(&self) -> Result<(), SqlError> {
        if self.peek().is_none() { Ok(()) } else { Err(self.expected("the end of the statement")) }
    }

    /// The name of a group, a user or a database: a word, or anything in quotes.
    ///
    /// PostgreSQL has no backticks, but TiDB's manual does, so they are read for words there.
    pub(crate) fn name(&mut self, what: &str) -> Result<Name, SqlError> {
        let tick = Token::Char('`');
        if self.peek() == Some(&tick)
            && self.ahead(2) == Some(&tick)
            && let Some(Token::Word(Word { value, quote_style: None, .. })) = self.ahead(1)
        {
            self.at += 3;
            return Ok(Name { text: value.clone(), quoted: true });
        }
        let name = match self.peek() {
            Some(Token::Word(word)) => Name { text: word.value.clone(), quoted: word.quote_style.is_some() },
            Some(Token::DoubleQuotedString(text)) => Name { text: text.clone(), quoted: true },
            _ => return Err(self.expected(what)),
        };
        if name.text.is_empty() {
            return Err(self.expected(&format!("{what} of at least one character")));
        }
        self.skip();
        if !name.quoted && matches!(self.peek(), Some(Token::Minus | Token::Period)) {
            let quote = if self.dialect == SqlDialect::MySql { '`' } else { '"' };
            return Err(self.expected(&format!(
                "no such character in a name without quotes; write {quote}{}…{quote}",
                name.text
            )));
        }
        Ok(name)
    }

    /// The name of a group, in lower case.
    pub(crate) fn group(&mut self) -> Result<String, SqlError> {
        self.refuse_variable()?;
        Ok(self.name("the name of a resource group")?.text.to_ascii_lowercase())
    }

    /// The name of a group; an empty one in quotes is `default`, the group of everyone without a binding.
    pub(crate) fn group_or_default(&mut self) -> Result<String, SqlError> {
        let empty = match (self.peek(), self.ahead(1)) {
            (Some(Token::Word(Word { value, quote_style: Some(_), .. })), _) => value.is_empty().then_some(1),
            (Some(Token::DoubleQuotedString(text) | Token::SingleQuotedString(text)), _) => {
                text.is_empty().then_some(1)
            }
            // PostgreSQL has no backticks.
            (Some(Token::Char('`')), Some(Token::Char('`'))) => Some(2),
            _ => None,
        };
        let Some(tokens) = empty else { return self.group() };
        self.at += tokens;
        Ok("default".to_owned())
    }

    /// Variables have their values in the database, where tidegate does not look.
    pub(crate) fn refuse_variable(&self) -> Result<(), SqlError> {
        let name = match (self.peek(), self.ahead(1)) {
            (Some(Token::Word(Word { value, quote_style: None, .. })), _) if value.starts_with('@') => value,
            (Some(Token::AtSign), Some(Token::Word(Word { value, .. }))) => value,
            _ => return Ok(()),
        };
        let what = format!("the variable {}", cut(name));
        Err(SqlError::unsupported(what, "write its value into the statement"))
    }

    /// Hexadecimal digits, in quotes or, as TiDB takes them, without.
    pub(crate) fn digits(&mut self, what: &str) -> Result<&'t str, SqlError> {
        self.refuse_variable()?;
        let bare = match self.peek() {
            Some(Token::Word(Word { quote_style: None, .. }) | Token::Number(..)) => self.place(),
            Some(Token::Word(Word { value, quote_style: Some(_), .. })) => {
                self.skip();
                return Ok(value);
            }
            _ => None,
        };
        let Some(start) = bare else { return self.string(what) };
        // A name that begins with a digit is more than one token: 12e4, or a number and a word.
        let rest = self.text.get(byte_at(self.text, start)..).unwrap_or_default();
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let digits = rest.get(..length).unwrap_or_default();
        let end = byte_at(self.text, start) + length;
        while self.place().is_some_and(|place| byte_at(self.text, place) < end) {
            self.skip();
        }
        Ok(digits)
    }

    /// A string, in whatever quotes the dialect has for one. Double quotes are taken as well, since TiDB prints them.
    pub(crate) fn string(&mut self, what: &str) -> Result<&'t str, SqlError> {
        let text = match self.peek() {
            Some(
                Token::SingleQuotedString(text)
                | Token::DoubleQuotedString(text)
                | Token::EscapedStringLiteral(text)
                | Token::NationalStringLiteral(text),
            ) => text,
            Some(Token::DollarQuotedString(text)) => &text.value,
            Some(Token::Word(Word { value, quote_style: Some('"'), .. })) => value,
            _ => return Err(self.expected(what)),
        };
        self.skip();
        Ok(text)
    }

    /// A positive decimal, exact to a millionth, as written.
    pub(crate) fn decimal(&mut self, what: &str) -> Result<String, SqlError> {
        let Some(Token::Number(digits, false)) = self.peek() else { return Err(self.expected(what)) };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !plain(whole) || !plain(part) || part.is_empty() {
            return Err(self.expected(&format!("{what}, as plain digits")));
        }
        if part.trim_end_matches('0').len() > 6 {
            return Err(self.expected(&format!("{what} with at most 6 digits behind the point")));
        }
        let number = if whole.is_empty() { format!("0.{part}") } else { digits.clone() };
        self.skip();
        Ok(number)
    }

    /// A whole number.
    pub(crate) fn integer<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, SqlError> {
        let number = match self.peek() {
            Some(Token::Number(digits, false)) => digits.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.expected(what))?;
        self.skip();
        Ok(number)
    }

    /// An error here.
    pub(crate) fn expected(&self, what: &str) -> SqlError {
        self.error_at(self.at, &format!("expected {what}"))
    }

    /// An error here, in other words.
    pub(crate) fn error(&self, message: &str) -> SqlError {
        self.error_at(self.at, message)
    }

    /// An error at the token before this one.
    pub(crate) fn error_before(&self, message: &str) -> SqlError {
        self.error_at(self.at.saturating_sub(1), message)
    }

    fn error_at(&self, index: usize, message: &str) -> SqlError {
        match (self.tokens.get(index), self.tokens.last()) {
            (Some(token), _) => syntax(self.text, token.span.start, &token.token.to_string(), message),
            (None, Some(last)) => syntax(self.text, last.span.end, "", message),
            (None, None) => syntax(self.text, Location { line: 1, column: 1 }, "", message),
        }
    }
}

/// A name as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) quoted: bool,
}

impl Name {
    /// The name as the database's own statements would take it: PostgreSQL folds what is not quoted.
    pub(crate) fn folded(self, dialect: SqlDialect) -> String {
        if dialect == SqlDialect::PostgreSql && !self.quoted { self.text.to_lowercase() } else { self.text }
    }
}

pub(crate) fn is_keyword(token: &Token, keyword: &str) -> bool {
    matches!(token, Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case(keyword))
}

/// Words with commas and an "or".
pub(crate) fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [head @ .., last] => format!("{} or {last}", head.join(", ")),
    }
}
