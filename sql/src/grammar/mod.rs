//! The grammar: one file per family of statements.
//!
//! *Source*: the resource control statements of TiDB's manual, as its parser reads them. What tidegate adds follows
//! their style; `docs/sql.md` lists it.

mod binding;
mod group;
mod options;
mod query_limit;
mod select;
mod watch;

use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;

use crate::cursor::Cursor;
use crate::error::SqlError;
use crate::recognise::may_be_ours;
use crate::statement::Statement;
use crate::tokens::{byte_at, is_code, tokenise};

/// Reads one statement; `None` when it is not ours.
pub(crate) fn statement(mut cursor: Cursor<'_>) -> Result<Option<Statement>, SqlError> {
    let words = &mut cursor;
    if words.take(&["CREATE", "RESOURCE", "GROUP"]) {
        group::create(words).map(Some)
    } else if words.take(&["ALTER", "RESOURCE", "GROUP"]) {
        group::alter(words).map(Some)
    } else if words.take(&["DROP", "RESOURCE", "GROUP"]) {
        group::drop(words).map(Some)
    } else if words.take(&["SHOW", "CREATE", "RESOURCE", "GROUP"]) {
        let name = words.group()?;
        words.end().map(|()| Some(Statement::ShowCreateGroup { name }))
    } else if words.take(&["SHOW", "RESOURCE", "GROUP", "PROPOSAL"]) {
        let name = words.group()?;
        words.end().map(|()| Some(Statement::ShowProposal { name }))
    } else if words.take(&["SHOW", "RESOURCE", "GROUPS"]) {
        words.end().map(|()| Some(Statement::ShowGroups))
    } else if words.take(&["SET", "RESOURCE", "GROUP"]) {
        let name = words.group_or_default()?;
        words.end().map(|()| Some(Statement::SetGroup { name }))
    } else if words.take(&["QUERY", "WATCH"]) {
        watch::statement(words).map(Some)
    } else if words.sees_all(&["CALIBRATE", "RESOURCE"]) {
        let instead = "measure with `tidegate demo`, or set a rate and watch `tidegate top`";
        Err(SqlError::unsupported("CALIBRATE RESOURCE", instead))
    } else if words.sees("ALTER") || words.sees_all(&["CREATE", "USER"]) {
        binding::statement(words)
    } else if words.take(&["EXPLAIN", "RU"]) {
        explain(words)
    } else {
        select::statement(words)
    }
}

/// Reads the rule against runaway statements alone: `(EXEC_ELAPSED='60s', ACTION=KILL)`, the same without brackets,
/// or `NULL` for none.
pub fn parse_query_limit(text: &str) -> Result<Option<v1::QueryLimit>, SqlError> {
    let tokens = tokenise(text, SqlDialect::MySql)?;
    let mut cursor = Cursor::new(text, &tokens, SqlDialect::MySql);
    let limit = query_limit::rule(&mut cursor)?;
    cursor.end()?;
    Ok(limit)
}

/// The rest of `EXPLAIN RU`. MySQL's `EXPLAIN ru` and `EXPLAIN ru column` describe a table, and are not ours.
fn explain(cursor: &Cursor<'_>) -> Result<Option<Statement>, SqlError> {
    let Some(start) = cursor.place().filter(|_| cursor.ahead(1).is_some()) else { return Ok(None) };
    let end = cursor.end_place().map(|end| byte_at(cursor.text(), end));
    let start = byte_at(cursor.text(), start);
    let statement = cursor.text().get(start..end.unwrap_or(start)).unwrap_or_default();
    if cursor.sees("EXPLAIN") {
        return Err(cursor.error("EXPLAIN RU runs the statement itself; leave the second EXPLAIN out"));
    }
    if may_be_ours(statement.as_bytes()) {
        let tokens = tokenise(statement, cursor.dialect)?;
        if tokens.iter().any(is_code)
            && self::statement(Cursor::new(statement, &tokens, cursor.dialect))?.is_some()
        {
            let instead = "it is answered by the controller and costs no RU; send it without EXPLAIN RU";
            return Err(SqlError::unsupported("EXPLAIN RU of a statement for tidegate", instead));
        }
    }
    Ok(Some(Statement::ExplainRu(statement.to_owned())))
}

#[cfg(test)]
mod tests;
