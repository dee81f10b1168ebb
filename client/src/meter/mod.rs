//! Meters: what an operation used, as a `Usage` vector.
//!
//! Blocking code is measured with the thread's CPU clock around a closure ([`measure`], [`measure_with_io`]), a
//! future with the same clock around each poll ([`Metered`]), a byte stream by wrapping it ([`Counted`]). Wall time
//! is never read: waiting costs nothing.
//!
//! Costs on the development machine: a reading of the thread CPU clock 0.03 us while the thread stays on its processor
//! and 0.2 us after a switch, one of `/proc/thread-self/io` 0.7 us.

mod counted;
mod cpu;
mod metered;
mod recorder;
mod thread_io;

pub use counted::{Counted, IoCounter};
pub use cpu::{CpuTimer, measure, measure_with_io, thread_cpu_ns};
pub use metered::Metered;
pub use recorder::UsageRecorder;
pub use thread_io::{ThreadIo, thread_io};
