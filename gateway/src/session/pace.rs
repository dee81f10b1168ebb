//! When a statement that goes on is looked at, and whether its result is taken from the server meanwhile.
//!
//! The timer is left running between statements and set anew only when it fires too early: most statements end long
//! before their first look, and must not pay for it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::clock;
use crate::govern::{Running, Verdict};

/// Between two looks at a statement that goes on.
const LOOK: Duration = Duration::from_millis(100);
/// Looks between two reads from the server for a statement that cools down.
const COOLDOWN: u32 = 10;
/// Looks between two requests to end the same statement.
const AGAIN: u32 = 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pace {
    timer: Pin<Box<Sleep>>,
    /// Whether the timer is set to wake the session's task.
    is_set: bool,
    /// When the statement that runs is looked at next; `None` before it is first seen.
    next: Option<Instant>,
    looks: u32,
    holding: bool,
}

impl Pace {
    pub(crate) fn new() -> Self {
        let timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        Self { timer, is_set: false, next: None, looks: 0, holding: false }
    }

    /// Nothing is to be read from the server until the next look.
    pub(crate) fn holds(&self) -> bool {
        self.holding
    }

    /// Ready when it is time to look at the statement that runs.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, running: &Running) -> Poll<()> {
        let next = *self.next.get_or_insert_with(|| after(running.began()));
        let next = running.deadline().map_or(next, |deadline| deadline.min(next));
        loop {
            let fires_in_time = self.is_set && self.timer.deadline() <= next;
            if fires_in_time && !self.timer.is_elapsed() {
                // It wakes the session when it fires, which asks only one task.
                return Poll::Pending;
            }
            if !fires_in_time {
                self.timer.as_mut().reset(next);
            }
            self.is_set = self.timer.as_mut().poll(cx).is_pending();
            if self.is_set {
                return Poll::Pending;
            }
            let now = clock::now();
            if now >= next {
                self.next = Some(after(now));
                self.looks = self.looks.saturating_add(1);
                return Poll::Ready(());
            }
        }
    }

    /// Holds or takes the result as was decided about the statement; one that is `spared` is not held for its debt.
    pub(crate) fn obey(&mut self, verdict: &Verdict, running: &Running, spared: bool) {
        self.holding = match verdict {
            Verdict::Goes | Verdict::Dies(_) => false,
            Verdict::Holds if running.cools_down() => !self.looks.is_multiple_of(COOLDOWN),
            Verdict::Holds => !spared,
        };
    }

    /// Whether it is time to ask again for the end of a statement that was to be ended and goes on.
    pub(crate) fn asks_again(&self) -> bool {
        self.looks.is_multiple_of(AGAIN)
    }

    /// The statement has ended; another one may be next.
    pub(crate) fn ended(&mut self) {
        (self.next, self.looks, self.holding) = (None, 0, false);
    }
}

fn after(moment: Instant) -> Instant {
    moment.checked_add(LOOK).unwrap_or(moment)
}
