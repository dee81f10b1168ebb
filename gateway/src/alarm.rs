//! A timer for moments that are rarely reached: it keeps running when the moment moves on, and is reset only when it
//! fires too early. Most statements end long before their timer, and must not pay for it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::clock;

/// A timer whose moment may move on at no cost.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: Pin<Box<Sleep>>,
    /// Whether the timer is set to wake the task.
    is_set: bool,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        Self { timer: Box::pin(tokio::time::sleep(Duration::ZERO)), is_set: false }
    }

    /// Ready, with the time, once it is `at` or later; else the task is woken then, or before.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<Instant> {
        loop {
            let fires_in_time = self.is_set && self.timer.deadline() <= at;
            if fires_in_time && !self.timer.is_elapsed() {
                // It wakes the session when it fires, which asks only one task.
                return Poll::Pending;
            }
            if !fires_in_time {
                self.timer.as_mut().reset(at);
            }
            self.is_set = self.timer.as_mut().poll(cx).is_pending();
            if self.is_set {
                return Poll::Pending;
            }
            let now = clock::now();
            if now >= at {
                return Poll::Ready(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// As a session does: it asks whenever it wakes, and the moment moves on meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_moment_that_moves_on_is_not_reached_before_its_time() {
        let (began, mut alarm) = (clock::now(), Alarm::new());
        let at = |ms| began + Duration::from_millis(ms);
        let mut looks = Vec::new();
        for moment in [10, 30, 25, 25] {
            let now = poll_fn(|cx| {
                looks.push(began.elapsed().as_millis());
                alarm.poll(cx, at(moment))
            })
            .await;
            assert_eq!(now, clock::now());
        }
        assert_eq!(looks, [0, 10, 10, 30, 30, 30]);
        // The timer of an earlier moment wakes it, and it waits for the later one.
        let mut moment = 40;
        let now = poll_fn(|cx| alarm.poll(cx, at(std::mem::replace(&mut moment, 60)))).await;
        assert_eq!(now, at(60));
    }
}
