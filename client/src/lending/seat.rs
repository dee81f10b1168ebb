//! A small number for each thread, its own as long as it lives, as an index of what threads hold apart.
//!
//! A thread that ends leaves what it held in place: the next thread in the seat goes on with it.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicU64, thread_local};

/// Threads with a seat at one time; the others go through the lock.
pub(crate) const MAX_SEATS: usize = 64;

/// The thread has not looked for a seat yet.
const UNKNOWN: usize = usize::MAX;
/// Given up as the thread ends.
const NONE: usize = usize::MAX - 1;

/// A bit for each seat that is taken.
#[cfg(not(all(test, shuttle)))]
static TAKEN: AtomicU64 = AtomicU64::new(0);

// One for each run.
#[cfg(all(test, shuttle))]
shuttle::lazy_static! {
    static ref TAKEN: AtomicU64 = AtomicU64::new(0);
}

thread_local! {
    static SEAT: Cell<usize> = const { Cell::new(UNKNOWN) };
    static LEAVE: Leave = const { Leave(Cell::new(NONE)) };
}

/// Gives the seat back as the thread ends.
struct Leave(Cell<usize>);

impl Drop for Leave {
    fn drop(&mut self) {
        // Under the scheduler it may be gone already, which says the same.
        let _ = SEAT.try_with(|own| own.set(NONE));
        let seat = self.0.get();
        if seat < MAX_SEATS {
            // Release: who takes the seat next sees what this thread left there.
            TAKEN.fetch_and(!(1 << seat), Ordering::Release);
        }
    }
}

/// The calling thread's seat; `None` when all are taken or the thread ends.
#[inline]
pub(crate) fn seat() -> Option<usize> {
    match SEAT.try_with(Cell::get).unwrap_or(NONE) {
        seat if seat < MAX_SEATS => Some(seat),
        NONE => None,
        _ => take(),
    }
}

/// Takes the lowest free seat. Without a free seat, the next call looks again.
#[cold]
fn take() -> Option<usize> {
    // Acquire: see `Leave`.
    let before = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, with_one_more).ok()?;
    let seat = usize::try_from(before.trailing_ones()).ok()?;
    let stays = LEAVE.try_with(|leave| leave.0.set(seat)).is_ok();
    SEAT.with(|own| own.set(if stays { seat } else { NONE }));
    if !stays {
        // The thread ends, and nothing would give the seat back.
        TAKEN.fetch_and(!(1 << seat), Ordering::Release);
    }
    stays.then_some(seat)
}

/// These seats and the lowest that is free; `None` where none is.
fn with_one_more(taken: u64) -> Option<u64> {
    Some(taken | taken.checked_add(1)?)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// A seat behind the last would be another thread's, as a bit.
    #[test]
    fn the_lowest_free_seat_is_taken_and_none_where_none_is_free() {
        for (taken, with) in [(0, Some(0b1)), (0b1011, Some(0b1111)), (u64::MAX >> 1, Some(u64::MAX))] {
            assert_eq!(with_one_more(taken), with);
        }
        assert_eq!(with_one_more(u64::MAX), None);
    }

    #[test]
    fn threads_that_live_at_the_same_time_have_seats_of_their_own() {
        let meet = std::sync::Barrier::new(8);
        let mut seats: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mine = seat().unwrap();
                        meet.wait();
                        assert_eq!(seat(), Some(mine));
                        mine
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        seats.sort_unstable();
        seats.dedup();
        assert_eq!(seats.len(), 8);
    }

    #[test]
    fn seats_are_taken_again() {
        for _ in 0..10 * MAX_SEATS {
            assert!(std::thread::spawn(seat).join().unwrap().is_some());
        }
    }
}
