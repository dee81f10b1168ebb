//! The decision about a statement, and what it waits for: the group that pays, admission, an answer of our own.

use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_cost_model::SqlDialect;
use tidegate_sql::{Answer as Own, Diagnostics, Statement};

use super::super::answer::{Answer, Refusal};
use super::super::asked::{Asked, Remembered};
use super::super::command::Command;
use super::super::fault::Fault;
use super::super::machine::Decision;
use super::super::own;
use super::super::warnings::Warnings;
use super::{Admitted, Broken, End, Pending, Session};
use crate::govern::{Admission, Denied, Running, Subject, parse_own};
use crate::session::Read;

impl Session {
    /// Finds who pays, for the statement that waits to be judged if there is one.
    pub(super) fn look_up(&mut self, asked: Option<Asked>) {
        self.subject = None;
        let asked = match self.pending.take() {
            None => asked,
            // The subject that is being looked up is out of date.
            Some(Pending::Subject(_, waiting)) => asked.or(waiting),
            // A statement that waits already is judged when its turn comes, and looks itself.
            Some(other) => {
                self.pending = Some(other);
                return;
            }
        };
        let (governor, login, chosen) =
            (Arc::clone(&self.shared.listening.governor), self.login.clone(), self.chosen.clone());
        let found = async move { Ok(Subject { chosen, ..governor.subject(login).await? }) };
        self.pending = Some(Pending::Subject(Box::pin(found), asked));
    }

