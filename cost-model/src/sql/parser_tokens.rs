//! The parser's tokens of a statement's text.
//!
//! In: the text that `token_text` wrote. Out: the tokens that the parser's own tokenizer makes of it, without places.
//! Nearly every text is plain: words, quoted names, stand-ins and the usual symbols, each followed by what ends it in
//! all dialects. This module cuts those, in less than a third of the tokenizer's instructions. It leaves out the spaces
//! between them: a space matters to the parser only after `:` and `@`, which no plain text has. The tokenizer cuts the
//! other texts.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use sqlparser::dialect::Dialect;
use sqlparser::keywords::{ALL_KEYWORDS, ALL_KEYWORDS_INDEX, Keyword};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, TokenizerError, Word};

use super::token_text::{NUMBER, STRING};

/// The parser's keywords in lower case. Its own search in a sorted list would be a fifteenth of a template's time.
static KEYWORDS: LazyLock<HashMap<String, Keyword, RandomState>> = LazyLock::new(|| {
    let names = ALL_KEYWORDS.iter().map(|name| name.to_ascii_lowercase());
    names.zip(ALL_KEYWORDS_INDEX.iter().copied()).collect()
});

/// Symbols of a plain text, the frequent ones first, a longer one before its beginning.
static SYMBOLS: [(&str, Token); 19] = [
    (",", Token::Comma),
    ("=", Token::Eq),
    (")", Token::RParen),
    ("(", Token::LParen),
    (".", Token::Period),
    ("*", Token::Mul),
    ("+", Token::Plus),
    ("-", Token::Minus),
    ("<=", Token::LtEq),
    ("<>", Token::Neq),
    ("<", Token::Lt),
    (">=", Token::GtEq),
    (">", Token::Gt),
    ("!=", Token::Neq),
    ("::", Token::DoubleColon),
    ("||", Token::StringConcat),
    ("/", Token::Div),
    ("%", Token::Mod),
    (";", Token::SemiColon),
];

/// The tokens of `text`, of which the scanner counted `count`.
pub(super) fn parser_tokens(
    dialect: &dyn Dialect,
    text: &str,
    count: usize,
) -> Result<Vec<TokenWithSpan>, TokenizerError> {
    if let Some(tokens) = plain(dialect, text, count) {
        return Ok(tokens);
    }
    // Places appear in errors only, which the parser makes and drops for each reading that it gives up.
    let placeless = |token: TokenWithSpan| TokenWithSpan::wrap(token.token);
    let mut tokens = Vec::with_capacity(count);
    Tokenizer::new(dialect, text).tokenize_with_location_into_buf_with_mapper(&mut tokens, placeless)?;
    Ok(tokens)
}

/// The tokens of `text` if it is plain.
fn plain(dialect: &dyn Dialect, text: &str, count: usize) -> Option<Vec<TokenWithSpan>> {
    let mut tokens = Vec::with_capacity(count);
    let mut rest = text.trim_start_matches(' ');
    while let Some(first) = rest.bytes().next() {
        let (token, length) = match first {
            b'a'..=b'z' | b'_' => word(rest)?,
            b'8' if rest.starts_with(NUMBER) => (Token::Number(NUMBER.to_owned(), false), NUMBER.len()),
            b'\'' if rest.starts_with(STRING) => (Token::SingleQuotedString("?".to_owned()), STRING.len()),
            b'"' | b'`' => quoted_name(dialect, rest, char::from(first))?,
            _ => symbol(rest)?,
        };
        rest = rest.get(length..)?;
        let next = rest.bytes().next();
        let ends = match token {
            Token::LParen | Token::DoubleColon => true,
            Token::Period => matches!(next, Some(b'a'..=b'z' | b'"' | b'`' | b'*')),
            Token::Word(_) if next == Some(b'.') => true,
            _ => matches!(next, None | Some(b' ' | b',' | b')' | b';' | b':')),
        };
        if !ends {
            return None;
        }
        tokens.push(TokenWithSpan::wrap(token));
        rest = rest.trim_start_matches(' ');
    }
    Some(tokens)
}

