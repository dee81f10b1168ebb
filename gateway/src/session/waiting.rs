//! What the client's side of a session waits for: the group that pays, admission, an answer of our own.

use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_cost_model::Template;
use tidegate_sql::{Answer, Statement};

use super::{End, Judged, Later, Protocol, Read, Session, SessionError, Side};
use crate::govern::{Admission, Denied, Running, SqlText, Subject};

/// What the client's side waits for.
pub(crate) enum Pending<P: Protocol> {
    /// The group that pays, for the login or for a statement.
    Subject(Later<Result<Subject, Denied>>, Option<P::Ask>),
    Admission(Later<Result<Box<Running>, Denied>>, P::Goes),
    /// An answer of the gateway itself.
    Own(Later<Result<Answer, Denied>>, P::Own),
    /// The responses to what came before decide whether the statement is inside a transaction.
    Quiet(P::Ask),
}

impl<P: Protocol> Session<P> {
    /// Finds who pays, for the statement that waits to be judged if there is one.
    pub(crate) fn look_up(&mut self, ask: Option<P::Ask>) {
        self.subject = None;
        let ask = match self.pending.take() {
            None => ask,
            // The subject that is being looked up is out of date.
            Some(Pending::Subject(_, waiting)) => ask.or(waiting),
            // A statement that waits already is judged when its turn comes, and looks itself.
            Some(other) => {
                self.pending = Some(other);
                return;
            }
        };
        let (governor, login, chosen) = (Arc::clone(&self.governor), self.login.clone(), self.chosen.clone());
        let found = async move { Ok(Subject { chosen, ..governor.subject(login).await? }) };
        self.pending = Some(Pending::Subject(Box::pin(found), ask));
    }

    /// Gives up the group that the session has chosen.
    pub(crate) fn choose_none(&mut self) {
        self.chosen = None;
        if let Some(Ok(subject)) = &mut self.subject {
            subject.chosen = None;
        }
    }

    /// Waits for what the client's statement depends on, and meanwhile for the client to go away.
    pub(super) fn poll_pending(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<Poll<Option<End>>, SessionError<P::Error>> {
        let Some(pending) = self.pending.take() else { return Ok(Poll::Ready(None)) };
        let waits = self.poll_one(cx, pending);
        let Some(waits) = waits.map_err(|error| SessionError::Protocol(Side::Client, error))? else {
            return Ok(Poll::Ready(None));
        };
        self.pending = Some(waits);
        self.poll_waiting(cx)
    }

    /// While the client's side waits: ready when more has come from it, or when it is gone.
    pub(super) fn poll_waiting(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<Poll<Option<End>>, SessionError<P::Error>> {
        Ok(match self.link.poll_waiting_client(cx)? {
            Poll::Ready(Read::Closed) => Poll::Ready(Some(End::Client)),
            Poll::Ready(Read::More) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
    }

    /// Goes on with what has come; returns what has not.
    fn poll_one(
        &mut self,
        cx: &mut Context<'_>,
        pending: Pending<P>,
    ) -> Result<Option<Pending<P>>, P::Error> {
        match pending {
            Pending::Subject(mut found, ask) => {
                let is_awaited = ask.is_some() || !self.link.from_client.data().is_empty();
                let subject = match found.as_mut().poll(cx) {
                    Poll::Ready(subject) => subject,
                    Poll::Pending if self.protocol.poll_cancelled(cx) && is_awaited => {
                        Err(Denied::cancelled())
                    }
                    Poll::Pending => return Ok(Some(Pending::Subject(found, ask))),
                };
                // Why nobody pays is for who waits now. The controller may be back long before the next statement.
                self.subject = Some(subject).filter(|subject| subject.is_ok() || is_awaited);
                if let Some(ask) = ask {
                    self.judge(ask)?;
                }
            }
            Pending::Admission(mut admission, goes) => {
                let admitted = match admission.as_mut().poll(cx) {
                    Poll::Ready(admitted) => admitted,
                    Poll::Pending if self.protocol.poll_cancelled(cx) => Err(Denied::cancelled()),
                    Poll::Pending => return Ok(Some(Pending::Admission(admission, goes))),
                };
                match admitted {
                    Ok(running) => self.protocol.go(&self.link, goes, running)?,
                    Err(denied) => {
                        self.protocol.deny(&self.link, &denied)?;
                    }
                }
            }
            Pending::Own(mut answer, own) => match answer.as_mut().poll(cx) {
                Poll::Pending => return Ok(Some(Pending::Own(answer, own))),
                Poll::Ready(Err(denied)) => {
                    self.protocol.deny(&self.link, &denied)?;
                }
                Poll::Ready(Ok(answer)) => {
                    if let (Answer::Session(change), Some(Ok(subject))) = (&answer, &mut self.subject) {
                        self.governor.apply(change, subject);
                        self.chosen.clone_from(&subject.chosen);
                    }
                    self.protocol.answer(&self.link, answer, own)?;
                }
            },
            Pending::Quiet(ask) if self.protocol.is_quiet() => {
                self.judge(ask)?;
            }
            Pending::Quiet(ask) => return Ok(Some(Pending::Quiet(ask))),
        }
        Ok(None)
    }

    /// Decides what becomes of a statement, or what that has to wait for.
    pub(super) fn judge(&mut self, ask: P::Ask) -> Result<Judged, P::Error> {
        self.protocol.forget_cancelled();
        match &self.subject {
            Some(Ok(_)) => P::judge(self, ask),
            Some(Err(denied)) => {
                let denied = denied.clone();
                // The controller may be back with the next statement.
                self.subject = None;
                self.protocol.deny(&self.link, &denied)
            }
            None => {
                self.look_up(Some(ask).filter(|_| !P::ASKS_AGAIN));
                Ok(Judged::Goes)
            }
        }
    }

    /// Asks for admission on behalf of who pays; `None` when that is not known.
    pub(crate) fn admission(&self, template: &Arc<Template>, text: SqlText<'_>) -> Option<Admission> {
        let Some(Ok(subject)) = &self.subject else { return None };
        let in_transaction = self.protocol.is_quiet() && self.protocol.in_transaction();
        Some(self.governor.admit(subject, P::DIALECT, template, text, in_transaction))
    }

    /// Carries out what was said about the admission of a statement.
    pub(crate) fn admit(&mut self, admission: Admission, goes: P::Goes) -> Result<Judged, P::Error> {
        match admission {
            Admission::Now(running) => self.protocol.go(&self.link, goes, running)?,
            Admission::Wait(admission) => self.pending = Some(Pending::Admission(admission, goes)),
            Admission::Denied(denied) => return self.protocol.deny(&self.link, &denied),
        }
        Ok(Judged::Goes)
    }

    /// The gateway answers the statement itself.
    pub(crate) fn answer(&mut self, statement: Arc<Statement>, own: P::Own) {
        if let Some(Ok(subject)) = &self.subject {
            let answer = Arc::clone(&self.governor).answer(subject.clone(), P::DIALECT, statement);
            self.pending = Some(Pending::Own(Box::pin(answer), own));
        }
    }
}
