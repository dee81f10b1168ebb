//! QUERY_LIMIT: when a statement is a runaway, and what is done about it.

use sqlparser::tokenizer::Token;
use tidegate_proto::v1;

use super::options::duration;
use crate::cursor::Cursor;
use crate::error::SqlError;

/// What stands in the brackets.
const OPTIONS: [(&str, Part); 5] = [
    ("EXEC_ELAPSED", Part::Elapsed),
    ("RU", Part::Ru),
    ("ROWS", Part::Rows),
    ("ACTION", Part::Action),
    ("WATCH", Part::Watch),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Elapsed,
    Ru,
    Rows,
    Action,
    Watch,
}

/// The rule, with or without brackets; `NULL` or empty brackets for none.
pub(super) fn rule(cursor: &mut Cursor<'_>) -> Result<Option<v1::QueryLimit>, SqlError> {
    if cursor.take(&["NULL"]) {
        return Ok(None);
    }
    let brackets = cursor.take_token(&Token::LParen);
    if brackets && cursor.take_token(&Token::RParen) {
        return Ok(None);
    }
    if !brackets && !matches!(cursor.peek(), Some(Token::Word(_))) {
        return Err(cursor.expected("( and limits such as EXEC_ELAPSED='60s', ACTION=KILL, or NULL"));
    }
    let mut limit = v1::QueryLimit::default();
    let mut seen = Vec::new();
    loop {
        let part = option(cursor)?;
        if seen.contains(&part) {
            return Err(cursor.error_before("this is given twice; leave one of them out"));
        }
        seen.push(part);
        cursor.take_token(&Token::Eq);
        value(cursor, part, &mut limit)?;
        let comma = cursor.take_token(&Token::Comma);
        let ended = if brackets { cursor.peek() == Some(&Token::RParen) } else { cursor.peek().is_none() };
        if !comma && ended {
            break;
        }
    }
    if ![Part::Elapsed, Part::Ru, Part::Rows].iter().any(|part| seen.contains(part)) {
        let instead = "write EXEC_ELAPSED, RU or ROWS as well";
        return Err(SqlError::unsupported("a QUERY_LIMIT without a limit", instead));
    }
    if !seen.contains(&Part::Action) {
        let instead = "write ACTION = DRYRUN, COOLDOWN, KILL or SWITCH_GROUP(..) as well";
        return Err(SqlError::unsupported("a QUERY_LIMIT without an ACTION", instead));
    }
    if brackets {
        cursor.skip();
    }
    Ok(Some(limit))
}

fn option(cursor: &mut Cursor<'_>) -> Result<Part, SqlError> {
    if cursor.sees("PROCESSED_KEYS") {
        let instead = "a gateway does not see keys; limit ROWS or RU";
        return Err(SqlError::unsupported("PROCESSED_KEYS", instead));
    }
    cursor.choice(&OPTIONS)
}

fn value(cursor: &mut Cursor<'_>, part: Part, limit: &mut v1::QueryLimit) -> Result<(), SqlError> {
    match part {
        Part::Elapsed => limit.exec_elapsed_us = positive(cursor, "a duration such as '60s'")?,
        Part::Ru => {
            let ru = cursor.decimal("a number of RU")?;
            if ru.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
                return Err(cursor.error_before("0 is no limit; write a number above 0, or leave RU out"));
            }
            limit.ru = ru;
        }
        Part::Rows => {
            limit.rows = cursor.integer("a whole number of rows")?;
            if limit.rows == 0 {
                return Err(cursor.error_before("0 is no limit; write a number above 0, or leave ROWS out"));
            }
        }
        Part::Action => (limit.action, limit.switch_group) = action(cursor)?,
        Part::Watch => {
            plan_is_not_watched(cursor)?;
            cursor.choice(&[("EXACT", "exact"), ("SIMILAR", "similar")])?.clone_into(&mut limit.watch);
            if cursor.take(&["DURATION"]) {
                cursor.take_token(&Token::Eq);
                limit.watch_us = watch_duration(cursor)?.unwrap_or_default();
            }
        }
    }
    Ok(())
}

/// An action and, with SWITCH_GROUP, the group.
pub(super) fn action(cursor: &mut Cursor<'_>) -> Result<(String, String), SqlError> {
    let actions =
        [("DRYRUN", "dryrun"), ("COOLDOWN", "cooldown"), ("KILL", "kill"), ("SWITCH_GROUP", "switch_group")];
    let action = cursor.choice(&actions)?;
    let mut group = String::new();
    if action == "switch_group" {
        if !cursor.take_token(&Token::LParen) {
            return Err(cursor.expected("( and the name of a resource group"));
        }
        group = cursor.group()?;
        if !cursor.take_token(&Token::RParen) {
            return Err(cursor.expected(")"));
        }
    }
    Ok((action.to_owned(), group))
}

/// A duration, or `None` for UNLIMITED.
pub(super) fn watch_duration(cursor: &mut Cursor<'_>) -> Result<Option<u64>, SqlError> {
    let quoted = matches!(cursor.peek(), Some(Token::SingleQuotedString(text) | Token::DoubleQuotedString(text))
        if text.eq_ignore_ascii_case("UNLIMITED"));
    if quoted {
        cursor.skip();
    }
    if quoted || cursor.take(&["UNLIMITED"]) {
        return Ok(None);
    }
    positive(cursor, "a duration such as '10m', or UNLIMITED").map(Some)
}

/// TiDB can also match by plan.
pub(super) fn plan_is_not_watched(cursor: &Cursor<'_>) -> Result<(), SqlError> {
    if cursor.sees("PLAN") {
        let instead = "a gateway does not see plans; write SIMILAR";
        return Err(SqlError::unsupported("watching by PLAN", instead));
    }
    Ok(())
}

fn positive(cursor: &mut Cursor<'_>, what: &str) -> Result<u64, SqlError> {
    match duration(cursor, what)? {
        0 => Err(cursor.error_before("it must be longer than nothing")),
        us => Ok(us),
    }
}
