//! The few words that change how the scanner reads what follows them.
//!
//! In: an unquoted word, any case. Out: what it means to the scanner. Words of at most eight bytes are compared as
//! one number.

use super::hash::head;

/// The meaning of a word to the scanner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    /// A word without meaning to the scanner.
    None,
    /// A sign after it belongs to the number that follows.
    Clause,
    /// `ON`: a clause, and the first word of `ON DUPLICATE KEY UPDATE`.
    On,
    /// The second one of these.
    Duplicate,
    /// A list of values may follow in `( )`.
    In,
    /// A list of values may follow in `[ ]`.
    Array,
    /// `VALUES`: rows may follow.
    Values,
    /// `VALUE`: MySQL's other name of `VALUES`, or a column's name.
    Value,
    /// `OFFSET`: a clause, or in MySQL and SQLite a column's name.
    Offset,
    /// `NULL`, `TRUE` or `FALSE`: a literal where a value stands.
    Constant,
}

/// What `word` is, when it is not part of a dotted name.
pub(super) fn keyword(word: &[u8]) -> Keyword {
    if word.len() > size_of::<u64>() {
        return if word.eq_ignore_ascii_case(b"returning") {
            Keyword::Clause
        } else if word.eq_ignore_ascii_case(b"duplicate") {
            Keyword::Duplicate
        } else {
            Keyword::None
        };
    }
    match head(word) {
        IN => Keyword::In,
        ON => Keyword::On,
        ARRAY => Keyword::Array,
        VALUES => Keyword::Values,
        VALUE => Keyword::Value,
        OFFSET => Keyword::Offset,
        NULL | TRUE | FALSE => Keyword::Constant,
        SELECT | WHERE | HAVING | AND | OR | NOT | BETWEEN | LIKE | IS | CASE | WHEN | THEN | ELSE | SET
        | LIMIT | BY | RETURN | DEFAULT | INTERVAL | DISTINCT | ALL => Keyword::Clause,
        _ => Keyword::None,
    }
}

macro_rules! heads {
    ($($name:ident $word:literal,)*) => { $(const $name: u64 = head($word);)* };
}
heads! {
    IN b"in", ARRAY b"array", VALUES b"values", VALUE b"value", NULL b"null", TRUE b"true", FALSE b"false",
    SELECT b"select", WHERE b"where", HAVING b"having", ON b"on", AND b"and", OR b"or", NOT b"not",
    BETWEEN b"between", LIKE b"like", IS b"is", CASE b"case", WHEN b"when", THEN b"then", ELSE b"else", SET b"set",
    LIMIT b"limit", OFFSET b"offset", BY b"by", RETURN b"return", DEFAULT b"default", INTERVAL b"interval",
    DISTINCT b"distinct", ALL b"all",
}
