//! The benchmark's clocks, in nanoseconds: the machine's monotonic clock and the CPU time of this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment to measure from.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Duration);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(read(ClockId::Monotonic))
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        read(ClockId::Monotonic).saturating_sub(self.0)
    }
}

/// CPU time of all threads of this process.
pub fn process_cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanos)
}