fn word(text: &str) -> Option<(Token, usize)> {
    let length = text.bytes().take_while(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_')).count();
    let value = text.get(..length)?;
    let keyword = KEYWORDS.get(value).copied().unwrap_or(Keyword::NoKeyword);
    Some((Token::Word(Word { value: value.to_owned(), quote_style: None, keyword }), length))
}

/// An identifier in quotes, without a quote in it.
fn quoted_name(dialect: &dyn Dialect, text: &str, quote: char) -> Option<(Token, usize)> {
    let (name, _) = text.strip_prefix(quote)?.split_once(quote)?;
    let token = || Token::make_word(name, Some(quote));
    dialect.is_delimited_identifier_start(quote).then(|| (token(), name.len() + 2))
}

fn symbol(text: &str) -> Option<(Token, usize)> {
    let (symbol, token) = SYMBOLS.iter().find(|(symbol, _)| text.starts_with(symbol))?;
    Some((token.clone(), symbol.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sql::SqlDialect;
    use crate::sql::scan::scan;
    use crate::sql::token_text::TokenText;

    const DIALECTS: [SqlDialect; 4] =
        [SqlDialect::Generic, SqlDialect::MySql, SqlDialect::PostgreSql, SqlDialect::SQLite];

    fn text_of(dialect: SqlDialect, sql: &str) -> (String, usize) {
        let tokens = scan(sql.as_bytes(), dialect.rules(), TokenText::of(sql.as_bytes()));
        let count = tokens.tokens();
        (tokens.finish().0, count)
    }

    fn without_space(tokens: Vec<Token>) -> Vec<Token> {
        tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect()
    }

    proptest! {
        #[test]
        fn tokens_are_those_of_the_tokenizer(
            pieces in prop::collection::vec(
                prop_oneof![
                    "[a-zé_][a-z0-9_$]{0,6}",
                    "[bBeEnNqQrRuUxX]",
                    "[0-9]{1,3}|1[.]5|[.]5|1e5|0x1f|8888888888888888888",
                    "'[a-z?']{0,3}'|'|''|[?]|[$]1|:a|@a|@@a|null|stdin",
                    "\"[a-z ]{0,3}\"|`[a-z\"]{0,3}`|\\[[a-z]{0,3}\\]|\"a\"\"b\"|\"|`",
                    "[-+*/<>=~!%^&|:#@?.,;(){}\\\\]{1,3}",
                    " |\n|\u{a0}",
                ],
                0..12,
            ),
            spaced in any::<bool>(),
        ) {
            let sql = pieces.join(if spaced { " " } else { "" });
            for dialect in DIALECTS {
                let (text, count) = text_of(dialect, &sql);
                let ours = parser_tokens(dialect.parser(), &text, count);
                let ours = ours.map(|tokens| without_space(tokens.into_iter().map(|token| token.token).collect()));
                let theirs = Tokenizer::new(dialect.parser(), &text).tokenize().map(without_space);
                prop_assert_eq!(ours, theirs, "{:?} {:?}", dialect, text);
            }
        }
    }

    #[test]
    fn a_keyword_is_what_the_parser_takes_it_for() {
        for name in ALL_KEYWORDS {
            let name = name.to_ascii_lowercase();
            let keyword = KEYWORDS.get(&name).copied().expect("it is in the list");
            assert_eq!(
                Token::make_word(&name, None),
                Token::Word(Word { value: name, quote_style: None, keyword })
            );
        }
    }

    #[test]
    fn usual_statements_are_plain() {
        for sql in [
            "SELECT count(*), t.a AS b FROM s.t WHERE a <= -1 AND b <> 'x' OR c IN (1, 2) GROUP BY a ORDER BY 1 DESC;",
            "INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'y'); UPDATE t SET a = a + 1 WHERE b >= 2 AND c != 3",
            "SELECT a || 'x', b * 2 / 3 % 4 - 5 FROM t WHERE c > 1 AND d < 2",
        ] {
            for dialect in DIALECTS {
                let (text, count) = text_of(dialect, sql);
                assert!(plain(dialect.parser(), &text, count).is_some(), "{dialect:?} {text}");
            }
        }
        let (text, count) = text_of(SqlDialect::PostgreSql, r#"SELECT "t"."a"::int FROM "t" WHERE "b" = $1"#);
        assert!(plain(SqlDialect::PostgreSql.parser(), &text, count).is_some(), "{text}");
        let (text, count) = text_of(SqlDialect::MySql, "SELECT `t`.`a` FROM `t` WHERE `b` = ?");
        assert!(plain(SqlDialect::MySql.parser(), &text, count).is_some(), "{text}");
    }
}
