//! The kernel's clocks, in nanoseconds.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CPU time of the calling thread, user and system. A system call.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// Time since some moment before. Read in user space where the processor's own clock can be trusted.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

#[inline]
#[expect(clippy::cast_sign_loss, reason = "both clocks start at zero")]
fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}
