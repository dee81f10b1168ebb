//! SQL fingerprints: any bytes get a template, in bounded size; no literal survives in it; layout does not count; a
//! template is its own template; and the cache never gives another template than the parser.
//!
//! An input is a byte for the dialect and texts with 0xff between them. The tokenizer of the SQL parser, which shares
//! no code with the scanner under test, decides what a literal is.

use sqlparser::dialect as parser;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};
use tidegate_cost_model::{Fingerprint, Fingerprinter, SqlDialect, StatementKind, Template};

const DIALECTS: [SqlDialect; 4] =
    [SqlDialect::Generic, SqlDialect::MySql, SqlDialect::PostgreSql, SqlDialect::SQLite];

/// Most tables and longest group name of a template.
const MOST_TABLES: usize = 32;
const LONGEST_GROUP: usize = 128;

/// Characters of a part of a literal that is looked for.
const TELLING: usize = 5;

/// The scanner's stand-in for a number while the text is parsed: a name that holds it comes out changed.
const STAND_IN: &[u8] = b"8888888888888888888";

/// Runs one input.
pub(super) fn run(bytes: &[u8]) {
    let Some((first, texts)) = bytes.split_first() else { return };
    let Some(dialect) = DIALECTS.get(usize::from(*first) % DIALECTS.len()).copied() else { return };
    let fingerprinter = Fingerprinter::with_capacity(dialect, 64);
    if texts.windows(STAND_IN.len()).any(|window| window == STAND_IN) {
        return;
    }
    for text in texts.split(|byte| *byte == 0xff) {
        let template = Template::new(dialect, text);
        bounded(&template);
        for _ in 0..2 {
            assert_eq!(*fingerprinter.fingerprint(text), template, "the cache changes nothing");
        }
        let spaced = [b"\n /* note */ -- note\n".as_slice(), text].concat();
        assert_eq!(
            Template::new(dialect, &spaced),
            template,
            "what stands before a statement does not count"
        );
        if let Ok(text) = std::str::from_utf8(text) {
            no_literal_survives(dialect, text, &template);
        }
        idempotent(dialect, text, &template);
    }
}

fn bounded(template: &Template) {
    assert!(template.text().len() <= Template::MAX_TEXT, "{} bytes", template.text().len());
    assert!(template.tables().len() <= MOST_TABLES, "{} tables", template.tables().len());
    if let Some(group) = template.resource_group() {
        assert!(!group.is_empty() && group.len() <= LONGEST_GROUP, "{group:?}");
        assert_eq!(group, group.to_ascii_lowercase());
    }
    if template.text().len() < Template::MAX_TEXT - 4 {
        assert_eq!(
            template.fingerprint(),
            Fingerprint::of(template.text()),
            "the identity is that of the text"
        );
    }
}

/// A template that parsed and consists of the usual characters is its own template. Of others (quoted names, paths into
/// JSON) not all that the parser prints reads back as the same; and `?` is no value but an operator in PostgreSQL.
fn idempotent(dialect: SqlDialect, sql: &[u8], template: &Template) {
    let text = template.text();
    let parsed = template.kind() != StatementKind::Unknown && text.len() < Template::MAX_TEXT - 4;
    let usual = |c: char| c.is_ascii_alphanumeric() || " _.,()?=<>*+-/".contains(c);
    if parsed && dialect != SqlDialect::PostgreSql && text.chars().all(usual) {
        let again = Template::new(dialect, text);
        assert!(again.text() == text || !reads_back(dialect, sql), "{text:?} becomes {:?}", again.text());
    }
}

/// Whether the parser understands what it prints of a statement; of nonsense that it lets pass it does not always.
fn reads_back(dialect: SqlDialect, sql: &[u8]) -> bool {
    let parse = |text: &str| Parser::parse_sql(rules(dialect), text).ok();
    let text = String::from_utf8_lossy(sql);
    let printed =
        parse(&text).map(|statements| statements.iter().map(ToString::to_string).collect::<Vec<_>>());
    printed.is_some_and(|printed| parse(&printed.join("; ")).is_some())
}

