//! A lock biased to one thread: its owner takes it with two plain stores, anyone else pays with a barrier on every
//! processor.
//!
//! Dekker's handshake made asymmetric: the owner says that it is inside and then looks whether it is barred; the other
//! side bars it and then looks whether it is inside. Between the two steps each needs a full barrier. The owner's is one
//! for the compiler only, because the other side runs `membarrier(2)`, which makes all threads of the process execute
//! one. Where the kernel has no such call, the owner executes its own.

use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, pause};

/// The two flags of an owner. Barred at first.
#[derive(Debug)]
pub(crate) struct Bias {
    inside: AtomicBool,
    barred: AtomicBool,
}

impl Default for Bias {
    fn default() -> Self {
        Self { inside: AtomicBool::new(false), barred: AtomicBool::new(true) }
    }
}

impl Bias {
    /// The owner goes in. False when it is barred; true is followed by [`Bias::leave`].
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        self.inside.store(true, Ordering::Relaxed);
        barrier::of_owner();
        // Acquire: with the bar lifted, everything done behind it is seen.
        if self.barred.load(Ordering::Acquire) {
            self.leave();
            return false;
        }
        true
    }

    /// The owner goes out.
    #[inline]
    pub(crate) fn leave(&self) {
        self.inside.store(false, Ordering::Release);
    }

    /// The owner is kept out from the next barrier of the other side on.
    pub(crate) fn bar(&self) {
        self.barred.store(true, Ordering::Relaxed);
    }

    /// Waits until the owner, barred before [`barrier_of_others`], is out.
    pub(crate) fn wait_until_out(&self) {
        while self.inside.load(Ordering::Acquire) {
            pause();
        }
    }

    /// Lets the owner in again.
    pub(crate) fn lift(&self) {
        self.barred.store(false, Ordering::Release);
    }
}

/// To be called once before owners go in, so that they need no barrier of their own.
pub(crate) fn prepare() {
    barrier::prepare();
}

/// Stands between barring owners and looking whether they are inside.
pub(crate) fn barrier_of_others() {
    barrier::of_others();
}

#[cfg(all(target_os = "linux", not(all(test, shuttle))))]
mod barrier {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether the kernel makes other threads execute barriers. Who reads `false` executes one, which is right, too.
    static ASYMMETRIC: AtomicBool = AtomicBool::new(false);
    static REGISTERED: LazyLock<bool> = LazyLock::new(|| {
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        ASYMMETRIC.store(registered, Ordering::Relaxed);
        registered
    });

    pub(super) fn prepare() {
        LazyLock::force(&REGISTERED);
    }

    #[inline]
    pub(super) fn of_owner() {
        if ASYMMETRIC.load(Ordering::Relaxed) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    pub(super) fn of_others() {
        if *REGISTERED {
            // Does not fail once the process is registered. Without it nobody knows whether an owner is inside.
            while membarrier(MembarrierCommand::PrivateExpedited).is_err() {
                std::thread::yield_now();
            }
        }
        fence(Ordering::SeqCst);
    }
}

#[cfg(not(all(target_os = "linux", not(all(test, shuttle)))))]
mod barrier {
    use std::sync::atomic::{Ordering, fence};

    pub(super) fn prepare() {}

    pub(super) fn of_owner() {
        fence(Ordering::SeqCst);
    }

    pub(super) fn of_others() {
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(2);

    /// A line of memory that both sides write, so that stores queue up behind it in their processor and what is read
    /// after them comes first: only a barrier keeps the order.
    #[derive(Default)]
    #[repr(align(128))]
    struct Line(AtomicU64);

    /// Both sides add to a number by reading and writing it: none of the additions is lost.
    #[test]
    fn the_owner_and_others_are_never_inside_at_once() {
        prepare();
        let (bias, lines, number) = (Bias::default(), <[Line; 8]>::default(), Line::default());
        let begun = Instant::now();
        let add = |turn: u64| {
            let before = number.0.load(Ordering::Relaxed);
            (0..turn % 4).for_each(|_| std::hint::spin_loop());
            number.0.store(before + 1, Ordering::Relaxed);
        };
        let queue = |turn: u64| lines.iter().for_each(|line| line.0.store(turn, Ordering::Relaxed));
        let runs = |turn: &u64| !turn.is_multiple_of(256) || begun.elapsed() < LONG;
        let (inside, barred) = std::thread::scope(|scope| {
            let owner = scope.spawn(|| {
                let mut inside = 0;
                for turn in (0..).take_while(runs) {
                    queue(turn);
                    if bias.enter() {
                        add(turn);
                        bias.leave();
                        inside += 1;
                    }
                }
                inside
            });
            let mut barred = 0;
            for turn in (0..).take_while(runs) {
                bias.bar();
                barrier_of_others();
                bias.wait_until_out();
                add(turn);
                bias.lift();
                queue(turn);
                barred += 1;
            }
            (owner.join().unwrap(), barred)
        });
        println!("the owner was inside {inside} times, and barred {barred} times");
        assert_eq!(number.0.into_inner(), inside + barred);
    }
}
