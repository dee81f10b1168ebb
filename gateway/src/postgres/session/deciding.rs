//! The decision about a client's statement, and what it waits for: the group that pays, admission, an answer of our
//! own.

use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_cost_model::{SqlDialect, Template};
use tidegate_sql::{Answer, Naming, Statement};

use super::super::conversation::{Ask, Prepared, Text};
use super::super::frame::Broken;
use super::super::{message, own};
use super::{End, Fault, Session, Talk};
use crate::govern::{Admission, Denied, Governor, Known, Running, SqlText, Subject, parse_own};
use crate::session::{Later, Read};

/// What the client's side waits for.
pub(super) enum Pending {
    /// The group that pays.
    Subject(Later<Result<Subject, Denied>>),
    /// The statement at the front of the client's inbox.
    Admission { admission: Later<Result<Box<Running>, Denied>>, goes: Goes },
    /// An answer of the gateway itself.
    Own { answer: Later<Result<Answer, Denied>>, own: Own },
}

/// How a statement goes on once it is admitted.
pub(super) struct Goes {
    /// The statement that runs in its place, to show its cost.
    inner: Option<String>,
    /// What it does with names, where the conversation does not see it by itself.
    naming: Option<Arc<Naming<Known>>>,
}

/// A statement that is to be admitted.
struct Wanted<'t> {
    template: Arc<Template>,
    text: SqlText<'t>,
    goes: Goes,
}

/// What an own answer is for.
#[derive(Clone)]
pub(super) enum Own {
    Query,
    Describe { statement: Arc<Statement>, parameters: bool, formats: Arc<[bool]> },
    Run { formats: Arc<[bool]> },
}

impl Session {
    /// Finds who pays.
    pub(super) fn look_up(&mut self) {
        let (governor, login) = (Arc::clone(&self.shared.listening.governor), self.login.clone());
        self.pending = Some(Pending::Subject(Box::pin(async move { governor.subject(login).await })));
    }

