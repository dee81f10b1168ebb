//! The decision about a statement: the gateway's own, one that is prepared, one that has to be admitted.

use std::sync::Arc;

use tidegate_cost_model::SqlDialect;
use tidegate_sql::{Diagnostics, Statement};

use super::super::answer::Answer;
use super::super::asked::{Asked, Remembered};
use super::super::command::Command;
use super::super::machine::Decision;
use super::super::protocol_error::ProtocolError;
use super::{MySql, Session};
use crate::govern::{Admission, Denied, Governor, parse_own};
use crate::session::{Judged, Pending, Protocol as _};

impl Session {
    /// Decides what becomes of a statement, or what that has to wait for.
    pub(super) fn judge_asked(&mut self, mut asked: Asked) -> Result<Judged, ProtocolError> {
        if self.protocol.machine.may_change_payer() {
            return Ok(self.waits(asked));
        }
        if asked.command == Command::BulkExecute && (asked.explained || asked.ours.is_some()) {
            return self.protocol.deny(&self.link, &Denied::many_rows());
        }
        if asked.command == Command::Execute
            && let Some(statement) = asked.ours.take()
        {
            if self.comes_too_early(&statement) {
                asked.ours = Some(statement);
                return Ok(self.waits(asked));
            }
            self.answer(statement, ());
            return Ok(Judged::Answered);
        }
        if let Some(decision) = self.protocol.about_warnings(&self.governor, &asked) {
            return self.protocol.decide(decision);
        }
        if asked.may_be_ours {
            asked.may_be_ours = false;
            match parse_own(&asked.text, SqlDialect::MySql) {
                Ok(None) => {}
                Ok(Some(Statement::ExplainRu(inner))) if asked.command == Command::Query => {
                    asked.template = self.governor.template(SqlDialect::MySql, inner.as_bytes());
                    asked.explains = Some(inner.into_bytes());
                }
                Ok(Some(Statement::ExplainRu(inner))) if asked.command == Command::Prepare => {
                    let known = self.governor.known(SqlDialect::MySql, inner.as_bytes(), true);
                    return self.protocol.prepare(Decision::Prepare(known.into(), inner.into_bytes()));
                }
                Ok(Some(statement)) if asked.command == Command::Prepare => {
                    let ours = Some(Arc::new(statement));
                    let remembered = Remembered { ours, ..asked.known(&self.governor).into() };
                    return self.protocol.prepare(Decision::PrepareOurs(remembered));
                }
                Ok(Some(statement)) if self.comes_too_early(&statement) => {
                    asked.may_be_ours = true;
                    return Ok(self.waits(asked));
                }
                Ok(Some(statement)) => {
                    self.answer(Arc::new(statement), ());
                    return Ok(Judged::Answered);
                }
                Err(denied) => return self.protocol.deny(&self.link, &denied),
            }
        }
        if asked.command == Command::Prepare {
            // Parsing is counted with the first execution.
            return self.protocol.prepare(Decision::Remember(asked.known(&self.governor).into()));
        }
        let quiet = self.protocol.is_quiet();
        if asked.may_name() {
            // The responses to what came before decide what a name stands for, and what is a string.
            if !quiet {
                return Ok(self.waits(asked));
            }
            asked.look_at_names(&self.governor, &self.protocol.machine);
        }
        match self.admission(&asked.template, asked.text()) {
            Some(Admission::Wait(_)) if !quiet => Ok(self.waits(asked)),
            Some(admission) => self.admit(admission, asked),
            None => Ok(Judged::NotYet),
        }
    }

    /// It is asked again once the server has answered all that came before it.
    fn waits(&mut self, asked: Asked) -> Judged {
        self.pending = Some(Pending::Quiet(asked));
        Judged::Goes
    }

    /// Whether a statement of ours chooses a group while one before it may still give up what the session has chosen.
    fn comes_too_early(&self, statement: &Statement) -> bool {
        matches!(statement, Statement::SetGroup { .. }) && !self.protocol.is_quiet()
    }
}

impl MySql {
    fn decide(&mut self, decision: Decision<Remembered>) -> Result<Judged, ProtocolError> {
        self.machine.decide(decision)?;
        Ok(Judged::Answered)
    }

    /// A statement is prepared, which leaves no diagnostics of the gateway's own.
    fn prepare(&mut self, decision: Decision<Remembered>) -> Result<Judged, ProtocolError> {
        self.warnings = None;
        self.decide(decision)
    }

    /// The decision about a question for the diagnostics of the last statement. If the gateway answered that statement,
    /// it answers the question, too; otherwise the server does. A client that prepares the question does so before it
    /// is known whose the answer will be.
    fn about_warnings(&self, governor: &Governor, asked: &Asked) -> Option<Decision<Remembered>> {
        let parsed = || asked.may_be_ours.then(|| Diagnostics::parse(&asked.text)).flatten();
        let answer = |question: &Diagnostics| {
            self.warnings.as_ref().map(|left| Decision::Answer(Answer::Rows(left.answer(question))))
        };
        match asked.command {
            Command::Query if self.warnings.is_some() => answer(&parsed()?),
            Command::Execute => answer(asked.question.as_deref()?),
            Command::Prepare => {
                let question = Some(Arc::new(parsed()?));
                Some(Decision::Remember(Remembered { question, ..asked.known(governor).into() }))
            }
            _ => None,
        }
    }
}
