//! The benchmark's clocks: monotonic time, the CPU time of this process, and the wall clock for numbers that grow
//! from process to process.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    cpu(ClockId::ProcessCPUTime)
}

/// CPU time of the thread that asks.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanos)
}

/// Microseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a node's incarnation grows from process to process")]
pub fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
