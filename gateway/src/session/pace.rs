//! When a statement that goes on is looked at, and whether its result is taken from the server meanwhile.
//!
//! It is looked at every so often, and after every so many bytes: in a tenth of a second a result may pass that its
//! group pays for in minutes.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::clock;
use crate::govern::Verdict;

/// Between two looks at a statement that goes on.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of a result between two looks. With the built-in prices 16 RU, which is what a group may get beyond what it
/// has at a time; a look costs some microseconds, which at 1 GB/s is a hundredth of the time.
const LOOK_BYTES: u64 = 1_048_576;
/// Looks between two reads from the server for a statement that cools down.
const COOLDOWN: u32 = 10;
/// How long a result is held at least for the debt of its group, before some of it passes all the same.
const LEAST_HOLD: Duration = Duration::from_secs(1);
/// And at most: MySQL and MariaDB end a session whose result nobody takes for `net_write_timeout`, a minute unless
/// changed. Twice as much is that minute; with half of it a group far in debt gets twice as much of its result.
const MOST_HOLD: Duration = Duration::from_secs(30);
/// Bytes of a result that pass, once for a statement, when its client asks to cancel it while they are held: what the
/// server has sent before its word of that fills the sockets between, of 4 and 6 MiB at most unless changed. With less
/// that word may show at the end of a hold only; all of it is what a statement that heeds no request gets beyond its
/// debt.
const CANCELLED_BYTES: u64 = 16 * LOOK_BYTES;
/// Looks between two requests to end the same statement.
const AGAIN: u32 = 10;

/// Why it is time to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The time for a look has come.
    Time,
    /// Much of the result has passed since the last time.
    Bytes,
}