    /// Waits for what the client's message depends on, and meanwhile for the client to go away.
    pub(super) fn poll_pending(&mut self, cx: &mut Context<'_>) -> Result<Poll<Option<End>>, Fault> {
        let Some(pending) = &mut self.pending else { return Ok(Poll::Ready(None)) };
        let bytes = self.link.from_client.data();
        let done = match pending {
            Pending::Subject(subject) => match subject.as_mut().poll(cx) {
                Poll::Pending => None,
                Poll::Ready(subject) => {
                    self.subject = Some(subject);
                    Some(Ok(()))
                }
            },
            Pending::Admission { admission, goes } => {
                let answer = match admission.as_mut().poll(cx) {
                    Poll::Pending if self.wanted_cancel.poll(cx) => Some(Err(Denied::cancelled())),
                    Poll::Pending => None,
                    Poll::Ready(answer) => Some(answer),
                };
                match answer {
                    None => None,
                    Some(Ok(running)) => Some(goes.on(&mut self.talk, bytes, running)),
                    Some(Err(denied)) => Some(deny(&mut self.talk, bytes, &denied)),
                }
            }
            Pending::Own { answer, own } => match answer.as_mut().poll(cx) {
                Poll::Pending => None,
                Poll::Ready(answer) => {
                    let own = own.clone();
                    Some(self.own_answer(answer, own))
                }
            },
        };
        if let Some(done) = done {
            self.pending = None;
            return done.map(|()| Poll::Ready(None)).map_err(Fault::Client);
        }
        Ok(match self.link.poll_waiting_client(cx)? {
            Poll::Ready(Read::Closed) => Poll::Ready(Some(End::Client)),
            Poll::Ready(Read::More) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
    }

    /// Decides what a message is, and what becomes of it. False when it cannot be decided yet.
    pub(super) fn decide(&mut self, ask: Ask<Statement>) -> Result<bool, Broken> {
        let bytes = self.link.from_client.data();
        let subject = match &self.subject {
            Some(Ok(subject)) => subject,
            Some(Err(denied)) => {
                let denied = denied.clone();
                // The controller may be back with the next statement.
                self.subject = None;
                deny(&mut self.talk, bytes, &denied)?;
                return Ok(true);
            }
            None => {
                self.look_up();
                return Ok(true);
            }
        };
        let governor = &self.shared.listening.governor;
        let Wanted { template, text, goes } = match ask {
            Ask::Query(text) => match parse(bytes, &text) {
                Ok(None) => {
                    let seen = bytes.get(text.place).unwrap_or_default();
                    Wanted::of(governor, &self.talk, seen, text.whole)
                }
                Ok(Some(Statement::ExplainRu(inner))) => {
                    let known = governor.known(SqlDialect::PostgreSql, inner.as_bytes(), true);
                    let mut wanted = Wanted::from(self.talk.behind(&known).clone());
                    wanted.goes.inner = Some(inner);
                    wanted
                }
                Ok(Some(statement)) => {
                    self.ask_own(Arc::new(statement), Own::Query);
                    return Ok(true);
                }
                Err(denied) => {
                    deny(&mut self.talk, bytes, &denied)?;
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
            Ask::Run { statement, formats } => {
                match self.described.take() {
                    Some((described, answer)) if Arc::ptr_eq(&described, &statement) => {
                        self.own_answer(Ok(answer), Own::Run { formats })?;
                    }
                    _ => self.ask_own(statement, Own::Run { formats }),
                }
                return Ok(true);
            }
        };
        let quiet = self.talk.is_quiet();
        let in_transaction = self.talk.in_transaction();
        match governor.admit(subject, &template, text, quiet && in_transaction) {
            Admission::Now(running) => goes.on(&mut self.talk, bytes, running)?,
            // The statements before this one decide whether it is inside a transaction; the session asks again after
            // them.
            Admission::Wait(_) if !quiet => return Ok(false),
            Admission::Wait(admission) => {
                self.wanted_cancel.forget();
                self.pending = Some(Pending::Admission { admission, goes });
            }
            Admission::Denied(denied) => deny(&mut self.talk, bytes, &denied)?,
        }
        Ok(true)
    }

    fn prepare(&mut self, text: Text) -> Result<(), Broken> {
        let (governor, bytes) = (&self.shared.listening.governor, self.link.from_client.data());
        let prepared = match parse(bytes, &text) {
            Ok(None) => {
                let seen = bytes.get(text.place).unwrap_or_default();
                Prepared::Theirs(governor.known(SqlDialect::PostgreSql, seen, text.whole))
            }
            Ok(Some(Statement::ExplainRu(inner))) => {
                let known = governor.known(SqlDialect::PostgreSql, inner.as_bytes(), true);
                self.talk.prepare_explained(bytes, known, inner.as_bytes())?;
                return Ok(());
            }
            Ok(Some(statement)) => Prepared::Ours(Arc::new(statement)),
            Err(denied) => {
                deny(&mut self.talk, bytes, &denied)?;
                return Ok(());
            }
        };
        self.talk.prepare(bytes, prepared)?;
        Ok(())
    }

    fn ask_own(&mut self, statement: Arc<Statement>, own: Own) {
        if let Some(Ok(subject)) = &self.subject {
            let governor = Arc::clone(&self.shared.listening.governor);
            let answer = governor.answer(subject.clone(), SqlDialect::PostgreSql, statement);
            self.pending = Some(Pending::Own { answer: Box::pin(answer), own });
        }
    }

    /// Only a statement that returns rows has to run to know its columns.
    fn describe_own(
        &mut self,
        statement: Arc<Statement>,
        parameters: bool,
        formats: Arc<[bool]>,
    ) -> Result<(), Broken> {
        if own::gives_rows(&statement) {
            let own = Own::Describe { statement: Arc::clone(&statement), parameters, formats };
            self.ask_own(statement, own);
            return Ok(());
        }
        self.talk.replace(self.link.from_client.data(), own::described(None, parameters, &formats))
    }

    /// The gateway's own answer has come.
    fn own_answer(&mut self, answer: Result<Answer, Denied>, own: Own) -> Result<(), Broken> {
        let bytes = self.link.from_client.data();
        let answer = match answer {
            Ok(answer) => answer,
            Err(denied) => return deny(&mut self.talk, bytes, &denied),
        };
        if let (Answer::Session(change), Some(Ok(subject))) = (&answer, &mut self.subject) {
            self.shared.listening.governor.apply(change, subject);
        }
        let tag = if matches!(answer, Answer::Session(_)) { "SET" } else { "RESOURCE GROUP" };
        match own {
            Own::Query => self.talk.answer(bytes, own::simple(&answer, tag)),
            Own::Run { formats } => self.talk.replace(bytes, own::executed(&answer, tag, &formats)),
            Own::Describe { statement, parameters, formats } => {
                let table = match &answer {
                    Answer::Table(table) => Some(table),
                    _ => None,
                };
                self.talk.replace(bytes, own::described(table, parameters, &formats))?;
                self.described = Some((statement, answer));
                Ok(())
            }
        }
    }
}

impl Goes {
    fn on(&self, talk: &mut Talk, bytes: &[u8], running: Box<Running>) -> Result<(), Broken> {
        match &self.inner {
            None => talk.go(bytes, running)?,
            Some(inner) => talk.explain(bytes, inner.as_bytes(), running)?,
        }
        talk.change_names(self.naming.as_deref());
        Ok(())
    }
}

impl<'t> Wanted<'t> {
    /// A simple query, or the statement that it names.
    fn of(governor: &Governor, talk: &Talk, seen: &'t [u8], whole: bool) -> Self {
        let naming = if whole { governor.naming(SqlDialect::PostgreSql, seen, true) } else { None };
        if let Some(known) = naming.as_deref().and_then(|naming| talk.executed(naming)) {
            return known.clone().into();
        }
        let template = governor.template(SqlDialect::PostgreSql, seen);
        Self { template, text: SqlText::of(seen, whole), goes: Goes { inner: None, naming } }
    }
}

impl From<Known> for Wanted<'_> {
    fn from(known: Known) -> Self {
        let goes = Goes { inner: None, naming: known.naming };
        Self { template: known.template, text: known.digest.into(), goes }
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

/// The statement at the front of the client's inbox fails with this.
fn deny(talk: &mut Talk, bytes: &[u8], denied: &Denied) -> Result<(), Broken> {
    let error = message::error(denied);
    match bytes.first() {
        Some(b'Q' | b'F') => talk.answer(bytes, error),
        _ => talk.refuse(bytes, error),
    }
}
