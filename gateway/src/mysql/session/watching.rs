//! A statement that goes on: the session reads what it uses, and holds it back or kills it when it must.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::super::answer::Refusal;
use super::super::control::ControlError;
use super::super::step;
use super::{Killed, Session};
use crate::complaints::Kind;
use crate::govern::{Progress, Server, Verdict};
use crate::session::Due;

/// Attempts, a second apart, after which a statement that goes on loses its client: the server does not kill it, or it does
/// not notice, as one that waits for a file.
const MOST_KILLS: u32 = 3;

impl Session {
    pub(super) fn find_backend(&mut self, login: &step::Login) {
        if self.shared.control.is_none() {
            tracing::debug!("the upstream URL names no user; costs are estimated");
            return;
        }
        let (shared, connection, client) = (Arc::clone(&self.shared), self.connection, self.client);
        let is_mariadb = login.server_version.contains("MariaDB");
        let server = if is_mariadb { Server::MariaDb } else { Server::MySql };
        self.finding = Some(Box::pin(async move {
            let control = shared.control.as_ref()?;
            match control.thread(connection, is_mariadb).await {
                Ok(found) => control.home().backend(&found?, server, &shared.listening.unowned),
                Err(error) => {
                    if let Some(left_out) = shared.listening.complaints.told(client, Kind::Control) {
                        tracing::warn!(%error, left_out, "the server's thread is not known; costs are estimated");
                    }
                    None
                }
            }
        }));
    }

    /// Looks at the statement that runs, when it is time. True when something changed.
    pub(super) fn poll_watch(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        if let Some(finding) = &mut self.finding
            && let Poll::Ready(found) = finding.as_mut().poll(cx)
        {
            self.backend = found;
            self.finding = None;
        }
        if let Some(killing) = &mut self.killing
            && let Poll::Ready(done) = killing.as_mut().poll(cx)
        {
            self.killing = None;
            moved = true;
            self.kill_ended(done);
        }
        while let Some(seen) = self.machine.progress()
            && let Some(admitted) = self.admitted.front().filter(|admitted| admitted.number == seen.number)
            && let running = &admitted.running
            && let Poll::Ready(due) =
                self.pace.poll(cx, running.began(), running.deadline(), seen.response_bytes)
        {
            moved = true;
            self.look(due);
        }
        if let (Some(admitted), Some(backend)) = (self.admitted.front(), &mut self.backend) {
            backend.poll(cx, admitted.running.began());
        }
        moved
    }

    fn look(&mut self, due: Due) {
        let in_transaction = self.machine.in_transaction();
        let (Some(seen), Some(admitted)) = (self.machine.progress(), self.admitted.front_mut()) else {
            return;
        };
        let progress = Progress {
            sent_rows: seen.rows,
            changed_rows: 0,
            bytes_in: seen.request_bytes,
            bytes_out: seen.response_bytes,
        };
        let work = admitted.running.work(progress);
        let counted = self.backend.as_mut().map(|backend| backend.take(&work));
        let verdict = admitted.running.look(counted, progress);
        let spared = in_transaction && admitted.running.may_owe();
        self.pace.obey(&verdict, admitted.running.cools_down(), spared, admitted.running.patience());
        if let Verdict::Dies(denied) = verdict {
            let refusal = Refusal::from(&denied);
            admitted.killed = Some(Killed { refusal: refusal.clone(), asked: 0 });
            self.kill(seen.number, refusal);
        }
        if due == Due::Time
            && self.pace.asks_again()
            && self.admitted.front().is_some_and(|admitted| admitted.killed.is_some())
        {
            self.interrupt();
        }
    }

    fn kill(&mut self, number: u64, refusal: Refusal) {
        if self.shared.control.is_none() {
            // The statement cannot be ended otherwise; the server may go on for a while without a client.
            self.must_end = Some(refusal);
            return;
        }
        if self.machine.kill(number, refusal) {
            self.interrupt();
        }
    }

    /// It is tried again as long as the statement goes on.
    fn kill_ended(&mut self, done: Result<(), ControlError>) {
        let killed = self.admitted.front_mut().and_then(|admitted| admitted.killed.as_mut());
        let (Err(error), Some(killed)) = (done, killed) else { return };
        if self.dismissed {
            tracing::debug!(%error, "a runaway without a client could not be killed; it is tried again");
        } else if killed.asked < MOST_KILLS {
            tracing::warn!(%error, "a runaway could not be killed; it is tried again");
        } else {
            tracing::warn!(%error, "a runaway could not be killed; its session ends");
            self.must_end = Some(killed.refusal.clone());
        }
    }

    /// Asks the server for the end of what it is at. Where that is in vain, the client is sent away.
    fn interrupt(&mut self) {
        let killed = self.admitted.front_mut().and_then(|admitted| admitted.killed.as_mut());
        let (Some(killed), None) = (killed, &self.killing) else { return };
        if killed.asked == MOST_KILLS && !self.dismissed {
            tracing::warn!(user = self.login.user, "a runaway survives being killed; its session ends");
            self.must_end = Some(killed.refusal.clone());
        }
        killed.asked = killed.asked.saturating_add(1);
        let (shared, connection) = (Arc::clone(&self.shared), self.connection);
        self.killing = Some(Box::pin(async move {
            match &shared.control {
                Some(control) => control.kill_query(connection).await,
                None => Ok(()),
            }
        }));
    }
}
