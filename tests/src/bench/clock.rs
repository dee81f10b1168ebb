//! The benchmark's clocks: monotonic time, and the CPU time of this process.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A moment to measure from.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time; it reads it here only")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// CPU time of all threads of this process.
pub fn process_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanos)
}