/// When to look at a running statement next.
#[derive(Debug)]
pub(crate) struct Pace {
    alarm: Alarm,
    /// When the statement that runs is looked at next; `None` before it is first seen.
    next: Option<Instant>,
    /// And when so many bytes of its result have passed.
    next_bytes: u64,
    /// Looks by the clock so far.
    looks: u32,
    holding: bool,
    /// Since when the result is held for the debt of its group.
    held: Option<Instant>,
    /// It was held back for long enough, and passes until so many more bytes have passed.
    relented: bool,
    /// It was cancelled while it was held for that debt, and passes up to so many bytes.
    cancelled: Option<u64>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            alarm: Alarm::new(),
            next: None,
            next_bytes: LOOK_BYTES,
            looks: 0,
            holding: false,
            held: None,
            relented: false,
            cancelled: None,
        }
    }

    /// Nothing is to be read from the server until the next look.
    pub(crate) fn holds(&self) -> bool {
        self.holding
    }

    /// Ready when it is time to look at the statement that runs: it began then, is ended by the clock at its deadline,
    /// and so many bytes of its result have `passed`.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        began: Instant,
        deadline: Option<Instant>,
        passed: u64,
    ) -> Poll<Due> {
        if passed >= self.next_bytes {
            self.next_bytes = passed.saturating_add(LOOK_BYTES);
            self.relented = false;
            return Poll::Ready(Due::Bytes);
        }
        let next = *self.next.get_or_insert_with(|| clock::after(began, LOOK));
        let next = deadline.map_or(next, |deadline| deadline.min(next));
        let now = ready!(self.alarm.poll(cx, next));
        self.next = Some(clock::after(now, LOOK));
        self.looks = self.looks.saturating_add(1);
        self.next_bytes = passed.saturating_add(LOOK_BYTES);
        Poll::Ready(Due::Time)
    }

    /// Holds or takes the result as was decided about the statement: one that cools down by its rule, one that is
    /// `spared` not for its debt, and no other for longer than its group's `patience` at a time, or [`MOST_HOLD`]. A
    /// client must not wait for an hour for the one row of a statement that has cost an hour's RU: its group refuses
    /// the next one.
    pub(crate) fn obey(&mut self, verdict: &Verdict, cools_down: bool, spared: bool, patience: Duration) {
        self.holding = match verdict {
            Verdict::Holds if cools_down => !self.looks.is_multiple_of(COOLDOWN),
            Verdict::Holds if !spared => return self.hold(patience),
            _ => false,
        };
        self.held = None;
    }

    fn hold(&mut self, patience: Duration) {
        if !self.relented {
            let now = clock::now();
            let since = *self.held.get_or_insert(now);
            self.relented = now.saturating_duration_since(since) >= patience.clamp(LEAST_HOLD, MOST_HOLD);
        }
        self.holding = !self.relented;
        if self.relented {
            self.held = None;
        }
    }

    /// Whether the result is held for the debt of its group.
    pub(crate) fn is_held_for_debt(&self) -> bool {
        self.holding && self.held.is_some()
    }

    /// The client has asked to cancel the statement, of whose result so many bytes have `passed`. True when a result
    /// that was held for the debt of its group goes on.
    pub(crate) fn cancelled(&mut self, passed: u64) -> bool {
        let goes_on = self.is_held_for_debt() && self.cancelled.is_none();
        if goes_on {
            self.cancelled = Some(passed.saturating_add(CANCELLED_BYTES));
            (self.holding, self.held) = (false, None);
        }
        goes_on
    }

    /// Whether a result of which so much has `passed` goes on whatever its group owes.
    pub(crate) fn spares(&self, passed: u64) -> bool {
        self.cancelled.is_some_and(|most| passed < most)
    }

    /// Whether it is time to ask again for the end of a statement that was to be ended and goes on.
    pub(crate) fn asks_again(&self) -> bool {
        self.looks.is_multiple_of(AGAIN)
    }

    /// The statement has ended; another one may be next.
    pub(crate) fn ended(&mut self) {
        (self.next, self.next_bytes, self.looks, self.holding) = (None, LOOK_BYTES, 0, false);
        (self.held, self.relented, self.cancelled) = (None, false, None);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// Why the next look is due, and how many tens of milliseconds after the beginning.
    async fn due(pace: &mut Pace, began: Instant, deadline: Option<Instant>, passed: u64) -> (Due, u128) {
        let due = poll_fn(|cx| pace.poll(cx, began, deadline, passed)).await;
        (due, began.elapsed().as_millis() / 10)
    }

    #[tokio::test(start_paused = true)]
    async fn a_statement_is_looked_at_by_the_clock_and_at_its_deadline() {
        let (mut pace, began) = (Pace::new(), clock::now());
        for look in 1..=3 {
            assert_eq!(due(&mut pace, began, None, 0).await, (Due::Time, 10 * look));
        }
        let far = began.checked_add(LOOK * 100);
        assert_eq!(due(&mut pace, began, far, 0).await, (Due::Time, 40));
        let deadline = began.checked_add(LOOK * 9 / 2);
        assert_eq!(due(&mut pace, began, deadline, 0).await.1, 45);
        // The next pause starts from the beginning, and an old timer that fires early wakes no session in vain.
        pace.ended();
        let began = clock::now();
        assert_eq!(due(&mut pace, began, None, 0).await, (Due::Time, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_looked_at_by_its_bytes_however_fast_it_comes() {
        let (mut pace, began) = (Pace::new(), clock::now());
        for looks in 1..=100 {
            assert_eq!(due(&mut pace, began, None, looks * LOOK_BYTES).await, (Due::Bytes, 0));
        }
        // A statement that was looked at by the clock needs no look by its bytes.
        let passed = 100 * LOOK_BYTES + LOOK_BYTES / 2;
        assert_eq!(due(&mut pace, began, None, passed).await, (Due::Time, 10));
        assert_eq!(due(&mut pace, began, None, passed + LOOK_BYTES - 1).await, (Due::Time, 20));
        pace.ended();
        let began = clock::now();
        assert_eq!(due(&mut pace, began, None, LOOK_BYTES - 1).await, (Due::Time, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn debt_holds_a_result_and_cooling_takes_a_tenth_of_it() {
        let (mut pace, began) = (Pace::new(), clock::now());
        pace.obey(&Verdict::Holds, false, true, LONG);
        assert!(!pace.holds(), "it is inside a transaction");
        pace.obey(&Verdict::Holds, false, false, LONG);
        assert!(pace.holds());
        pace.obey(&Verdict::Goes, false, false, LONG);
        assert!(!pace.holds());
        let mut taken = 0;
        for _ in 0..100 {
            due(&mut pace, began, None, 0).await;
            pace.obey(&Verdict::Holds, true, true, LONG);
            taken += u32::from(!pace.holds());
        }
        assert_eq!(taken, 10);
        pace.obey(&Verdict::Holds, false, false, LONG);
        pace.ended();
        assert!(!pace.holds(), "another statement");
    }

    #[tokio::test(start_paused = true)]
    async fn debt_holds_a_result_no_longer_than_its_group_waits_and_then_some_of_it_passes() {
        let hour = Duration::from_secs(3_600);
        for (patience, looks) in [(Duration::from_secs(3), 30), (Duration::ZERO, 10), (hour, 300)] {
            let (mut pace, began) = (Pace::new(), clock::now());
            let mut passed = 0;
            for round in 0..3 {
                pace.obey(&Verdict::Holds, false, false, patience);
                for _ in 0..looks {
                    assert!(pace.holds(), "{patience:?} {round}");
                    assert_eq!(due(&mut pace, began, None, passed).await.0, Due::Time);
                    pace.obey(&Verdict::Holds, false, false, patience);
                }
                // By the clock it goes on passing, by its bytes it is held again.
                for _ in 0..20 {
                    assert!(!pace.holds(), "{patience:?} {round}");
                    assert_eq!(due(&mut pace, began, None, passed).await.0, Due::Time);
                    pace.obey(&Verdict::Holds, false, false, patience);
                }
                passed += LOOK_BYTES;
                assert_eq!(due(&mut pace, began, None, passed).await.0, Due::Bytes);
            }
            // Another statement is held like the first.
            pace.obey(&Verdict::Holds, false, false, patience);
            for _ in 0..looks {
                due(&mut pace, began, None, passed).await;
                pace.obey(&Verdict::Holds, false, false, patience);
            }
            assert!(!pace.holds());
            pace.ended();
            pace.obey(&Verdict::Holds, false, false, patience);
            assert!(pace.holds(), "{patience:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_that_was_let_go_between_is_held_as_long_again() {
        let (mut pace, began, patience) = (Pace::new(), clock::now(), Duration::from_secs(3));
        let (holds, goes) = (Verdict::Holds, Verdict::Goes);
        for (verdict, spared) in
            [(&holds, false), (&goes, false), (&holds, false), (&holds, true), (&holds, false)]
        {
            for _ in 0..29 {
                pace.obey(verdict, false, spared, patience);
                assert_eq!(pace.holds(), verdict == &holds && !spared);
                assert_eq!(due(&mut pace, began, None, 0).await.0, Due::Time);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_that_is_held_for_debt_passes_once_for_a_while_when_its_client_cancels_it() {
        let mut pace = Pace::new();
        assert!(!pace.cancelled(7) && !pace.spares(7), "nothing is held");
        due(&mut pace, clock::now(), None, 0).await;
        pace.obey(&Verdict::Holds, true, false, LONG);
        assert!(pace.holds() && !pace.is_held_for_debt());
        assert!(!pace.cancelled(7) && !pace.spares(7), "it cools down, and passes each second");
        pace.obey(&Verdict::Holds, false, false, LONG);
        assert!(pace.holds() && pace.is_held_for_debt() && !pace.spares(7));
        assert!(pace.cancelled(7));
        assert!(!pace.holds() && !pace.is_held_for_debt());
        assert!(pace.spares(7) && pace.spares(6 + CANCELLED_BYTES) && !pace.spares(7 + CANCELLED_BYTES));
        // A server that does not heed it is held like any other, however often it is asked.
        pace.obey(&Verdict::Holds, false, pace.spares(7 + CANCELLED_BYTES), LONG);
        assert!(pace.holds() && !pace.cancelled(7 + CANCELLED_BYTES) && pace.holds());
        pace.ended();
        pace.obey(&Verdict::Holds, false, pace.spares(0), LONG);
        assert!(pace.holds() && pace.cancelled(0), "another statement");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_statement_is_asked_for_each_second() {
        let (mut pace, began) = (Pace::new(), clock::now());
        let mut asked = 0;
        for _ in 0..50 {
            due(&mut pace, began, None, 0).await;
            asked += u32::from(pace.asks_again());
        }
        assert_eq!(asked, 5);
    }
}
