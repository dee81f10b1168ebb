//! Seats for sessions, over all listeners.
//!
//! A connection takes a seat with its first byte, as a login takes the server's time, too. But until it has logged in
//! it has no claim to the seat: when all are taken, the connection that has been logging in for the longest gives its
//! seat to the next one, if it has been logging in for longer than a login takes. So connections that drip bytes, or
//! say nothing, cannot lock others out, and a crowd of clients that log in as fast as the server lets them is not
//! disturbed.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::clock;

/// A login that has taken so long may have to give way; it takes milliseconds, and a second at a busy server.
const LOGIN: Duration = Duration::from_secs(3);

/// The seats of a gateway, free and taken.
#[derive(Debug)]
pub(crate) struct Seats {
    free: Arc<Semaphore>,
    max: usize,
    entered: AtomicU64,
    /// Connections that have a seat and have not logged in, in the order in which they came; at most [`Self::max`].
    opening: Mutex<BTreeMap<u64, Arc<Opening>>>,
}

#[derive(Debug)]
struct Opening {
    since: Instant,
    /// Kept until the seat is given up, or given to another.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    lost: Notify,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    opening: Arc<Opening>,
    kept: AtomicBool,
}

impl Seats {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(max));
        Self { free, max, entered: AtomicU64::default(), opening: Mutex::default() }
    }

    /// All of them.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Those that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.max.saturating_sub(self.free.available_permits())
    }

    /// Completes when none is taken.
    pub(crate) async fn all_free(&self) {
        let all = u32::try_from(self.max).unwrap_or(u32::MAX);
        // An error says that the semaphore is closed.
        drop(self.free.acquire_many(all).await);
    }

    /// A seat for a new connection, if there is one or another gives way; whether one did.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<(Seat, bool)> {
        let free = Arc::clone(&self.free).try_acquire_owned().ok();
        let gives_way = free.is_none();
        let permit = free.or_else(|| self.take())?;
        let number = self.entered.fetch_add(1, Ordering::Relaxed);
        let permit = Mutex::new(Some(permit));
        let opening = Arc::new(Opening { since: clock::now(), permit, lost: Notify::new() });
        self.opening().insert(number, Arc::clone(&opening));
        let kept = AtomicBool::new(false);
        Some((Seat { seats: Arc::clone(self), number, opening, kept }, gives_way))
    }

    /// Takes the seat of the one that has been about to log in for the longest.
    fn take(&self) -> Option<OwnedSemaphorePermit> {
        let mut opening = self.opening();
        let oldest = opening.first_entry().filter(|oldest| oldest.get().since.elapsed() >= LOGIN)?.remove();
        drop(opening);
        oldest.lost.notify_one();
        oldest.permit.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn opening(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Opening>>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Keeps the seat from now on, unless it has been given to another connection already.
    pub(crate) fn keep(&self) {
        if self.seats.opening().remove(&self.number).is_some() {
            self.kept.store(true, Ordering::Relaxed);
        }
    }

    /// The output of `work`, or `None` when the seat is given to another meanwhile.
    pub(crate) async fn unless_lost<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let (mut lost, mut work) = (pin!(self.opening.lost.notified()), pin!(work));
        poll_fn(|cx| {
            // Nearly all of a session comes behind its login, and need not ask.
            if !self.kept.load(Ordering::Relaxed) && lost.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.keep();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_long_to_log_in_gives_way_in_the_order_of_coming() {
        let seats = Arc::new(Seats::new(3));
        let enter = || seats.enter();
        let [(first, _), (second, _), (third, _)] = [(); 3].map(|()| enter().unwrap());
        second.keep();
        assert!(enter().is_none(), "a login may take a while");
        tokio::time::advance(LOGIN).await;
        let (fourth, gave_way) = enter().unwrap();
        assert!(gave_way);
        first.keep();
        assert_eq!(first.unless_lost(pending::<()>()).await, None, "it was too late");
        assert_eq!(second.unless_lost(async { 7 }).await, Some(7));
        drop(first);
        assert_eq!(seats.taken(), 3, "the seat is the fourth's");
        let (fifth, _) = enter().unwrap();
        assert_eq!(third.unless_lost(pending::<()>()).await, None);
        assert!(enter().is_none(), "one has logged in, and two are new");
        drop((second, third));
        let (sixth, gave_way) = enter().unwrap();
        assert!(!gave_way);
        drop((fourth, fifth, sixth));
        assert_eq!((seats.taken(), seats.opening().len()), (0, 0));
        seats.all_free().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_is_waited_for_as_long_as_a_seat_is_taken() {
        let seats = Arc::new(Seats::new(2));
        let (one, _) = seats.enter().unwrap();
        assert!(clock::within(LOGIN, seats.all_free()).await.is_none(), "one is taken");
        drop(one);
        assert!(clock::within(LOGIN, seats.all_free()).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_a_seat_at_least_and_who_has_it_is_served_before_the_login() {
        assert_eq!([0, usize::MAX].map(|max| Seats::new(max).max()), [1, Semaphore::MAX_PERMITS]);
        let seats = Arc::new(Seats::new(0));
        let (seat, _) = seats.enter().unwrap();
        let login = seat.unless_lost(tokio::time::sleep(Duration::from_millis(1)));
        assert_eq!(login.await, Some(()));
    }
}
