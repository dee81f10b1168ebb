//! Answers that wait for a beat, in a cluster with `cluster_strict`.
//!
//! A fence is judged by this machine's clock, which a hypervisor may halt together with the machine: it goes on with a
//! fence that looks open, whatever happened meanwhile. An answer that waits for the store of a beat which was *sent after
//! the renewal came in* needs no clock of a controller: this one owned the log when that beat was stored, and the node
//! counts its lease from a sending before that. A successor recovers for the longest lease after it took the log.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Thread, park_timeout};

use tidegate_core::units::{Span, Time};
use tokio::sync::watch as flag;
use tokio::time::timeout;

use crate::clock::{Clock, duration};
use crate::leasing::fence::Silence;

/// Between two beats that answers wait for. With half of it, beats take twice as much of etcd, a tenth of a core, and
/// answers come 5 ms earlier.
pub(super) const LEAST: Span = Span::millis(10);

/// What answers wait at.
pub(crate) struct Gate {
    /// When the newest beat that is stored was sent.
    stored: flag::Sender<Option<Time>>,
    /// An answer waits for a beat that is not sent yet.
    is_wanted: AtomicBool,
    /// Writes beats.
    beats: OnceLock<Thread>,
    /// An answer that waited for so long has none: the fence is closed, too.
    fence: Span,
}

impl Gate {
    pub(super) fn new(fence: Span) -> Self {
        Self {
            stored: flag::Sender::new(None),
            is_wanted: AtomicBool::default(),
            beats: OnceLock::new(),
            fence,
        }
    }

    /// A beat is about to be sent: what wants one from now on wants the next.
    pub(super) fn sending(&self) {
        self.is_wanted.store(false, Ordering::SeqCst);
    }

    /// Notes that the beat that was sent then is stored.
    pub(super) fn stored(&self, sent: Time) {
        self.stored.send_modify(|stored| *stored = (*stored).max(Some(sent)));
    }

    /// The beat that was sent is not known to be stored: what waits for one wants the next.
    pub(super) fn not_stored(&self) {
        if self.stored.receiver_count() > 0 {
            self.is_wanted.store(true, Ordering::SeqCst);
        }
    }

    /// Whether an answer waits for the next beat.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::SeqCst)
    }

    /// Whether what came in at `came` may be answered.
    #[cfg(test)]
    pub(super) fn is_open(&self, came: Time) -> bool {
        stored_after(came, *self.stored.borrow())
    }

    /// Wants a beat.
    pub(super) fn want(&self) {
        if !self.is_wanted.swap(true, Ordering::SeqCst)
            && let Some(beats) = self.beats.get()
        {
            beats.unpark();
        }
    }

    /// Waits until what came in at `came` may be answered.
    ///
    /// # Errors
    /// No beat was stored for the length of the fence.
    pub(crate) async fn passed(&self, came: Time) -> Result<(), Silence> {
        let mut stored = self.stored.subscribe();
        self.want();
        let opened =
            timeout(duration(self.fence), stored.wait_for(|stored| stored_after(came, *stored))).await;
        // The sender is this gate's own.
        opened.map(drop).map_err(|_| Silence::CutOff(self.fence))
    }

    /// The thread that writes beats waits for the next one: for `pause`, or for an answer that wants one, if that comes
    /// later than `LEAST`, or for its end.
    pub(super) fn rest(&self, clock: &Clock, pause: Span, ending: &AtomicBool) {
        self.beats.get_or_init(std::thread::current);
        let begun = clock.now();
        while !ending.load(Ordering::Acquire) {
            let rest = if self.is_wanted() { LEAST } else { pause.max(LEAST) };
            let left = begun.after(rest).since(clock.now());
            if left == Span(0) {
                return;
            }
            park_timeout(duration(left));
        }
    }
}

fn stored_after(came: Time, stored: Option<Time>) -> bool {
    stored.is_some_and(|sent| sent > came)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const FENCE: Span = Span::secs(1);

    #[tokio::test(start_paused = true)]
    async fn only_a_beat_that_was_sent_after_a_renewal_came_in_lets_its_answer_out() {
        let gate = Arc::new(Gate::new(FENCE));
        assert_eq!(gate.passed(Time(10)).await, Err(Silence::CutOff(FENCE)), "there was none");
        for sent in [9, 10] {
            gate.stored(Time(sent));
            assert_eq!(gate.passed(Time(10)).await, Err(Silence::CutOff(FENCE)), "sent at {sent}");
        }
        let waiting = Arc::clone(&gate);
        let waiting = tokio::spawn(async move { waiting.passed(Time(10)).await });
        tokio::task::yield_now().await;
        assert!(gate.is_wanted());
        gate.sending();
        assert!(!gate.is_wanted() && !waiting.is_finished());
        gate.stored(Time(11));
        assert_eq!(waiting.await.unwrap(), Ok(()));
        // An answer to an older beat comes late.
        gate.stored(Time(5));
        assert_eq!(gate.passed(Time(10)).await, Ok(()));
    }

    #[test]
    fn a_thread_that_rests_is_woken_by_what_wants_a_beat_and_by_its_end() {
        let gate = Arc::new(Gate::new(FENCE));
        let ending = Arc::new(AtomicBool::new(false));
        let rest = || {
            let (gate, ending) = (Arc::clone(&gate), Arc::clone(&ending));
            std::thread::spawn(move || gate.rest(&Clock::start(), Span::secs(3_600), &ending))
        };
        let resting = rest();
        gate.want();
        resting.join().unwrap();
        gate.sending();
        let resting = rest();
        ending.store(true, Ordering::Release);
        resting.thread().unpark();
        resting.join().unwrap();
    }

    #[test]
    fn the_first_answer_that_wants_a_beat_wakes_the_thread_that_writes_them() {
        let gate = Gate::new(FENCE);
        // This one writes them; its rest is over at once.
        gate.rest(&Clock::start(), Span(0), &AtomicBool::new(true));
        gate.want();
        let clock = Clock::start();
        park_timeout(duration(Span::secs(60)));
        assert!(clock.uptime() < Span::secs(60), "it would sleep until the next beat is due anyway");
    }
}
