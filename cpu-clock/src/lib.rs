//! CPU time of the calling thread, in nanoseconds, mostly without a system call.
//!
//! The truth is the kernel's clock `CLOCK_THREAD_CPUTIME_ID`, which takes a system call. While a thread is not taken
//! from its processor, that clock goes as the monotonic one does, which takes none. So the clock asks the kernel once,
//! and then adds the monotonic time gone since, until the thread was switched, or for a millisecond. Whether it was
//! switched is read from memory: see `switches`.
//!
//! How it differs from the kernel's clock: by less than a millisecond, and only by what the kernel does not count to a
//! thread that is on a processor (time that a hypervisor stole; interrupts, where it is built to account for them
//! apart). Such differences do not add up, as each question to the kernel resets them. Readings of a thread never run
//! backwards.
//!
//! Where switches cannot be seen (not Linux, `perf_event_paranoid` above 2, a seccomp filter, a forked child, the first
//! readings of a thread, a thread that is ending), each reading is a system call.
//!
//! The only unsafe code of the workspace is here: two system calls, two mappings, and a word in each that the kernel
//! writes. One of the calls asks how the wall clock is kept: see [`discipline`].

mod discipline;
mod kernel;
#[cfg(target_os = "linux")]
mod switches;
#[cfg(not(target_os = "linux"))]
#[path = "no_switches.rs"]
mod switches;
mod thread;

pub use discipline::{Discipline, discipline};

use thread::THREAD;

/// CPU time of a thread at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    ns: u64,
    /// The thread; 0 while it ends.
    thread: u64,
}

impl Reading {
    /// The CPU time of the calling thread, now.
    #[inline]
    pub fn now() -> Self {
        THREAD
            .try_with(|thread| Self { ns: thread.cpu_ns(), thread: thread.number() })
            // The thread is ending.
            .unwrap_or_else(|_| Self { ns: kernel::thread_cpu_ns(), thread: 0 })
    }

    /// CPU time since the thread started.
    pub fn ns(self) -> u64 {
        self.ns
    }

    /// CPU time that the calling thread has used since this reading; zero when the reading is of another thread.
    #[inline]
    pub fn elapsed_ns(self) -> u64 {
        let now = Self::now();
        if now.thread == self.thread { now.ns.saturating_sub(self.ns) } else { 0 }
    }
}
