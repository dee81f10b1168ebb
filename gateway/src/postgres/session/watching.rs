//! A statement that goes on: the session reads what it uses, and holds it back or cancels it when it must.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::super::message;
use super::{Killed, Session};
use crate::govern::Verdict;
use crate::session::Due;

/// Attempts, a second apart, after which a statement that catches its cancel loses its client, as with MySQL.
const MOST_CANCELS: u32 = 3;

impl Session {
    /// Looks at the statement that runs, when it is time. True when something changed.
    pub(super) fn poll_watch(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        if let Some(request) = &mut self.cancelling
            && let Poll::Ready(done) = request.as_mut().poll(cx)
        {
            if let Err(error) = done {
                tracing::warn!(%error, "a runaway could not be cancelled; it is tried again");
            }
            self.cancelling = None;
            moved = true;
        }
        while let Some(unit) = self.talk.current()
            && let Some(running) = unit.running.as_deref()
            && let Poll::Ready(due) =
                self.pace.poll(cx, running.began(), running.deadline(), unit.progress.bytes_out)
        {
            moved = true;
            self.look(due);
        }
        if let Some(running) = self.talk.current().and_then(|unit| unit.running.as_deref())
            && let Some(backend) = &mut self.backend
        {
            backend.poll(cx, running.began());
        }
        moved
    }

    fn look(&mut self, due: Due) {
        let in_transaction = self.talk.in_transaction();
        let Some(unit) = self.talk.current() else { return };
        let progress = unit.progress;
        let Some(running) = &mut unit.running else { return };
        let counted = self.backend.as_mut().map(|backend| backend.take(&running.work(progress)));
        let verdict = running.look(counted, progress);
        let spared = in_transaction && running.may_owe();
        self.pace.obey(&verdict, running.cools_down(), spared, running.patience());
        if let Verdict::Dies(denied) = verdict {
            self.talk.killed(message::error(&denied));
            self.killed = Some(Killed { denied, cancels: 0 });
            self.cancel();
        }
        if due == Due::Time && self.pace.asks_again() && self.talk.is_killed() {
            self.cancel();
        }
    }

    /// Asks the server for the end of what it is at. A statement may catch that and go on: then its client is sent away.
    fn cancel(&mut self) {
        let (Some(key), Some(killed), None) = (self.talk.key(), &mut self.killed, &self.cancelling) else {
            return;
        };
        if killed.cancels == MOST_CANCELS && !self.dismissed {
            tracing::warn!(user = self.login.user, "a runaway survives being cancelled; its session ends");
            self.must_end = true;
        }
        killed.cancels = killed.cancels.saturating_add(1);
        self.cancelling = Some(Box::pin(Arc::clone(&self.shared).cancel(key.clone())));
    }
}
