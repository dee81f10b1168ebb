//! ALTER USER and ALTER DATABASE .. RESOURCE GROUP: which users and databases are charged to which group.
//!
//! Other forms of ALTER USER and ALTER DATABASE are the database's. A text is ours when the words RESOURCE GROUP stand
//! in it side by side, without quotes.

use sqlparser::tokenizer::Token;
use tidegate_cost_model::SqlDialect;

use crate::cursor::{Cursor, Name, is_keyword};
use crate::error::{SqlError, cut};
use crate::statement::{Principal, Statement};

/// A whole `ALTER ..` or `CREATE USER ..`.
pub(super) fn statement(cursor: &mut Cursor<'_>) -> Result<Option<Statement>, SqlError> {
    let of_user = cursor.sees_all(&["ALTER", "USER"]);
    let of_database = cursor.sees_all(&["ALTER", "DATABASE"]);
    let created = cursor.sees_all(&["CREATE", "USER"]);
    if !(of_user || of_database || created) || !names_a_group(cursor) {
        return Ok(None);
    }
    if created {
        let instead = "create the user in the database, then send ALTER USER .. RESOURCE GROUP ..";
        return Err(SqlError::unsupported("CREATE USER with a RESOURCE GROUP", instead));
    }
    cursor.skip();
    cursor.skip();
    let mut principal = Principal::default();
    if of_user {
        principal.user = user(cursor)?;
        if cursor.take(&["IN"]) {
            cursor.expect(&["DATABASE"])?;
            principal.tenant = cursor.name("the name of a database")?.folded(cursor.dialect);
        }
    } else {
        principal.tenant = cursor.name("the name of a database")?.folded(cursor.dialect);
    }
    if !cursor.sees_all(&["RESOURCE", "GROUP"]) {
        return Err(beside());
    }
    cursor.expect(&["RESOURCE", "GROUP"])?;
    let group = cursor.group_or_default()?;
    if cursor.peek().is_some() {
        return Err(beside());
    }
    Ok(Some(Statement::Bind { principal, group }))
}

/// Refuses a text half of which tidegate would do and half the database, as one of the two may fail.
fn beside() -> SqlError {
    let instead = "send that to the database, and RESOURCE GROUP alone, as two statements";
    SqlError::unsupported("another change beside RESOURCE GROUP", instead)
}

fn names_a_group(cursor: &Cursor<'_>) -> bool {
    let pairs = cursor.rest().zip(cursor.rest().skip(1));
    let mut groups =
        pairs.filter(|(first, second)| is_keyword(first, "RESOURCE") && is_keyword(second, "GROUP"));
    groups.next().is_some()
}

/// A user, with or without the host it comes from.
fn user(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    const WHAT: &str = "the name of a user";
    let mut name = match cursor.peek() {
        Some(Token::SingleQuotedString(text)) if !text.is_empty() => {
            cursor.skip();
            Name { text: text.clone(), quoted: true }
        }
        _ => cursor.name(WHAT)?,
    };
    let is_function = |word: &str| name.text.eq_ignore_ascii_case(word);
    if !name.quoted && (is_function("CURRENT_USER") || is_function("SESSION_USER") || is_function("USER")) {
        return Err(cursor.error_before("expected the name of a user, not a function; write the name"));
    }
    // MySQL's tokenizer takes `ann@localhost` for one word, and `@localhost` for another.
    let mut host = None;
    if !name.quoted
        && let Some((user, at)) = name.text.split_once('@')
    {
        host = Some(at.to_owned());
        name.text = user.to_owned();
    } else if let Some(Token::Word(word)) = cursor.peek()
        && word.quote_style.is_none()
        && let Some(at) = word.value.strip_prefix('@')
    {
        host = Some(at.to_owned());
        cursor.skip();
    } else if cursor.take_token(&Token::AtSign) {
        host = Some(String::new());
    }
    if let Some(mut host) = host {
        if host.is_empty() {
            host = match cursor.peek() {
                Some(Token::SingleQuotedString(text)) => {
                    cursor.skip();
                    text.clone()
                }
                _ => cursor.name("a host such as '%'")?.text,
            };
        }
        if host != "%" && !host.eq_ignore_ascii_case("localhost") {
            let what = format!("a user of one host ({})", cut(&host));
            let instead = "tidegate binds a user wherever it comes from; leave the host out, or write '%'";
            return Err(SqlError::unsupported(what, instead));
        }
    }
    if name.text.is_empty() {
        return Err(cursor.error_before("expected the name of a user"));
    }
    let dialect = if cursor.dialect == SqlDialect::Generic { SqlDialect::MySql } else { cursor.dialect };
    Ok(name.folded(dialect))
}
