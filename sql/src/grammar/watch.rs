//! QUERY WATCH: the list of statements that are convicted before they run.

use sqlparser::tokenizer::Token;
use tidegate_cost_model::Template;

use super::query_limit::{action, plan_is_not_watched, watch_duration};
use crate::cursor::Cursor;
use crate::digest::exact_digest;
use crate::error::SqlError;
use crate::statement::{Statement, WatchedText};
use crate::tokens::split;

/// Hexadecimal digits of the fingerprint of a template.
const SIMILAR_DIGITS: usize = 16;
/// Hexadecimal digits of the SHA-256 of a text.
const EXACT_DIGITS: usize = 64;

/// Behind `QUERY WATCH`.
pub(super) fn statement(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    if cursor.take(&["ADD"]) {
        return add(cursor);
    }
    if !cursor.take(&["REMOVE"]) {
        return Err(cursor.expected("ADD or REMOVE"));
    }
    let removed = if cursor.take(&["RESOURCE", "GROUP"]) {
        Statement::RemoveWatches { group: cursor.group()? }
    } else {
        let id = cursor.integer("the number of a watch, or RESOURCE GROUP and a name")?;
        Statement::RemoveWatch { id }
    };
    cursor.end()?;
    Ok(removed)
}

fn add(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    const OPTIONS: &str = "RESOURCE GROUP, ACTION, SQL TEXT, SQL DIGEST or DURATION";
    let (mut group, mut doing, mut watched, mut lasting) = (None, None, None, None);
    loop {
        // Each of them once: the slot is empty before.
        let twice = if cursor.take(&["RESOURCE", "GROUP"]) {
            group.replace(cursor.group()?).is_some()
        } else if cursor.take(&["ACTION"]) {
            cursor.take_token(&Token::Eq);
            doing.replace(action(cursor)?).is_some()
        } else if cursor.take(&["SQL"]) {
            watched.replace(text(cursor)?).is_some()
        } else if cursor.take(&["DURATION"]) {
            cursor.take_token(&Token::Eq);
            lasting.replace(watch_duration(cursor)?).is_some()
        } else {
            plan_is_not_watched(cursor)?;
            return Err(cursor.expected(OPTIONS));
        };
        if twice {
            return Err(cursor.error_before("this is given twice; leave one of them out"));
        }
        if !cursor.take_token(&Token::Comma) && cursor.peek().is_none() {
            break;
        }
    }
    let watched = watched.ok_or_else(|| cursor.expected("SQL TEXT .. TO '..' or SQL DIGEST '..' as well"))?;
    let (action, switch_group) = doing.unwrap_or_default();
    Ok(Statement::AddWatch { group, action, switch_group, watched, watch_us: lasting.flatten() })
}

/// Behind `SQL`.
fn text(cursor: &mut Cursor<'_>) -> Result<WatchedText, SqlError> {
    if cursor.take(&["DIGEST"]) {
        let digest = cursor.digits("a digest")?.to_ascii_lowercase();
        let matching = match digest.len() {
            SIMILAR_DIGITS => "similar",
            EXACT_DIGITS => "exact",
            _ => "",
        };
        if matching.is_empty() || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(cursor.error_before(
                "expected 16 hexadecimal digits (a fingerprint from tidegate.statements) or 64 (SHA-256 of a text)",
            ));
        }
        return Ok(WatchedText { matching, digest, template: String::new() });
    }
    if !cursor.take(&["TEXT"]) {
        return Err(cursor.expected("TEXT or DIGEST"));
    }
    plan_is_not_watched(cursor)?;
    let matching = cursor.choice(&[("EXACT", "exact"), ("SIMILAR", "similar")])?;
    cursor.expect(&["TO"])?;
    cursor.refuse_variable()?;
    let text = cursor.string("a statement in quotes")?;
    match split(text, cursor.dialect).as_deref() {
        Ok([_]) => {}
        Ok(others) => {
            return Err(cursor.error_before(&format!("expected one statement, not {}", others.len())));
        }
        Err(error) => return Err(cursor.error_before(&format!("in the statement: {error}"))),
    }
    let template = Template::new(cursor.dialect, text);
    let digest = if matching == "exact" { exact_digest(text) } else { template.fingerprint().to_string() };
    Ok(WatchedText { matching, digest, template: template.text().to_owned() })
}
