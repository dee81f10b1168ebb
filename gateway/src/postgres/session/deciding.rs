//! The decision about a client's message: the gateway's own statement, one that is prepared, one that has to be
//! admitted.

use std::sync::Arc;

use tidegate_cost_model::{SqlDialect, Template};
use tidegate_sql::Statement;

use super::super::frame::ProtocolError;
use super::super::machine::{Ask, Decision, Goes, Prepared, Text};
use super::super::{message, own};
use super::{Postgres, Session};
use crate::govern::{Admission, Denied, Governor, Known, SqlText, parse_own};
use crate::session::Protocol as _;

/// A statement that is to be admitted.
struct Wanted<'t> {
    template: Arc<Template>,
    text: SqlText<'t>,
    goes: Goes,
}

/// What an own answer is for.
pub(in crate::postgres) enum Own {
    Query,
    Describe { statement: Arc<Statement>, parameters: bool, formats: Arc<[bool]> },
    Run { formats: Arc<[bool]> },
}

impl Session {
    /// Decides what a message is, and what becomes of it. False when it cannot be decided yet.
    pub(super) fn decide(&mut self, ask: Ask<Statement>) -> Result<bool, ProtocolError> {
        let bytes = self.link.from_client.data();
        let Wanted { template, text, goes } = match ask {
            Ask::Query(text) => match parse(bytes, &text) {
                Ok(None) => {
                    let seen = bytes.get(text.place).unwrap_or_default();
                    self.protocol.wanted(&self.governor, seen, text.whole)
                }
                Ok(Some(Statement::ExplainRu(inner))) => {
                    let known = self.governor.known(SqlDialect::PostgreSql, inner.as_bytes(), true);
                    let mut wanted = Wanted::from(self.protocol.machine.behind(&known).clone());
                    wanted.goes.inner = Some(inner);
                    wanted
                }
                Ok(Some(statement)) if self.protocol.comes_too_early(&statement) => return Ok(false),
                Ok(Some(statement)) => {
                    self.answer(Arc::new(statement), Own::Query);
                    return Ok(true);
                }
                Err(denied) => {
                    self.protocol.deny(&self.link, &denied)?;
                    return Ok(true);
                }
            },
            Ask::Parse(text) => {
                self.prepare(text)?;
                return Ok(true);
            }
            Ask::Execute(known) => Wanted::from(Known { naming: None, ..known }),
            Ask::Describe { statement, parameters, formats } => {
                self.describe_own(statement, parameters, formats)?;
                return Ok(true);
            }
            Ask::Run { statement, .. } if self.protocol.comes_too_early(&statement) => return Ok(false),
            Ask::Run { statement, formats } => {
                match self.protocol.described.take() {
                    Some((described, answer)) if Arc::ptr_eq(&described, &statement) => {
                        self.protocol.answer(&self.link, answer, Own::Run { formats })?;
                    }
                    _ => self.answer(statement, Own::Run { formats }),
                }
                return Ok(true);
            }
        };
        match self.admission(&template, text) {
            // The statements before this one decide whether it is inside a transaction; the session asks again after
            // them.
            Some(Admission::Wait(_)) if !self.protocol.is_quiet() => {
                self.protocol.is_behind = true;
                Ok(false)
            }
            Some(admission) => self.admit(admission, goes).map(|_| true),
            None => Ok(false),
        }
    }

    fn prepare(&mut self, text: Text) -> Result<(), ProtocolError> {
        let (governor, bytes) = (&self.governor, self.link.from_client.data());
        let decision = match parse(bytes, &text) {
            Ok(None) => {
                let seen = bytes.get(text.place).unwrap_or_default();
                let known = governor.known(SqlDialect::PostgreSql, seen, text.whole);
                Decision::Prepare(Prepared::Theirs(known), None)
            }
            Ok(Some(Statement::ExplainRu(inner))) => {
                let known = governor.known(SqlDialect::PostgreSql, inner.as_bytes(), true);
                Decision::Prepare(Prepared::Explained(known), Some(inner))
            }
            Ok(Some(statement)) => Decision::Prepare(Prepared::Ours(Arc::new(statement)), None),
            Err(denied) => Decision::Refuse(message::error(&denied)),
        };
        self.protocol.machine.decide(bytes, decision)
    }

    /// Only a statement that returns rows has to run to know its columns.
    fn describe_own(
        &mut self,
        statement: Arc<Statement>,
        parameters: bool,
        formats: Arc<[bool]>,
    ) -> Result<(), ProtocolError> {
        if own::gives_rows(&statement) {
            let own = Own::Describe { statement: Arc::clone(&statement), parameters, formats };
            self.answer(statement, own);
            return Ok(());
        }
        let described = Decision::Answer(own::described(None, parameters, &formats));
        self.protocol.machine.decide(self.link.from_client.data(), described)
    }
}

impl Postgres {
    /// Whether a statement of ours chooses a group while one before it may still give up what the session has chosen.
    fn comes_too_early(&mut self, statement: &Statement) -> bool {
        self.is_behind = matches!(statement, Statement::SetGroup { .. }) && self.machine.awaits_end();
        self.is_behind
    }

    /// A simple query, or the statement that it names.
    fn wanted<'t>(&self, governor: &Governor, seen: &'t [u8], whole: bool) -> Wanted<'t> {
        let naming = if whole { governor.naming(SqlDialect::PostgreSql, seen, true) } else { None };
        if let Some(known) = naming.as_deref().and_then(|naming| self.machine.executed(naming)) {
            return known.clone().into();
        }
        let template = governor.template(SqlDialect::PostgreSql, seen);
        Wanted { template, text: SqlText::of(seen, whole), goes: Goes { inner: None, naming } }
    }
}

impl From<Known> for Wanted<'_> {
    fn from(known: Known) -> Self {
        let (text, goes) = (known.text(), Goes { inner: None, naming: known.naming });
        Self { template: known.template, text, goes }
    }
}

/// A statement of ours, if the text is one. A text that is not seen to its end is not ours, but does not run cut off
/// either.
fn parse(bytes: &[u8], text: &Text) -> Result<Option<Statement>, Denied> {
    let parsed = parse_own(bytes.get(text.place.clone()).unwrap_or_default(), SqlDialect::PostgreSql);
    match parsed {
        parsed if text.whole => parsed,
        Ok(Some(Statement::ExplainRu(_))) => Err(Denied::explained_text(text.place.len())),
        _ => Ok(None),
    }
}
