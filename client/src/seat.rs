//! A small number for each thread, its own as long as it lives, as an index of what threads hold apart.

/// Threads with a seat at one time; the others go through the lock.
pub(crate) const MAX_SEATS: usize = 64;

#[cfg(not(all(test, shuttle)))]
pub(crate) use of_thread::seat;

/// Tasks of the scheduler are its threads.
#[cfg(all(test, shuttle))]
pub(crate) fn seat() -> Option<usize> {
    Some(usize::from(shuttle::current::me())).filter(|seat| *seat < MAX_SEATS)
}

#[cfg(not(all(test, shuttle)))]
mod of_thread {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::MAX_SEATS;

    /// Not looked for yet, or given up as the thread ends.
    const UNKNOWN: usize = usize::MAX;
    const NONE: usize = usize::MAX - 1;

    /// A bit for each seat that is taken.
    static TAKEN: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        static SEAT: Cell<usize> = const { Cell::new(UNKNOWN) };
        static LEAVE: Leave = const { Leave };
    }

    /// Gives the seat back as the thread ends.
    struct Leave;

    impl Drop for Leave {
        fn drop(&mut self) {
            let seat = SEAT.replace(NONE);
            if seat < MAX_SEATS {
                // Release: who takes the seat next sees what this thread left there.
                TAKEN.fetch_and(!(1 << seat), Ordering::Release);
            }
        }
    }

    /// The calling thread's seat; `None` when all are taken or the thread ends.
    #[inline]
    pub(crate) fn seat() -> Option<usize> {
        match SEAT.get() {
            seat if seat < MAX_SEATS => Some(seat),
            NONE => None,
            _ => take(),
        }
    }

    /// Takes the lowest free seat. When there is none, it is looked for again at the next call.
    #[cold]
    fn take() -> Option<usize> {
        let lowest = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        // Acquire: see `Leave`.
        let before = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, lowest).ok()?;
        let seat = usize::try_from(before.trailing_ones()).ok()?;
        SEAT.set(seat);
        if LEAVE.try_with(|_| ()).is_err() {
            // The thread ends; nobody would give the seat back.
            SEAT.set(NONE);
            TAKEN.fetch_and(!(1 << seat), Ordering::Release);
            return None;
        }
        Some(seat)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

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
}
