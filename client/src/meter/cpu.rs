//! CPU time of the calling thread, in nanoseconds, and the closure meters built on it.
//!
//! The clock is `CLOCK_THREAD_CPUTIME_ID`: user plus system time of this thread alone, at nanosecond resolution.

use rustix::time::{ClockId, clock_gettime};
use tidegate_core::usage::Usage;

use super::thread_io::thread_io;

/// CPU time this thread has used since it started, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let reading = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(reading.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(reading.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// CPU time of the calling thread since this was made. Meaningless when carried to another thread.
#[derive(Clone, Copy, Debug)]
pub struct CpuTimer {
    began_ns: u64,
}

impl CpuTimer {
    /// Begins now.
    pub fn begin() -> Self {
        Self { began_ns: thread_cpu_ns() }
    }

    /// Nanoseconds of CPU since the beginning.
    pub fn elapsed_ns(&self) -> u64 {
        thread_cpu_ns().saturating_sub(self.began_ns)
    }
}

/// Runs `work` and tells how much CPU this thread used for it.
///
/// Threads that `work` starts are not seen; measure inside them.
pub fn measure<T>(work: impl FnOnce() -> T) -> (T, Usage) {
    let timer = CpuTimer::begin();
    let value = work();
    (value, Usage { cpu_ns: timer.elapsed_ns(), ..Usage::default() })
}

/// As [`measure`], and counts the bytes this thread read and wrote through system calls (files, sockets and pipes).
///
/// Where `/proc/thread-self/io` cannot be read the bytes are zero.
pub fn measure_with_io<T>(work: impl FnOnce() -> T) -> (T, Usage) {
    let before = thread_io();
    let (value, mut usage) = measure(work);
    if let (Some(before), Some(after)) = (before, thread_io()) {
        usage.read_bytes = after.read_bytes.saturating_sub(before.read_bytes);
        usage.write_bytes = after.write_bytes.saturating_sub(before.write_bytes);
    }
    (value, usage)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Burns CPU until the thread's own clock has moved by `ns`.
    fn burn(ns: u64) {
        let timer = CpuTimer::begin();
        while timer.elapsed_ns() < ns {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn burned_cpu_is_seen() {
        let ((), usage) = measure(|| burn(3_000_000));
        assert!((3_000_000..3_000_000_000).contains(&usage.cpu_ns), "{usage:?}");
        assert_eq!(usage.read_bytes, 0);
    }

    #[test]
    fn cpu_of_other_threads_is_not_seen() {
        let ((), usage) =
            measure(|| std::thread::scope(|scope| drop(scope.spawn(|| burn(20_000_000)).join())));
        assert!(usage.cpu_ns < 20_000_000, "{usage:?}");
    }

    #[test]
    fn written_bytes_are_seen() {
        let mut file = tempfile::tempfile().unwrap();
        let ((), usage) = measure_with_io(|| file.write_all(&[7; 100_000]).unwrap());
        if thread_io().is_some() {
            assert!((100_000..200_000).contains(&usage.write_bytes), "{usage:?}");
        }
    }
}
