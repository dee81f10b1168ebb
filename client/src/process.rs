//! Totals of this process from the operating system, to compare with what was metered.
//!
//! CPU in nanoseconds (millisecond resolution), memory in bytes. Read at most once per [`EVERY`]: a reading costs
//! some 13 us.

use std::sync::{Mutex, PoisonError};

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};
use tidegate_core::units::{Span, Time};

/// How old a reading may be.
pub(crate) const EVERY: Span = Span::secs(5);

/// CPU and memory of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTotals {
    /// CPU time since the process started, in nanoseconds; resolution is a millisecond.
    pub cpu_ns: u64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
}

/// Reads the totals, seldom.
pub(crate) struct ProcessSampler(Mutex<Sampler>);

struct Sampler {
    /// `None` where the operating system is not supported.
    source: Option<(System, Pid)>,
    last: Option<(Time, ProcessTotals)>,
}

impl std::fmt::Debug for ProcessSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProcessSampler")
    }
}

impl ProcessSampler {
    pub(crate) fn new() -> Self {
        let source = System::new().ok().zip(get_current_pid().ok());
        Self(Mutex::new(Sampler { source, last: None }))
    }

    /// The totals, at most [`EVERY`] old. `None` where they cannot be read.
    pub(crate) fn read(&self, now: Time) -> Option<ProcessTotals> {
        let mut sampler = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, totals)) = sampler.last
            && now.since(at) < EVERY
        {
            return Some(totals);
        }
        let (system, pid) = sampler.source.as_mut()?;
        let wanted = ProcessRefreshKind::nothing().with_cpu().with_memory();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[*pid]), true, wanted);
        let process = system.process(*pid)?;
        let totals = ProcessTotals {
            cpu_ns: process.accumulated_cpu_time().saturating_mul(1_000_000),
            resident_bytes: process.memory(),
        };
        sampler.last = Some((now, totals));
        Some(totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_seen_at_most_every_five_seconds() {
        let sampler = ProcessSampler::new();
        let totals = sampler.read(Time(0)).unwrap();
        assert!(totals.resident_bytes > 1_000_000, "{totals:?}");
        let block = vec![1_u8; 64 << 20];
        assert_eq!(sampler.read(Time(4_999_999)), Some(totals));
        assert!(sampler.read(Time(5_000_000)).unwrap().resident_bytes > totals.resident_bytes);
        drop(block);
    }
}
