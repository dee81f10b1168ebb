//! A statement whose client is gone: its group is charged until the server ends it, which the server is asked for.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Killing, Protocol, Session};
use crate::clock;

/// Between two requests. One that comes before the server has begun the statement is one to an idle session, which the
/// server forgets.
const AGAIN: Duration = Duration::from_secs(1);

impl<P: Protocol> Session<P> {
    /// Returns when the server has ended what it is at, or is gone. By itself it notices that its client is gone when it
    /// writes, which may be hours away.
    pub(super) async fn outlast(&mut self) {
        (self.dismissed, self.killing) = (true, Killing::default());
        let mut told = false;
        while self.protocol.running().is_some() {
            if let Some(interrupt) = self.protocol.interrupt(&self.shared) {
                match interrupt.await {
                    Ok(()) => self.killing.outlasts = true,
                    Err(error) if told => {
                        tracing::debug!(%error, "a statement whose client is gone could still not be interrupted");
                    }
                    Err(error) => {
                        tracing::warn!(
                            %error,
                            "a statement whose client is gone could not be interrupted; it is tried again each second"
                        );
                        told = true;
                    }
                }
            }
            if clock::within(AGAIN, poll_fn(|cx| self.poll_outlast(cx))).await.is_some() {
                return;
            }
        }
    }

    /// Ready when the server has come to the end, or is gone.
    fn poll_outlast(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let goes_on = matches!(self.poll_server(cx), Ok(None)) && !self.protocol.is_quiet();
            let dropped = self.link.poll_dismissed(cx);
            self.count_answered();
            if !goes_on {
                return Poll::Ready(());
            }
            if !self.poll_watch(cx) && !dropped {
                return Poll::Pending;
            }
        }
    }
}
