//! A statement that goes on: the session reads what it uses, and holds it back or has it interrupted when it must.

use std::task::{Context, Poll};

use super::{Due, Killed, Killing, Protocol, Session};
use crate::govern::Verdict;

/// Attempts, a second apart, after which a statement that goes on loses its client: the server does not interrupt it, or it
/// does not notice, as one that waits for a file or catches the interruption.
const MOST_INTERRUPTS: u32 = 3;

impl Killing {
    /// Whether the server has been asked to end the statement that it is at.
    fn is_asked(&self) -> bool {
        self.killed.is_some() || self.outlasts
    }

    /// Waits for the request that is under way. True when it is done: it is tried again as long as the statement goes
    /// on.
    fn poll(&mut self, cx: &mut Context<'_>, server_refuses: bool) -> bool {
        let Some(asking) = &mut self.asking else { return false };
        let Poll::Ready(done) = asking.as_mut().poll(cx) else { return false };
        self.asking = None;
        let (Err(error), Some(killed)) = (done, &self.killed) else { return true };
        if killed.asked < MOST_INTERRUPTS || !server_refuses {
            tracing::warn!(%error, "a runaway could not be interrupted; it is tried again");
        } else {
            tracing::warn!(%error, "a runaway could not be interrupted; its session ends");
            self.must_end = Some(killed.denied.clone());
        }
        true
    }
}

impl<P: Protocol> Session<P> {
    /// Looks at the statement that runs, when it is time. True when something changed.
    pub(super) fn poll_watch(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(finding) = &mut self.finding
            && let Poll::Ready(found) = finding.as_mut().poll(cx)
        {
            self.backend = found;
            self.finding = None;
        }
        let mut moved = self.killing.poll(cx, P::REFUSES);
        while let Some((running, Some(progress))) = self.protocol.running()
            && let Poll::Ready(due) =
                self.pace.poll(cx, running.began(), running.deadline(), progress.bytes_out)
        {
            moved = true;
            self.look(due);
        }
        moved |= self.poll_interrupted(cx);
        if let (Some((running, _)), Some(backend)) = (self.protocol.running(), &mut self.backend) {
            backend.poll(cx, running.began());
        }
        moved
    }

    /// Lets a result go on that is held for its group's debt when its client has cancelled the statement: the server's
    /// word of that is behind what is held. Not before the server has acted on the request, or more comes behind what
    /// is held than may pass. True when it goes on.
    fn poll_interrupted(&mut self, cx: &Context<'_>) -> bool {
        if !self.pace.is_held_for_debt() || !self.protocol.poll_interrupted(cx) {
            return false;
        }
        let Some((_, Some(progress))) = self.protocol.running() else { return false };
        self.pace.cancelled(progress.bytes_out)
    }

    fn look(&mut self, due: Due) {
        let in_transaction = self.protocol.in_transaction();
        let Some((running, Some(progress))) = self.protocol.running() else { return };
        let counted = self.backend.as_mut().map(|backend| backend.take(&running.work(progress)));
        let verdict = running.look(counted, progress);
        // A server that cannot get rid of its result does not notice that it is to end.
        let passes = self.killing.is_asked() || self.pace.spares(progress.bytes_out);
        let spared = passes || in_transaction && running.may_owe();
        self.pace.obey(&verdict, running.cools_down(), spared, running.patience());
        if self.dismissed {
            return;
        }
        if let Verdict::Dies(denied) = verdict {
            if self.protocol.kill(&self.shared, &denied) {
                self.killing.killed = Some(Killed { denied, asked: 0 });
                self.interrupt();
            } else {
                // It cannot be ended otherwise; the server may go on for a while without a client.
                self.killing.must_end = Some(denied);
            }
        }
        if due == Due::Time && self.pace.asks_again() && self.killing.killed.is_some() {
            self.interrupt();
        }
    }

    /// Asks the server for the end of what it is at. Where that is in vain, the client is sent away.
    fn interrupt(&mut self) {
        let Killing { killed: Some(killed), asking: asking @ None, must_end, .. } = &mut self.killing else {
            return;
        };
        let Some(request) = self.protocol.interrupt(&self.shared) else { return };
        if killed.asked == MOST_INTERRUPTS {
            tracing::warn!(user = self.login.user, "a runaway survives being interrupted; its session ends");
            *must_end = Some(killed.denied.clone());
        }
        killed.asked = killed.asked.saturating_add(1);
        *asking = Some(request);
    }
}
