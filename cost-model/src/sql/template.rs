//! A statement template: what a statement is when its literals are taken away.
//!
//! In: SQL text. Out: normalised text, a fingerprint that is the same in every process and version of the seed
//! (FNV-1a, 64 bits, of that text), the statement's kind, its tables, and the resource group named in a hint. Text
//! that does not parse has the scanner's tokens as its text, and mostly the kind `Unknown`.
//!
//! What bounds the work: the scanner reads [`MAX_SCAN_BYTES`](super::MAX_SCAN_BYTES) at most; more than
//! [`Template::MAX_PARSED_TOKENS`] tokens are not parsed, since the tree of `a + a + a ..` is as deep as it is long
//! and is walked recursively; brackets nested deeper than [`Template::MAX_NESTING`] are refused by the parser.
//! Either way the text is a template, with the kind `Unknown`.

use std::fmt::{self, Write as _};

use sqlparser::ast::Statement;
use sqlparser::parser::{Parser, ParserError};

use super::dialect::SqlDialect;
use super::kind::StatementKind;
use super::normalise::normalise;
use super::parser_tokens::parser_tokens;
use super::scan::scan;
use super::token_text::{TokenText, shown};

/// Identity of a template: equal wherever and whenever the same template is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

/// A statement without its literals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    fingerprint: Fingerprint,
    text: Box<str>,
    kind: StatementKind,
    tables: Box<[String]>,
    resource_group: Option<String>,
}

impl Template {
    /// Most tokens that are parsed, after lists are collapsed. A statement of this many columns or operators needs
    /// less than 1 MiB of stack, half of what a worker thread has.
    pub const MAX_PARSED_TOKENS: usize = 2_048;
    /// Deepest nesting that is parsed.
    pub const MAX_NESTING: usize = 50;
    /// Longest text kept, in bytes. The fingerprint is that of the whole.
    pub const MAX_TEXT: usize = 8_192;

    /// The template of `sql`, made from scratch; a `Fingerprinter` remembers it.
    pub fn new(dialect: SqlDialect, sql: impl AsRef<[u8]>) -> Self {
        let tokens = scan(sql.as_ref(), dialect.rules(), TokenText::of(sql.as_ref()));
        let count = tokens.tokens();
        let (token_text, resource_group) = tokens.finish();
        let parsed =
            if count <= Self::MAX_PARSED_TOKENS { parse(dialect, &token_text, count).ok() } else { None };
        let (text, kind, tables) = match parsed {
            Some(mut statements) => {
                let kind = StatementKind::of(&statements);
                let tables = normalise(&mut statements);
                (printed(&statements, token_text), kind, tables)
            }
            None => {
                let kind = StatementKind::of_words(dialect, &token_text);
                (shown(token_text), kind, Vec::new())
            }
        };
        Self {
            fingerprint: Fingerprint::of(&text),
            text: cut(&text).into(),
            kind,
            tables: tables.into_boxed_slice(),
            resource_group,
        }
    }

    /// The identity.
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The normalised text, cut at [`Self::MAX_TEXT`].
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The sort of statement.
    pub const fn kind(&self) -> StatementKind {
        self.kind
    }

    /// The tables read or written, in the order of appearance, at most 32. Empty when the text did not parse.
    pub fn tables(&self) -> &[String] {
        &self.tables
    }

    /// The group in a `/*+ RESOURCE_GROUP(name) */` hint, in lower case. The user of the template decides whether the
    /// caller may choose its group.
    pub fn resource_group(&self) -> Option<&str> {
        self.resource_group.as_deref()
    }
}

fn parse(dialect: SqlDialect, text: &str, count: usize) -> Result<Vec<Statement>, ParserError> {
    Parser::new(dialect.parser())
        .with_recursion_limit(Template::MAX_NESTING)
        .with_tokens_with_locations(parser_tokens(dialect.parser(), text, count)?)
        .parse_statements()
}

/// Prints into `text`, of which only the room counts.
fn printed(statements: &[Statement], mut text: String) -> String {
    text.clear();
    for (place, statement) in statements.iter().enumerate() {
        let between = if place == 0 { "" } else { "; " };
        // Writing to a `String` does not fail.
        let _ = write!(text, "{between}{statement}");
    }
    // The printer writes `- -a` as `--a`, which reads back as a comment. Inside quotes it is a name.
    let apart = text.contains("--") && !text.contains(['"', '`', '[']);
    shown(if apart { text.replace("--", "- -").replace("--", "- -") } else { text })
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(Template::MAX_TEXT)).unwrap_or(text)
}

impl Fingerprint {
    /// FNV-1a of `text`, 64 bits.
    pub fn of(text: impl AsRef<[u8]>) -> Self {
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        Self(text.as_ref().iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)))
    }
}

impl fmt::Display for Fingerprint {
    /// Sixteen hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