    /// Waits for what the client's statement depends on, and meanwhile for the client to go away.
    pub(super) fn poll_pending(&mut self, cx: &mut Context<'_>) -> Result<Poll<Option<End>>, Broken> {
        match self.pending.take() {
            None => return Ok(Poll::Ready(None)),
            Some(Pending::Subject(mut found, asked)) => match found.as_mut().poll(cx) {
                Poll::Pending => self.pending = Some(Pending::Subject(found, asked)),
                Poll::Ready(subject) => {
                    self.subject = Some(subject);
                    if let Some(asked) = asked {
                        self.judge(asked)?;
                    }
                    return Ok(Poll::Ready(None));
                }
            },
            Some(Pending::Admission(mut admission, asked)) => match admission.as_mut().poll(cx) {
                Poll::Pending => self.pending = Some(Pending::Admission(admission, asked)),
                Poll::Ready(Ok(running)) => {
                    self.go(asked, running)?;
                    return Ok(Poll::Ready(None));
                }
                Poll::Ready(Err(denied)) => {
                    self.deny(&denied)?;
                    return Ok(Poll::Ready(None));
                }
            },
            Some(Pending::Own(mut answer)) => match answer.as_mut().poll(cx) {
                Poll::Pending => self.pending = Some(Pending::Own(answer)),
                Poll::Ready(Ok(answer)) => {
                    if let (Own::Session(change), Some(Ok(subject))) = (&answer, &mut self.subject) {
                        self.shared.listening.governor.apply(change, subject);
                        self.chosen.clone_from(&subject.chosen);
                    }
                    self.warnings = Some(Warnings::of(&answer));
                    self.machine.decide(Decision::Answer(own::answer(answer)))?;
                    return Ok(Poll::Ready(None));
                }
                Poll::Ready(Err(denied)) => {
                    self.deny(&denied)?;
                    return Ok(Poll::Ready(None));
                }
            },
            Some(Pending::Quiet(asked)) if self.machine.awaits_nothing() => {
                self.judge(asked)?;
                return Ok(Poll::Ready(None));
            }
            Some(quiet @ Pending::Quiet(_)) => self.pending = Some(quiet),
        }
        Ok(match self.link.poll_waiting_client(cx)? {
            Poll::Ready(Read::Closed) => Poll::Ready(Some(End::Client)),
            Poll::Ready(Read::More) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
    }

    /// Decides what becomes of a statement, or what that has to wait for.
    pub(super) fn judge(&mut self, mut asked: Asked) -> Result<(), Fault> {
        let subject = match &self.subject {
            Some(Ok(subject)) => subject,
            Some(Err(denied)) => {
                let denied = denied.clone();
                // The controller may be back with the next statement.
                self.subject = None;
                return self.deny(&denied);
            }
            None => {
                self.look_up(Some(asked));
                return Ok(());
            }
        };
        let governor = &self.shared.listening.governor;
        if asked.command == Command::BulkExecute && (asked.explained || asked.ours.is_some()) {
            return self.deny(&Denied::many_rows());
        }
        if asked.command == Command::Execute
            && let Some(statement) = asked.ours.take()
        {
            self.answer(subject.clone(), statement);
            return Ok(());
        }
        if let Some(decision) = self.about_warnings(&asked) {
            return self.machine.decide(decision);
        }
        if asked.may_be_ours {
            asked.may_be_ours = false;
            match parse_own(&asked.text, SqlDialect::MySql) {
                Ok(None) => {}
                Ok(Some(Statement::ExplainRu(inner))) if asked.command == Command::Query => {
                    asked.template = governor.template(SqlDialect::MySql, inner.as_bytes());
                    asked.explains = Some(inner.into_bytes());
                }
                Ok(Some(Statement::ExplainRu(inner))) if asked.command == Command::Prepare => {
                    self.warnings = None;
                    let known = governor.known(SqlDialect::MySql, inner.as_bytes(), true);
                    return self.machine.decide(Decision::Prepare(known.into(), inner.into_bytes()));
                }
                Ok(Some(statement)) if asked.command == Command::Prepare => {
                    self.warnings = None;
                    let ours = Some(Arc::new(statement));
                    let remembered = Remembered { ours, ..asked.known().into() };
                    return self.machine.decide(Decision::PrepareOurs(remembered));
                }
                Ok(Some(statement)) => {
                    self.answer(subject.clone(), Arc::new(statement));
                    return Ok(());
                }
                Err(denied) => return self.deny(&denied),
            }
        }
        if asked.command == Command::Prepare {
            self.warnings = None;
            // Parsing is counted with the first execution.
            return self.machine.decide(Decision::Remember(asked.known().into()));
        }
        let quiet = self.machine.awaits_nothing();
        if asked.may_name() {
            // The responses to what came before decide what a name stands for, and what is a string.
            if !quiet {
                self.pending = Some(Pending::Quiet(asked));
                return Ok(());
            }
            asked.look_at_names(governor, &self.machine);
        }
        let in_transaction = quiet && self.machine.in_transaction();
        match governor.admit(subject, &asked.template, asked.text(), in_transaction) {
            Admission::Now(running) => return self.go(asked, running),
            Admission::Wait(_) if !quiet => self.pending = Some(Pending::Quiet(asked)),
            Admission::Wait(admission) => self.pending = Some(Pending::Admission(admission, asked)),
            Admission::Denied(denied) => return self.deny(&denied),
        }
        Ok(())
    }

    /// The decision about a question for the diagnostics of the last statement. If the gateway answered that statement,
    /// it answers the question, too; otherwise the server does. A client that prepares the question does so before it
    /// is known whose the answer will be.
    fn about_warnings(&self, asked: &Asked) -> Option<Decision<Remembered>> {
        let parsed = || asked.may_be_ours.then(|| Diagnostics::parse(&asked.text)).flatten();
        let answer = |question: &Diagnostics| {
            self.warnings.as_ref().map(|left| Decision::Answer(Answer::Rows(left.answer(question))))
        };
        match asked.command {
            Command::Query if self.warnings.is_some() => answer(&parsed()?),
            Command::Execute => answer(asked.question.as_deref()?),
            Command::Prepare => {
                let question = Some(Arc::new(parsed()?));
                Some(Decision::Remember(Remembered { question, ..asked.known().into() }))
            }
            _ => None,
        }
    }

    /// The gateway answers the statement itself.
    fn answer(&mut self, subject: Subject, statement: Arc<Statement>) {
        let governor = Arc::clone(&self.shared.listening.governor);
        let answer = governor.answer(subject, SqlDialect::MySql, statement);
        self.pending = Some(Pending::Own(Box::pin(answer)));
    }

    fn go(&mut self, asked: Asked, running: Box<Running>) -> Result<(), Fault> {
        self.warnings = None;
        if let Some(naming) = asked.renames(self.machine.knows_names()) {
            self.machine.will_name(naming);
        }
        let explained = asked.explained && asked.command == Command::Execute;
        let explains = asked.explains.is_some() || explained;
        self.admitted.push_back(Admitted { number: asked.number, running, explains, killed: None });
        let go = if explained { Decision::ExplainRun } else { Decision::Go };
        self.machine.decide(asked.explains.map_or(go, Decision::Explain))
    }

    fn deny(&mut self, denied: &Denied) -> Result<(), Fault> {
        let refusal = Refusal::from(denied);
        self.warnings = Some(Warnings::of_error(&refusal));
        self.machine.decide(Decision::Answer(Answer::Refused(refusal)))
    }
}
