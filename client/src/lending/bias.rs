//! A lock biased to one thread: its owner takes it with two plain stores, anyone else pays with a barrier on every
//! processor.
//!
//! Dekker's handshake made asymmetric: the owner says that it is inside and then looks whether it is barred; the other
//! side bars it and then looks whether it is inside. Between the two steps each needs a full barrier. The owner's is one
//! for the compiler only, because the other side runs `membarrier(2)`, which makes all threads of the process execute
//! one. Where the kernel has no such call, the owner executes its own. Where it refuses the call after it had granted it,
//! as in a sandbox that is set up late, owners are kept out for good.

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

/// Announces a call of [`prepare`], so that no other caller makes it and waits.
pub(crate) fn will_prepare() {
    barrier::will_prepare();
}

/// To be called once before owners go in, so that they need no barrier of their own. The kernel takes up to some tens of
/// milliseconds for it in a process with several threads.
pub(crate) fn prepare() {
    barrier::prepare();
}

/// Whether owners may be let in already. Unless [`will_prepare`] announced it, the preparation is made now.
pub(crate) fn is_prepared() -> bool {
    barrier::is_prepared()
}

/// Stands between barring owners and looking whether they are inside.
pub(crate) fn barrier_of_others() {
    barrier::of_others();
}

/// Whether owners may be let in. Once the kernel has refused a barrier it never is again.
pub(crate) fn is_sound() -> bool {
    barrier::is_sound()
}

#[cfg(all(target_os = "linux", not(all(test, shuttle))))]
mod barrier {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};
    use std::time::Duration;

    use rustix::thread::{MembarrierCommand, membarrier};

    /// How often a refused barrier is asked for again. The kernel documents no passing failure for a registered process,
    /// so one would do; a hundred cost microseconds, once.
    const TRIES: u32 = 100;
    /// How long an owner that went in without a barrier of its own may take to be seen, where the kernel executes none
    /// for it. Its store waits in the store buffer of a processor, which is empty within a microsecond, or when the
    /// thread is switched out. A thousand times as long; the one who waits holds a group's lock, once for each group.
    const DRAINED: Duration = Duration::from_millis(1);

    /// Whether the kernel makes other threads execute barriers. A thread that reads `false` executes one itself, which
    /// is right, too.
    static ASYMMETRIC: AtomicBool = AtomicBool::new(false);
    static REFUSED: AtomicBool = AtomicBool::new(false);
    /// Somebody prepares it, and has.
    static BEGUN: AtomicBool = AtomicBool::new(false);
    static PREPARED: AtomicBool = AtomicBool::new(false);
    static REGISTERED: LazyLock<bool> = LazyLock::new(|| {
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        ASYMMETRIC.store(registered, Ordering::Relaxed);
        registered
    });

    pub(super) fn will_prepare() {
        BEGUN.store(true, Ordering::Relaxed);
    }

    pub(super) fn prepare() {
        LazyLock::force(&REGISTERED);
        PREPARED.store(true, Ordering::Release);
    }

    pub(super) fn is_prepared() -> bool {
        if PREPARED.load(Ordering::Acquire) {
            return true;
        }
        if BEGUN.load(Ordering::Relaxed) {
            return false;
        }
        prepare();
        true
    }

    pub(super) fn is_sound() -> bool {
        !REFUSED.load(Ordering::Relaxed)
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
            if is_sound() && !executed(|| membarrier(MembarrierCommand::PrivateExpedited)) {
                ASYMMETRIC.store(false, Ordering::Relaxed);
                REFUSED.store(true, Ordering::Relaxed);
                tracing::error!(
                    "the kernel refuses membarrier(2), which it granted to this process before (a sandbox that was set up \
                     later?): threads admit under the group's lock from here on; allow the call, or set the sandbox up first"
                );
            }
            if !is_sound() {
                drain();
            }
        }
        fence(Ordering::SeqCst);
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "no state shows that a store buffer is empty; only time empties it"
    )]
    fn drain() {
        std::thread::sleep(DRAINED);
    }

    /// Whether the kernel executes the barrier within some tries.
    pub(super) fn executed<E>(mut barrier: impl FnMut() -> Result<(), E>) -> bool {
        (0..TRIES).any(|_| {
            let done = barrier().is_ok();
            if !done {
                std::thread::yield_now();
            }
            done
        })
    }
}

#[cfg(not(all(target_os = "linux", not(all(test, shuttle)))))]
mod barrier {
    use std::sync::atomic::{Ordering, fence};

    pub(super) fn will_prepare() {}

    pub(super) fn prepare() {}

    pub(super) fn is_prepared() -> bool {
        true
    }

    pub(super) fn is_sound() -> bool {
        true
    }

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

    #[test]
    #[cfg(target_os = "linux")]
    fn a_barrier_that_is_refused_for_good_ends() {
        let mut asked = 0;
        let mut refuse_until = |last: u32| {
            barrier::executed(|| {
                asked += 1;
                if asked < last { Err(()) } else { Ok(()) }
            })
        };
        assert!(refuse_until(3), "one that is refused in passing is executed");
        assert!(!refuse_until(u32::MAX));
    }

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
