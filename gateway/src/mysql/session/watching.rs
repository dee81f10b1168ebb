//! A statement that goes on: what it uses is looked at, and it is held back or killed when it must be.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::super::answer::Refusal;
use super::super::step;
use super::super::thread;
use super::Session;
use crate::clock;
use crate::govern::{Backend, Progress, Verdict};

/// Between two looks at a statement that goes on.
const LOOK: Duration = Duration::from_millis(100);
/// Looks between two reads from the server for a statement that cools down.
const COOLDOWN: u32 = 10;
/// Looks between two requests to kill the same statement.
const KILL_AGAIN: u32 = 10;

impl Session {
    pub(super) fn find_backend(&mut self, login: &step::Login) {
        if self.shared.control.is_none() {
            tracing::debug!("the upstream URL names no user; costs are estimated");
            return;
        }
        let (shared, connection) = (Arc::clone(&self.shared), self.connection);
        let is_mariadb = login.server_version.contains("MariaDB");
        self.finding = Some(Box::pin(async move {
            let control = shared.control.as_ref()?;
            match control.thread(connection, is_mariadb).await {
                Ok(found) => found.as_ref().and_then(thread::backend),
                Err(error) => {
                    tracing::warn!(%error, "the server's thread is not known; costs are estimated");
                    None
                }
            }
        }));
    }

    /// Looks at the statement that runs, when it is time, and kills it when it must.
    pub(super) fn poll_timers(&mut self, cx: &mut Context<'_>) -> bool {
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
            if let Err(error) = done {
                tracing::warn!(%error, "a runaway could not be killed; it is tried again");
            }
            self.killing = None;
            moved = true;
        }
        loop {
            let Some(deadline) = self.runs() else { return moved };
            if !self.ticking {
                let next = clock::now().checked_add(LOOK).unwrap_or_else(clock::now);
                let next = deadline.map_or(next, |deadline| deadline.min(next));
                self.tick.as_mut().reset(next);
                self.ticking = true;
            }
            if self.tick.as_mut().poll(cx).is_pending() {
                return moved;
            }
            self.ticking = false;
            moved = true;
            self.look();
        }
    }

    /// When the rule of the statement ends it that the server works on; `None` if it works on none.
    fn runs(&self) -> Option<Option<Instant>> {
        let number = self.machine.progress()?.number;
        let front = self.admitted.front().filter(|admitted| admitted.number == number)?;
        Some(front.running.deadline())
    }

    fn look(&mut self) {
        self.looks = self.looks.saturating_add(1);
        let counted = self.backend.as_mut().map(Backend::take);
        let spared = self.machine.in_transaction() && self.shared.governor.owes_in_transactions();
        let (Some(seen), Some(admitted)) = (self.machine.progress(), self.admitted.front_mut()) else {
            return;
        };
        let progress = Progress {
            sent_rows: seen.rows,
            changed_rows: 0,
            bytes_in: seen.request_bytes,
            bytes_out: seen.response_bytes,
        };
        match admitted.running.look(counted, progress) {
            Verdict::Goes => self.holding = false,
            Verdict::Holds if admitted.running.cools_down() => {
                self.holding = !self.looks.is_multiple_of(COOLDOWN);
            }
            Verdict::Holds => self.holding = !spared,
            Verdict::Dies(denied) => {
                self.holding = false;
                admitted.killed = true;
                self.kill(seen.number, Refusal::from(&denied));
            }
        }
        let again = self.looks.is_multiple_of(KILL_AGAIN);
        if again && self.admitted.front().is_some_and(|admitted| admitted.killed) {
            self.interrupt();
        }
    }

    fn kill(&mut self, number: u64, refusal: Refusal) {
        if self.shared.control.is_none() {
            // Nobody else can end it; the server may go on for a while without a client.
            self.must_end = Some(refusal);
            return;
        }
        if self.machine.kill(number, refusal) {
            self.interrupt();
        }
    }

    fn interrupt(&mut self) {
        if self.killing.is_none() {
            let (shared, connection) = (Arc::clone(&self.shared), self.connection);
            self.killing = Some(Box::pin(async move {
                match &shared.control {
                    Some(control) => control.kill_query(connection).await,
                    None => Ok(()),
                }
            }));
        }
    }
}