fn rules(dialect: SqlDialect) -> &'static dyn parser::Dialect {
    match dialect {
        SqlDialect::Generic => &parser::GenericDialect {},
        SqlDialect::MySql => &parser::MySqlDialect {},
        SqlDialect::PostgreSql => &parser::PostgreSqlDialect {},
        SqlDialect::SQLite => &parser::SQLiteDialect {},
    }
}

fn no_literal_survives(dialect: SqlDialect, text: &str, template: &Template) {
    let Ok(tokens) = Tokenizer::new(rules(dialect), text).tokenize() else { return };
    // White space beyond ASCII is part of a word, but for the tokenizer.
    let spaced = text.chars().any(|c| !c.is_ascii() && c.is_whitespace());
    if spaced || tokens.iter().any(misread) || goes_on_escaped(&tokens) {
        return;
    }
    let others: Vec<String> = tokens
        .iter()
        .filter(|token| value(token).is_none())
        .map(|token| token.to_string().to_ascii_lowercase())
        .collect();
    let shown = template.text().to_ascii_lowercase();
    let befores = std::iter::once(None).chain(tokens.iter().map(Some));
    // In MySQL a number right behind `@` is the name of a variable, also where the tokenizer reads `<@`.
    let at = |before: Option<&Token>| before.is_some_and(|before| before.to_string().ends_with('@'));
    let named = |before| dialect == SqlDialect::MySql && at(before);
    let literals =
        befores.zip(&tokens).filter(|(before, _)| !named(*before)).filter_map(|(_, token)| value(token));
    for literal in literals.map(str::to_ascii_lowercase) {
        for secret in literal.split(|c: char| !c.is_ascii_alphanumeric()).filter(|run| telling(run)) {
            let elsewhere = others.iter().any(|other| other.contains(secret));
            assert!(elsewhere || !shown.contains(secret), "{secret:?} of {literal:?} survives in {shown:?}");
        }
    }
}

/// What the tokenizer reads as no server does: a backslash in a blob as an escape, a quote as part of a bare word, a
/// character beyond ASCII as none of a word. And it loses the character behind `&>`.
fn misread(token: &Token) -> bool {
    match token {
        Token::HexStringLiteral(value) => value.contains(['\\', '\'']),
        Token::Word(word) => word.quote_style.is_none() && word.value.contains(['`', '"', '\'']),
        Token::Char(other) => !other.is_ascii(),
        Token::AmpersandRightAngleBracket => true,
        _ => false,
    }
}

/// Whether a string goes on an `E'..'`, in which a backslash goes on to escape. The tokenizer reads it by itself.
fn goes_on_escaped(tokens: &[Token]) -> bool {
    let others: Vec<_> = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    others
        .windows(2)
        .any(|pair| matches!(pair, [Token::EscapedStringLiteral(_), Token::SingleQuotedString(_)]))
}

/// Words without a digit, and short ones, turn up elsewhere by chance.
fn telling(run: &str) -> bool {
    run.len() >= TELLING && run.bytes().any(|byte| byte.is_ascii_digit())
}

/// The value of a literal.
fn value(token: &Token) -> Option<&str> {
    match token {
        Token::Number(value, _)
        | Token::SingleQuotedString(value)
        | Token::NationalStringLiteral(value)
        | Token::EscapedStringLiteral(value)
        | Token::UnicodeStringLiteral(value)
        | Token::HexStringLiteral(value) => Some(value),
        Token::DollarQuotedString(quoted) => Some(&quoted.value),
        Token::QuoteDelimitedStringLiteral(quoted) | Token::NationalQuoteDelimitedStringLiteral(quoted) => {
            Some(&quoted.value)
        }
        _ => None,
    }
}
