//! The lexical rules of the SQL dialects: what ends a string, what starts a comment, what is a placeholder.
//!
//! In: a dialect. Out: a table of byte classes and a set of switches for the scanner, and the parser's dialect.
//! *Source*: the lexical chapters of the PostgreSQL 17, MySQL 8.4 and SQLite manuals. Server settings that change
//! them (`ANSI_QUOTES`, `NO_BACKSLASH_ESCAPES`, `standard_conforming_strings = off`) are taken at their defaults.

use sqlparser::dialect as parser;

/// The SQL that a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SqlDialect {
    /// Standard strings and identifiers, and every kind of placeholder: for an unknown server.
    #[default]
    Generic,
    /// MySQL, MariaDB and TiDB.
    MySql,
    /// PostgreSQL.
    PostgreSql,
    /// SQLite.
    SQLite,
}

/// What a byte can be.
pub(super) mod class {
    /// White space.
    pub(crate) const SPACE: u8 = 1;
    /// First byte of an unquoted word.
    pub(crate) const WORD_START: u8 = 2;
    /// Further byte of an unquoted word.
    pub(crate) const WORD: u8 = 4;
    /// Decimal digit.
    pub(crate) const DIGIT: u8 = 8;
    /// Part of an operator, which may be several bytes long.
    pub(crate) const OPERATOR: u8 = 16;
}

/// How a dialect is cut into tokens.
pub(super) struct Rules {
    /// [`class`] bits per byte.
    classes: [u8; 256],
    /// A backslash escapes in `'..'` (and in `".."` where that is a string).
    pub(super) backslash: bool,
    /// `E'..'`, in which a backslash escapes, and `U&'..'`.
    pub(super) escape_prefix: bool,
    /// The server is not known: `Q'[..]'` of Oracle and `R'..'` of BigQuery may be strings, `@a` and `#a` names.
    pub(super) any_server: bool,
    /// `$tag$..$tag$`.
    pub(super) dollar_quotes: bool,
    /// `".."` is a string and not an identifier.
    pub(super) double_quoted_strings: bool,
    /// `` `..` `` is an identifier.
    pub(super) backtick_identifiers: bool,
    /// `[..]` is an identifier.
    pub(super) bracket_identifiers: bool,
    /// A block comment may hold another.
    pub(super) nested_comments: bool,
    /// `--` is a comment only before white space.
    pub(super) dashes_need_space: bool,
    /// A carriage return ends a line comment, as a line feed does.
    pub(super) returns_end_lines: bool,
    /// `#-` is one operator, which removes what a path leads to.
    pub(super) path_operators: bool,
    /// `#` starts a comment.
    pub(super) hash_comments: bool,
    /// `/*! .. */` is code.
    pub(super) executable_comments: bool,
    /// `?` and `?1` are placeholders.
    pub(super) question_placeholders: bool,
    /// `:name` is a placeholder.
    pub(super) colon_placeholders: bool,
    /// `@name` is a placeholder.
    pub(super) at_placeholders: bool,
}

impl Rules {
    pub(super) fn class(&self, byte: u8) -> u8 {
        self.classes.get(usize::from(byte)).copied().unwrap_or(0)
    }
}

impl SqlDialect {
    pub(super) fn rules(self) -> &'static Rules {
        static GENERIC: Rules = Rules {
            classes: classes(b"", b"+-*/<>=~!%^&|:#@"),
            backslash: false,
            escape_prefix: true,
            any_server: true,
            dollar_quotes: true,
            double_quoted_strings: false,
            backtick_identifiers: true,
            bracket_identifiers: false,
            nested_comments: true,
            dashes_need_space: false,
            returns_end_lines: false,
            path_operators: false,
            hash_comments: false,
            executable_comments: false,
            question_placeholders: true,
            colon_placeholders: true,
            at_placeholders: false,
        };
        static MYSQL: Rules = Rules {
            classes: classes(b"$@", b"+-*/<>=~!%^&|:"),
            backslash: true,
            escape_prefix: false,
            any_server: false,
            dollar_quotes: false,
            double_quoted_strings: true,
            nested_comments: false,
            dashes_need_space: true,
            hash_comments: true,
            executable_comments: true,
            colon_placeholders: false,
            ..GENERIC
        };
        static POSTGRESQL: Rules = Rules {
            classes: classes(b"", b"+-*/<>=~!%^&|:#@?`"),
            any_server: false,
            returns_end_lines: true,
            path_operators: true,
            backtick_identifiers: false,
            question_placeholders: false,
            colon_placeholders: false,
            ..GENERIC
        };
        static SQLITE: Rules = Rules {
            classes: classes(b"", b"+-*/<>=~!%^&|:"),
            escape_prefix: false,
            any_server: false,
            dollar_quotes: false,
            bracket_identifiers: true,
            nested_comments: false,
            at_placeholders: true,
            ..GENERIC
        };
        match self {
            Self::Generic => &GENERIC,
            Self::MySql => &MYSQL,
            Self::PostgreSql => &POSTGRESQL,
            Self::SQLite => &SQLITE,
        }
    }

    pub(super) fn parser(self) -> &'static dyn parser::Dialect {
        match self {
            Self::Generic => &parser::GenericDialect {},
            Self::MySql => &parser::MySqlDialect {},
            Self::PostgreSql => &parser::PostgreSqlDialect {},
            Self::SQLite => &parser::SQLiteDialect {},
        }
    }
}

/// Byte classes: letters, `_` and everything that is not ASCII make words in all dialects.
const fn classes(word_starts: &[u8], operators: &[u8]) -> [u8; 256] {
    let mut table = [0; 256];
    let mut rest: &mut [u8] = &mut table;
    let mut byte: u8 = 0;
    while let [slot, tail @ ..] = rest {
        let letter = byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80;
        *slot = if letter || contains(word_starts, byte) {
            class::WORD_START | class::WORD
        } else if byte.is_ascii_digit() {
            class::DIGIT | class::WORD
        } else if byte == b'$' {
            class::WORD
        } else if byte == b' ' || (byte >= b'\t' && byte <= b'\r') || byte == 0 {
            class::SPACE
        } else if contains(operators, byte) {
            class::OPERATOR
        } else {
            0
        };
        rest = tail;
        byte = byte.wrapping_add(1);
    }
    table
}

const fn contains(mut bytes: &[u8], wanted: u8) -> bool {
    while let [first, rest @ ..] = bytes {
        if *first == wanted {
            return true;
        }
        bytes = rest;
    }
    false
}
