//! Answers to the gateway's own statements, and refusals, in MySQL's terms.

use tidegate_sql::Answer as Own;

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
        // The protocol has room for the number of notes only: a client that sees it asks for them.
        Own::Done { affected, notes } => Answer::Done { affected, warnings: notes.len() },
        Own::Session(_) => Answer::Done { affected: 0, warnings: 0 },
        Own::Table(table) => Answer::Rows(table),
    }
}
