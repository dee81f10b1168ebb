//! Answers to the gateway's own statements, and refusals, in MySQL's terms.

use tidegate_cost_model::SqlDialect;
use tidegate_sql::{Answer as Own, Statement};

use super::answer::{Answer, Refusal};
use crate::govern::Denied;

impl From<&Denied> for Refusal {
    fn from(denied: &Denied) -> Self {
        let state = denied.code.mysql_state.as_bytes().first_chunk::<5>().copied().unwrap_or(*b"HY000");
        // An error has no place for a hint of its own.
        let message = match denied.hint.as_str() {
            "" => denied.message.clone(),
            hint => format!("{}. {hint}", denied.message),
        };
        Self { code: denied.code.mysql, state, message }
    }
}

/// What the client gets for a statement of ours.
pub(super) fn answer(own: Own) -> Answer {
    match own {
        // Notes have no place in the protocol but a count of warnings, which nobody could ask for.
        Own::Done { affected, .. } => Answer::Done { affected },
        Own::Session(_) => Answer::Done { affected: 0 },
        Own::Table(table) => Answer::Rows(table),
    }
}

/// A statement of ours, if the text is one.
pub(super) fn parse(text: &[u8]) -> Result<Option<Statement>, Denied> {
    if !tidegate_sql::may_be_ours(text) {
        return Ok(None);
    }
    // Ours are UTF-8; what is not goes to the database, which knows its encoding.
    let Ok(text) = std::str::from_utf8(text) else { return Ok(None) };
    Ok(Statement::parse(text, SqlDialect::MySql)?)
}
