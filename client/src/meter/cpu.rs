//! CPU time of the calling thread, in nanoseconds, and the closure meters built on it.
//!
//! User plus system time of this thread alone, by `tidegate_cpu_clock`: the time of `CLOCK_THREAD_CPUTIME_ID`, mostly
//! without asking the kernel.

use tidegate_core::usage::Usage;
use tidegate_cpu_clock::Reading;

use super::thread_io::thread_io;

/// CPU time this thread has used since it started, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    Reading::now().ns()
}

/// CPU time of the calling thread since this was made. Carried to another thread it has counted nothing.
#[derive(Clone, Copy, Debug)]
pub struct CpuTimer {
    began: Reading,
}

impl CpuTimer {
    /// Begins now.
    #[inline]
    pub fn begin() -> Self {
        Self { began: Reading::now() }
    }

    /// Nanoseconds of CPU since the beginning.
    #[inline]
    pub fn elapsed_ns(&self) -> u64 {
        self.began.elapsed_ns()
    }
}

/// Runs `work` and returns how much CPU this thread used for it.
///
/// It does not see threads that `work` starts; measure inside them.
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
    fn what_a_thread_used_is_counted_since_it_started() {
        let (before, timer) = (thread_cpu_ns(), CpuTimer::begin());
        burn(3_000_000);
        let (within, after) = (timer.elapsed_ns(), thread_cpu_ns());
        assert!(before < u64::MAX / 2 && after - before >= within, "{before} to {after}, {within} within");
        let of_a_new_thread = std::thread::spawn(thread_cpu_ns).join().unwrap();
        assert!(of_a_new_thread < after, "{of_a_new_thread} at the start of another");
    }

    #[test]
    fn cpu_of_other_threads_is_not_seen() {
        let ((), usage) =
            measure(|| std::thread::scope(|scope| drop(scope.spawn(|| burn(20_000_000)).join())));
        assert!(usage.cpu_ns < 20_000_000, "{usage:?}");
    }

    #[test]
    fn work_with_io_is_seen_as_a_whole() {
        let mut file = tempfile::tempfile().unwrap();
        let ((), usage) = measure_with_io(|| {
            burn(3_000_000);
            file.write_all(&[7; 100_000]).unwrap();
        });
        assert!((3_000_000..3_000_000_000).contains(&usage.cpu_ns), "{usage:?}");
        assert!(thread_io().is_none() || usage.write_bytes >= 100_000, "{usage:?}");
    }

    #[test]
    fn written_bytes_are_seen() {
        let mut file = tempfile::tempfile().unwrap();
        let ((), usage) = measure_with_io(|| file.write_all(&[7; 100_000]).unwrap());
        if thread_io().is_some() {
            assert!((100_000..200_000).contains(&usage.write_bytes), "{usage:?}");
        }
    }

    #[test]
    fn bytes_are_those_of_the_work_and_not_of_what_the_thread_did_before() {
        // Some kernels and sandboxes do not offer it.
        let offered = std::fs::read("/proc/thread-self/io").is_ok();
        assert_eq!(thread_io().is_some(), offered);
        if !offered {
            return;
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let ((), usage) = measure_with_io(|| file.write_all(&[7; 300_000]).unwrap());
        assert!((300_000..310_000).contains(&usage.write_bytes) && usage.read_bytes < 10_000, "{usage:?}");
        let (read, usage) = measure_with_io(|| std::fs::read(&path).unwrap().len());
        assert!((300_000..310_000).contains(&usage.read_bytes) && usage.write_bytes < 10_000, "{usage:?}");
        assert_eq!(read, 300_000);
        let ((), usage) = measure_with_io(|| ());
        assert!(usage.read_bytes < 10_000 && usage.write_bytes < 10_000, "{usage:?}");
    }
}
